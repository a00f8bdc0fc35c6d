SIGTERM and SIGINT stop the router in order and end with exit code 0, a further signal hastens, and SIGQUIT or ``--detach-on-exit`` leaves launched replicas running for the next router.
