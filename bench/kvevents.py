"""``python -m bench.kvevents``: what cache events gain a policy, in the laboratory's simulated time.

Prints how often a replica was chosen for text it no longer had, and what that did to the row, with and
without its events; ``silent`` means that no answer said how many tokens its prompt had.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from attrs import evolve

from twisted_router.core.kvevents import KvEvent, Removed, Stored
from twisted_router.core.policies.informed import Followed, Informed
from twisted_router.core.policies.vocabulary import Ask, Candidate, Outcome, Reason, Trace
from twisted_router.core.policies.work import Work
from twisted_router.core.prefix import CHUNK, NO_PROMPT
from twisted_router.lab.engine import BLOCK, BlockCache, Job
from twisted_router.lab.rows import BY_NAME, Row
from twisted_router.lab.simulation import Simulation, Station
from twisted_router.lab.text import BYTES_PER_TOKEN
from twisted_router.lab.workloads import Scene

#: Tokens that have to be missing for a choice to count as wrong: what a replica prefills in 0.35 s.
MISSING = 2048


class TellingCache(BlockCache):
    """A cache that notes what comes and goes."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.events: list[KvEvent] = []

    def computed(self, job: Job) -> None:
        """Blocks come in, in one event."""
        known = len(job.held)
        there = self._held.keys() | self._idle.keys()
        super().computed(job)
        fresh = [block for block in job.held[known:] if block not in there]
        if fresh:
            first = job.held.index(fresh[0])
            self.events.append(Stored(tuple(fresh), job.held[first - 1] if first else None, BLOCK))

    def _evict(self) -> None:
        before = list(self._idle)
        super()._evict()
        gone = len(before) - len(self._idle)
        if gone > 0:
            self.events.append(Removed(tuple(before[:gone])))


class Judged:
    """Compares what a policy believed of the replica it chose with what the engine found."""

    wants_prompt = True

    def __init__(self, policy: Informed | Work, index_of: Work, silent: bool) -> None:
        self._policy, self._work, self._silent = policy, index_of, silent
        self.chosen = self.wrong = self.missing = 0
        self.choose = policy.choose
        self.replica_gone = policy.replica_gone
        self.session_ended = policy.session_ended

    def observe(self, ask: Ask, chosen: Candidate, reason: Reason) -> Trace:
        """Note what is believed before the request itself is written."""
        chain = (ask.prompt or NO_PROMPT).chain
        believed = self._work.index.look(chain).on(self._work.seat(chosen.instance).bit)
        trace = self._policy.observe(ask, chosen, reason)
        return _Judged(self, trace, int(believed * CHUNK / BYTES_PER_TOKEN), self._silent)


class _Judged:
    def __init__(self, judge: Judged, trace: Followed | Trace, believed: int, silent: bool) -> None:
        self._judge, self._trace, self._believed, self._silent = judge, trace, believed, silent

    def first_byte(self, now: float) -> None:
        """As the policy wishes."""
        self._trace.first_byte(now)

    def ended(self, now: float, outcome: Outcome) -> None:
        """Count what was missing."""
        judge, missing = self._judge, self._believed - (outcome.cached_tokens or 0)
        judge.chosen += 1
        judge.missing += max(0, missing)
        judge.wrong += missing > MISSING
        self._trace.ended(now, Outcome(outcome.served) if self._silent else outcome)


class TellingFleet(Simulation):
    """A simulation whose replicas tell of their caches."""

    informed: Informed | None = None

    def add(self, slowness: float = 1.0) -> Station:
        """A replica joins."""
        station = super().add(slowness)
        station.engine._cache = TellingCache(self._model.capacity)
        return station

    def _advance(self, station: Station) -> None:
        super()._advance(station)
        cache = station.engine._cache
        assert isinstance(cache, TellingCache)
        events, cache.events = cache.events, []
        if self.informed is not None and events:
            self.informed.listen(station.instance)
            self.informed.told(station.instance, events, self.now)


def run(row: Row, seed: int, named: bool, events: bool, silent: bool) -> tuple[Judged, float, float]:
    """Run one row; return the judge, the row's measure and the share of cached tokens."""
    work = Work()
    informed = Informed(work) if events else None
    judge = Judged(informed or work, work, silent)
    fleet = TellingFleet(judge, row.model, row.replicas)
    fleet.informed = informed
    if informed is not None:
        for station in fleet.stations:
            informed.listen(station.instance)
    scene = Scene(fleet, seed, named, row.structured)
    row.fill(scene)
    fleet.run(row.until)
    return judge, row.measure(scene), fleet.cached / fleet.prompted


def main(argv: Sequence[str] = ()) -> int:
    """Print the table for the rows named, or for those with small caches."""
    print(f"{'row':14}{'ids':5}{'events':8}{'usage':8}{'wrong':>8}{'missing':>9}{'cached':>8}{'seconds':>9}")
    for name in argv or ("pressure", "gap-pressure"):
        for named in (True, False):
            for events, silent in ((False, False), (True, False), (True, True)):
                row = evolve(BY_NAME[name])
                judge, measure, cached = run(row, 1, named, events, silent)
                print(
                    f"{name:14}{'yes' if named else 'no':5}{'yes' if events else 'no':8}"
                    f"{'silent' if silent else 'told':8}{judge.wrong / judge.chosen:8.1%}"
                    f"{judge.missing / judge.chosen:9.0f}{cached:8.1%}{measure:9.1f}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
