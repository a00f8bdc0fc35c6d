"""The laboratory's workloads in real time: real routers, real sockets, simulated replicas, a faster clock."""
