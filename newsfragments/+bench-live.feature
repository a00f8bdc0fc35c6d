``python -m bench live`` plays the laboratory's workloads in real time, over real sockets on simulated replicas, through this router, nginx, vllm-router and a client that pins perfectly.
