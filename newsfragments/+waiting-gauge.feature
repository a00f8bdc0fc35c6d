``/metrics`` says how many requests wait in the queue, as ``pypto_router_requests_waiting``.
