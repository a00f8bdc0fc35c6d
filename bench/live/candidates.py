"""Who is compared: a perfect pin, our policies, and the routers of others."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial

from attrs import frozen

from bench.engines import Starter, nginx, ours, vllm_router

#: What everything is compared with, and what no router can do better than for conversations.
BASELINE, PIN = "nginx", "pin"


@frozen
class Candidate:
    """One line of the table.

    :ivar start: how it is started for a time scale; None when the client talks to the replicas itself.
    :ivar ids: whether clients send session ids.
    """

    name: str
    about: str
    start: Callable[[float], Starter] | None
    ids: bool = True

    @property
    def is_ours(self) -> bool:
        """Whether the bars are for it."""
        return self.name.startswith("us-")


def _ours(policy: str) -> Callable[[float], Starter]:
    """Our router; its policies see the simulated time, as they do in the laboratory."""
    return lambda scale: ours([sys.executable, "-m", "bench.live.clock", str(scale), "--policy", policy])


def _program(scale: float) -> Starter:
    """Program scheduling as its users run it, its periods shortened with the time."""
    settings = {
        "program_scheduling_enable_key": "auto",
        "global_queue": True,
        "metrics_interval_seconds": 1.0 / scale,
        "max_acting_ttl_seconds": 10.0 / scale,
    }
    flags = ["--enable-program-scheduling", "--program-scheduling-config-json", json.dumps(settings)]
    return vllm_router("0.1.16", "cache_aware", *flags)


CANDIDATES = {
    one.name: one
    for one in (
        Candidate(BASELINE, "nginx, least_conn", lambda _: partial(nginx, balance="least_conn;")),
        Candidate(PIN, "no router: each conversation bound to a replica, in turn", None),
        Candidate("us-session", "ours, --policy session", _ours("session")),
        Candidate("us-work", "ours, --policy work", _ours("work")),
        Candidate("us-work-no-ids", "ours, --policy work, no session ids sent", _ours("work"), ids=False),
        Candidate(
            "vllm-cache", "vllm-router 0.1.16, cache_aware", lambda _: vllm_router("0.1.16", "cache_aware")
        ),
        Candidate("vllm-program", "vllm-router 0.1.16, cache_aware and program scheduling", _program),
        Candidate(
            "vllm-new-cache",
            "vllm-router 0.1.17, cache_aware",
            lambda _: vllm_router("0.1.17", "cache_aware"),
        ),
    )
}
