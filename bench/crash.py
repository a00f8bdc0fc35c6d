"""``python -m bench crash``: ``kill -9`` of the router under load, and its restart."""

from __future__ import annotations

import argparse
import http.client
import signal
import time

from bench.launched import Conversation, Launched, ask, launched, until, verdict
from bench.processes import cpu_us
from bench.report import keep

#: Seconds of load before the crash, longer than pins wait to be saved, and after it.
BEFORE = 4.0
AFTERWARDS = 3.0


def crash(options: argparse.Namespace) -> int:
    """Kill, restart, compare; 1 when a bar is missed."""
    # The whole herd comes back at once: with the usual slack, sessions whose replica got more of it move on.
    with launched("--affinity-slack", "1000") as here, here.talking(options.clients) as talks:
        time.sleep(BEFORE)
        pids, loads = here.pids(), here.loads()
        homes = {talk.session: talk.home for talk in talks}
        here.kill(signal.SIGKILL)
        began = time.monotonic()
        here.start()
        serving = until(lambda: _serves(here), "a first answer", 30) - began
        spent = cpu_us(here.running()) / 1e6
        until(lambda: all(_met(talk, began) for talk in talks), "an answer for everybody")
        time.sleep(AFTERWARDS)
        moved = sum(_met(talk, began) != {homes[talk.session]} for talk in talks)
        lived = sum(pid == here.pids().get(slot) for slot, pid in pids.items())
        rows: list[tuple[str, float, float | None]] = [
            ("conversations", len(talks), None),
            ("seconds from start to serving", serving, 1),
            ("seconds of a processor that took", spent, None),
            ("replicas adopted, of two", lived, None),
            ("model loads caused", here.loads() - loads, 0),
            ("conversations that left their replica", moved, 0),
            (
                "turns after the restart",
                sum(turn.began > began for talk in talks for turn in talk.turns),
                None,
            ),
            ("failed turns that began after that", _failed(talks, began + serving), 0),
        ]
    held = verdict(rows)
    keep("crash", {name: value for name, value, _ in rows}, options.json)
    return int(not held)


def _serves(here: Launched) -> bool:
    """Whether a replica answers through the router; with one token, or its speed would be measured."""
    body = {"max_tokens": 1, "messages": [{"role": "user", "content": "Are you there?"}]}
    try:
        return ask(here.port, "POST", "/v1/chat/completions", body)[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def _met(talk: Conversation, since: float) -> set[str | None]:
    """The replicas that answered turns which began later."""
    return {turn.slot for turn in list(talk.turns) if turn.began > since and turn.failure is None}


def _failed(talks: list[Conversation], since: float) -> int:
    return sum(turn.failure is not None and turn.began > since for talk in talks for turn in talk.turns)
