"""What is measured on the wire, and the bars that the results are held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: Events per stream that outlast any window: no stream begins or ends while it is measured.
ENDLESS = 1_000_000


@dataclass(frozen=True)
class Case:
    """One load; ``unit`` is what processor time is divided by: request, chunk, or call (a whole stream)."""

    name: str
    unit: str
    flags: dict[str, object]

    def done(self, result: dict[str, Any]) -> int:
        """How many units the window saw."""
        return int(result["chunks" if self.unit == "chunk" else "requests"])


def _plain(connections: int) -> Case:
    return Case(f"requests C={connections}", "request", {"connections": connections})


def _streams(name: str, unit: str, **flags: object) -> Case:
    return Case(name, unit, {"stream": 1, "connections": 256, "warmup": 1.0, **flags})


PACED = _streams("256 streams, 50/s each", "chunk", rate=50, chunks=ENDLESS)
#: More than anybody carries here, so that every engine is at its limit.
FLOOD = 2000

SATURATED = _streams("256 streams, saturated", "chunk", rate=FLOOD, chunks=ENDLESS)
CALLS = _streams("calls: 4 KB in, 200 chunks out", "call", rate=FLOOD, chunks=200, body=4096)
CASES: dict[str, Case] = {
    "paced": PACED,
    "saturated": SATURATED,
    "calls": CALLS,
    "c1": _plain(1),
    "c32": _plain(32),
    "c256": _plain(256),
}


@dataclass(frozen=True)
class Bar:
    """Our median divided by a peer's stays at or below ``limit`` (``at_least``: at or above it)."""

    case: str
    metric: str
    peer: str
    limit: float
    at_least: bool = False

    def holds(self, ratio: float) -> bool:
        """Whether *ratio* is within the bar."""
        return ratio >= self.limit if self.at_least else ratio <= self.limit


BARS = (
    Bar("saturated", "cpu", "nginx", 1.3),
    Bar("saturated", "cpu", "vllm-rr", 0.6),
    Bar("saturated", "per_second", "nginx", 0.9, at_least=True),
    Bar("paced", "cpu", "vllm-rr", 1.15),
    Bar("paced", "rss_mb", "vllm-rr", 0.6),
    Bar("calls", "cpu", "vllm-rr", 0.6),
    Bar("calls", "cpu", "nginx", 2.5),
    Bar("c32", "cpu", "vllm-rr", 2.0),
    Bar("c1", "ttfb_p50", "vllm-rr", 2.0),
)
