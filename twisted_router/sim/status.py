"""What a simulated replica shows of its engine: vLLM's metric names, and a JSON object of our own (pure)."""

from __future__ import annotations

from twisted_router.sim.engine import Engine

_METRICS = (
    ("num_requests_running", "gauge", "Sequences admitted to the engine."),
    ("num_requests_waiting", "gauge", "Sequences in line."),
    ("kv_cache_usage_perc", "gauge", "Share of KV blocks that running sequences hold, 0 to 1."),
    ("prefix_cache_queries", "counter", "Prompt tokens looked up in the prefix cache."),
    ("prefix_cache_hits", "counter", "Prompt tokens found there."),
    ("prompt_tokens", "counter", "Prompt tokens of admitted sequences."),
    ("generation_tokens", "counter", "Tokens generated."),
)


def metrics(engine: Engine, model: str) -> bytes:
    """Prometheus text, version 0.0.4."""
    totals = engine.totals
    values = {
        "num_requests_running": engine.running,
        "num_requests_waiting": engine.waiting,
        "kv_cache_usage_perc": engine.kv_usage,
        "prefix_cache_queries": totals.prompt_tokens,
        "prefix_cache_hits": totals.cached_tokens,
        "prompt_tokens": totals.prompt_tokens,
        "generation_tokens": totals.output_tokens,
    }
    labels = f'engine="0",model_name="{_escaped(model)}"'
    lines = []
    for name, kind, text in _METRICS:
        full = f"vllm:{name}_total" if kind == "counter" else f"vllm:{name}"
        lines += [f"# HELP {full} {text}", f"# TYPE {full} {kind}", f"{full}{{{labels}}} {values[name]}"]
    limits = engine.limits
    lines += [
        "# HELP vllm:cache_config_info Size of the KV cache.",
        "# TYPE vllm:cache_config_info gauge",
        f'vllm:cache_config_info{{block_size="{limits.block_size}",engine="0",'
        f'num_gpu_blocks="{limits.blocks}"}} 1',
    ]
    return "\n".join(lines).encode() + b"\n"


def snapshot(engine: Engine, model: str, devices: str, taken: int) -> dict[str, object]:
    """The ``/sim`` object; ``taken`` counts requests that reached an inference route."""
    totals = engine.totals
    return {
        "simulated": True,
        "model": model,
        "devices": devices,
        "requests": taken,
        "running": engine.running,
        "waiting": engine.waiting,
        "finished": totals.finished,
        "aborted": totals.aborted,
        "prompt_tokens": totals.prompt_tokens,
        "cached_tokens": totals.cached_tokens,
        "output_tokens": totals.output_tokens,
        "kv_usage": engine.kv_usage,
        "blocks": engine.limits.blocks,
        "blocks_in_use": engine.cache.in_use,
        "blocks_idle": engine.cache.idle,
    }


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
