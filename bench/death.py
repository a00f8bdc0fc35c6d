"""``python -m bench death``: one of two replicas under load is killed (manual: When a replica dies)."""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections import Counter

from bench.launched import SLOTS, Launched, launched, until, verdict
from bench.report import keep

#: Seconds for which the load goes on once the fleet is at full strength again.
AFTERWARDS = 3.0


def death(options: argparse.Namespace) -> int:
    """Kill, watch, count; 1 when a bar is missed."""
    with launched() as here, here.talking(options.clients) as talks:
        time.sleep(AFTERWARDS)
        out, begun, whole = _kill(here, SLOTS[0])
        time.sleep(AFTERWARDS)
    turns = [turn for talk in talks for turn in talk.turns]
    failed = [turn for turn in turns if turn.failure is not None]
    lost = [turn for turn in failed if turn.slot == SLOTS[0]]
    rows: list[tuple[str, float, float | None]] = [
        ("conversations", len(talks), None),
        ("turns in all", len(turns), None),
        ("turns on the survivor", sum(turn.slot == SLOTS[1] for turn in turns), None),
        ("seconds until out of rotation", out, 10),
        ("seconds until the replacement begins", begun, 60),
        ("seconds until full strength", whole, None),
        ("failed turns, cut off by the death", len(lost), None),
        ("failed turns on the survivor", len(failed) - len(lost), 0),
    ]
    held = verdict(rows)
    for why, count in Counter(f"{turn.slot}: {turn.failure}" for turn in failed).items():
        print(f"{count} times at {why}")
    keep("death", {name: value for name, value, _ in rows}, options.json)
    return int(not held)


def _kill(here: Launched, slot: str) -> tuple[float, float, float]:
    """Kill a replica: seconds until it is out of rotation, is being replaced, and is back."""
    instance = here.replicas()[slot]["instance"]
    killed = time.monotonic()
    os.kill(here.pids()[slot], signal.SIGKILL)

    def replaced() -> bool:
        there = here.replicas().get(slot)
        return there is not None and there["instance"] != instance

    out = until(lambda: not here.replicas()[slot]["ready"], "the dead one to leave rotation")
    begun = until(replaced, "a replacement", 120)
    return out - killed, begun - killed, until(here.ready, "full strength") - killed
