The metric ``pypto_router_reactor_lag_seconds`` says how late the router is for what it has to do.
