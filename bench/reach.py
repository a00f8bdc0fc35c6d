"""How good any placement could be on a row of single-turn work: a search that knows how the row ends."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from random import Random

from bench.report import keep
from bench.tables import render
from twisted_router.core.policies.vocabulary import Ask, Candidate, Forgetful, Reason
from twisted_router.lab.rows import BY_NAME as ROWS
from twisted_router.lab.rows import Row, Variant, run_row
from twisted_router.lab.variants import BOUND
from twisted_router.lab.variants import BY_NAME as VARIANTS

TEXT = "what a placement that knows the whole future reaches in the laboratory, beside work and the bound"

REPLICAS = 4
EVERYWHERE = (1 << REPLICAS) - 1


class Allowed(Forgetful):
    """The least loaded of the replicas that may serve a task; requests of one task begin alike.

    ``masks``: a bit for each replica, by the order in which tasks appear. ``order``: breaks ties.
    """

    wants_prompt = True

    def __init__(self, masks: Sequence[int], order: Random) -> None:
        self._masks = masks
        self._order = order
        self._tasks: dict[int, int] = {}
        self.plan: list[int] = []

    def choose(self, ask: Ask, candidates: Sequence[Candidate]) -> tuple[int, Reason]:
        """Take the least loaded of those allowed."""
        assert ask.prompt is not None
        task = self._tasks.setdefault(ask.prompt.chain[0], len(self._tasks))
        mask = self._masks[task % len(self._masks)]
        there = [at for at in range(len(candidates)) if mask >> at & 1]
        best = min(there, key=lambda at: (candidates[at].outstanding, self._order.random()))
        self.plan.append(best)
        return best, Reason.LEAST_LOADED


class Planned(Forgetful):
    """Sends the requests where a plan says, one after the other."""

    def __init__(self, plan: Sequence[int]) -> None:
        self._plan = iter(plan)

    def choose(self, ask: Ask, candidates: Sequence[Candidate]) -> tuple[int, Reason]:
        """Take the next of the plan."""
        return next(self._plan), Reason.IN_TURN


def changed(plan: Sequence[int], random: Random) -> list[int]:
    """A plan much like this one: a stretch moved from one replica to another, or a few requests."""
    other = list(plan)
    if random.random() < 0.5:
        start, length = random.randrange(len(other)), random.choice((4, 16, 64))
        here, there = random.sample(range(REPLICAS), 2)
        for at in range(start, min(len(other), start + length)):
            if other[at] in (here, there) and random.random() < 0.7:
                other[at] = there if other[at] == here else here
    else:
        for _ in range(random.choice((1, 2, 4, 8))):
            other[random.randrange(len(other))] = random.randrange(REPLICAS)
    return other


def search(row: Row, seed: int, tasks: int, seconds: float) -> dict[str, float]:
    """Seconds the row takes under each kind of placement, the searched ones after so many seconds each."""

    def took(policy: Allowed | Planned) -> float:
        return run_row(row, Variant("searched", lambda: policy), seed).value

    random = Random(seed)
    best = took(first := Allowed([EVERYWHERE] * tasks, Random(seed)))
    found = {"ties broken at random": best}
    masks, plan = [EVERYWHERE] * tasks, first.plan
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        tried = list(masks)
        tried[random.randrange(tasks)] = random.randrange(1, EVERYWHERE + 1)
        policy = Allowed(tried, Random(seed))
        if (value := took(policy)) <= best:
            best, masks, plan = value, tried, policy.plan
    found["hindsight: replicas of each task"] = best
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        other = changed(plan, random)
        if (value := took(Planned(other))) <= best:
            best, plan = value, other
    found["hindsight: place of each request"] = best
    for name in ("work", BOUND):
        found[name] = run_row(row, VARIANTS[name], seed).value
    return found


def reach(options: argparse.Namespace) -> int:
    """Print the change against ``least_conn`` in percent for each seed."""
    row, seeds = ROWS[options.row], [int(word) for word in options.seeds.split(",")]
    changes: dict[str, list[float]] = {}
    for seed in seeds:
        base = run_row(row, VARIANTS["least_conn"], seed).value
        for name, value in search(row, seed, options.tasks, options.seconds).items():
            changes.setdefault(name, []).append(100.0 * (value / base - 1.0))
    head = [row.name, *(f"seed {seed}" for seed in seeds), "mean"]
    lines = [
        [name, *(f"{one:+.1f}" for one in some), f"{sum(some) / len(some):+.1f}"]
        for name, some in changes.items()
    ]
    print(render(head, lines), end="\n\n")
    keep("reach", {"row": row.name, "seeds": seeds, "changes": changes}, options.json)
    return 0
