"""What a decision takes, from a body in memory to a replica, and what the router's memory of texts weighs."""

from __future__ import annotations

import argparse
import gc
import json
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from twisted.web.http_headers import Headers

from bench.report import keep
from bench.tables import render
from twisted_router.config.model import SESSION_SOURCES
from twisted_router.core.fleet import Fleet
from twisted_router.core.policies.registry import make_policy
from twisted_router.core.policies.vocabulary import Policy
from twisted_router.core.policies.work import Work
from twisted_router.core.prefix import INDEX_CAP, Prompt, read_prompt
from twisted_router.core.sessions import PIN_CAP, Pins
from twisted_router.core.wish import Wish
from twisted_router.proxy.head import SessionFinder, asks_for_stream

TEXT = "median time of a decision, and the memory of a full index and 100,000 pins"

REPLICAS = 8
#: Conversations that take turns, so that no decision finds what it wants in the processor's cache.
CONVERSATIONS = 24


def fleet_of(policy: Policy) -> Fleet:
    """Routable replicas behind a policy."""
    fleet = Fleet(policy, Pins(600.0, PIN_CAP), veto=10.0)
    for number in range(REPLICAS):
        fleet.add_static(f"r{number}", f"http://127.0.0.1:{8001 + number}")
    return fleet


def body_of(size: int, name: object) -> bytes:
    """A conversation of about *size* bytes as a client writes it; all share a system prompt."""
    messages = [{"role": "system", "content": "You are given tools and you use them. " * 120}]
    said = 'the tool\'s answer: {"lines": [1, 2, 3], "path": "src/main.c"}\n' * 24
    while (left := size - len(json.dumps(messages)) - 80) > 200:
        role = "assistant" if len(messages) % 2 == 0 else "user"
        messages.append({"role": role, "content": f"{name} {len(messages)} {said}"[:left]})
    return json.dumps({"model": "m", "messages": messages, "stream": True}).encode()


@dataclass(frozen=True)
class Case:
    """One decision to time.

    ``named``: whether clients send an id. ``bar``: milliseconds the median has to stay below.
    """

    name: str
    policy: str
    size: int
    named: bool
    bar: float


CASES = (
    Case("work, 30 KB, no id", "work", 30_000, False, 0.3),
    Case("work, 30 KB, id", "work", 30_000, True, 0.3),
    Case("work, 240 KB, no id", "work", 240_000, False, 1.0),
    Case("work, 240 KB, id", "work", 240_000, True, 1.0),
    Case("session, 30 KB, id", "session", 30_000, True, 0.02),
)


def decisions(case: Case) -> Callable[[], float]:
    """Prepare a fleet and return what makes one decision and tells the milliseconds it took.

    By the clock; on a machine that is busy with other things that is more than the decision's own time.
    """
    fleet = fleet_of(make_policy(case.policy))
    finder = SessionFinder(SESSION_SOURCES)
    requests = []
    for name in range(CONVERSATIONS):
        headers = Headers({b"content-type": [b"application/json"]})
        if case.named:
            headers.addRawHeader(b"x-session-id", b"conversation-%d" % name)
        requests.append((headers, body_of(case.size, name)))
    made = 0

    def decide() -> float:
        nonlocal made
        made += 1
        headers, body = requests[made % len(requests)]
        began = time.perf_counter()
        found = finder.find(headers, body)
        prompt = read_prompt(body) if fleet.wants_prompt else None
        wish = Wish(
            found or f"minted-{made}", found, prompt, asks_for_stream(body) if prompt is not None else True
        )
        choice = fleet.pick(wish, float(made))
        took = time.perf_counter() - began
        with fleet.lease(choice, lambda: float(made)):
            pass
        return took * 1e3

    return decide


def weigh(named: bool, prompts: int = INDEX_CAP) -> float:
    """Megabytes that as many conversations as are kept leave behind, each with a text of its own."""
    work = Work()
    fleet = fleet_of(work)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(prompts):
            # What a fingerprint is in life: a number of 64 bits that nobody else holds.
            prompt = Prompt(2048, (number * 0x9E3779B97F4A7C15 % 2**64,), 1)
            session = f"{number:032x}"
            choice = fleet.pick(Wish(session, session if named else None, prompt), number * 0.005)
            with fleet.lease(choice, lambda at=number: at * 0.005):  # type: ignore[misc]
                pass
            del choice, prompt, session
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / 1e6
    finally:
        tracemalloc.stop()


def measure(options: argparse.Namespace) -> int:
    """Print the table; 1 when a bar is missed."""
    rows, kept, missed = [], {}, False
    for case in CASES:
        decide = decisions(case)
        for _ in range(3 * CONVERSATIONS):
            decide()
        took = sorted(decide() for _ in range(options.count))
        kept[case.name] = median(took)
        missed |= median(took) >= case.bar
        rows.append(
            [case.name, f"{median(took):.4f} ms", f"{took[9 * len(took) // 10]:.4f} ms", f"< {case.bar:g} ms"]
        )
    for what, named in (("ids", True), ("no ids", False)):
        megabytes = weigh(named)
        kept[f"memory, {what}"] = megabytes
        missed |= megabytes >= 60.0
        rows.append(
            [f"{INDEX_CAP:,} fingerprints, {PIN_CAP:,} pins, {what}", f"{megabytes:.1f} MB", "", "< 60 MB"]
        )
    print(render(["decision", "median", "9 of 10 below", "bar"], rows), end="\n\n")
    keep("decisions", {"count": options.count, "medians": kept}, options.json)
    return int(missed)
