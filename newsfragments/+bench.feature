``python -m bench`` measures the router beside nginx, haproxy, vllm-router and sglang-router on your own machine: processor time per request and per streamed event, added latency, memory and errors.
