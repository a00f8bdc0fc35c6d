"""The loop: clients, a router reduced to its policy, and engines, on one simulated clock."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Generator, Iterable, Sequence

from attrs import define, evolve, field, frozen

from ..core.policies.gate import Gate
from ..core.policies.vocabulary import Ask, Outcome, Policy, Trace
from ..core.sessions import Pin, Pins
from ..core.waiting import Hold, WaitingRoom
from .engine import BlockCache, Engine, EngineModel, Job
from .text import Text

#: Seconds after which a client resends what a lost replica took with it.
RETRY_AFTER = 1.0

#: Seconds between looks at those who wait, beside every look an event gives.
TICK = 1.0


@frozen
class Wait:
    """An actor does nothing for some seconds."""

    seconds: float


@frozen
class Turn:
    """An actor sends a request and waits for the whole answer.

    :ivar session: the id it sends, or None.
    :ivar final: whether it says that this was the last turn.
    """

    text: Text
    output: int
    session: str | None
    final: bool = False


@frozen
class Together:
    """An actor starts others and waits until all are done."""

    actors: tuple[Actor, ...]


Step = Wait | Turn | Together
Actor = Generator[Step, None, None]


@define(eq=False)
class Station:
    """One replica: the candidate a policy sees, and the engine behind it."""

    instance: str
    engine: Engine
    outstanding: int = 0
    alive: bool = True
    wake: float | None = None
    jobs: dict[Job, None] = field(factory=dict)
    served: int = 0


@define(eq=False)
class _Running:
    actor: Actor
    parent: _Group | None
    started: float


@define(eq=False)
class _Group:
    waiter: _Running
    left: int


@define(eq=False)
class _Request:
    turn: Turn
    sender: _Running
    ask: Ask
    station: Station | None = None
    trace: Trace | None = None
    pin: Pin | None = None


class Simulation:
    """Runs actors against a fleet of ``replicas`` until nothing is left to do, or until a given time.

    :param slowness: how many times slower than the model each replica is; 1 where it says nothing.
    :param pooled: whether all replicas share one cache without limit, for free: the bound.
    :param reports: whether replicas tell a gate what their caches hold.
    :param max_hold: seconds a gate may hold a request.
    :ivar now: simulated seconds.
    :ivar held: requests that had to wait at the router.
    """

    def __init__(
        self,
        policy: Policy,
        model: EngineModel,
        replicas: int,
        slowness: Sequence[float] = (),
        pooled: bool = False,
        session_ttl: float = 600.0,
        max_hold: float = float("inf"),
        reports: bool = True,
    ) -> None:
        self.now = 0.0
        self.policy = policy
        self._model = model
        self._pool = BlockCache(sys.maxsize) if pooled else None
        self._pins = Pins(session_ttl)
        self._events: list[tuple[float, int, object]] = []
        self._serial = 0
        self._lives = 0
        self._gate = policy if isinstance(policy, Gate) else None
        self._waiting: WaitingRoom[_Request] = WaitingRoom(1_000_000)
        self._max_hold = max_hold
        self._reports = reports
        self._ticking = False
        self.held = 0
        self.stations: tuple[Station, ...] = ()
        self.prompted = 0
        self.cached = 0
        self.turns: list[float] = []
        for at in range(replicas):
            self.add(slowness[at] if at < len(slowness) else 1.0)

    # The fleet

    def add(self, slowness: float = 1.0) -> Station:
        """A replica joins, empty."""
        self._lives += 1
        station = Station(f"r{self._lives}", Engine(self._model, slowness, self._pool))
        if self._gate is not None and self._reports:
            self._gate.report_capacity(station.instance, self._model.capacity)
        self.stations = (*self.stations, station)
        return station

    def lose(self, station: Station) -> None:
        """A replica dies with everything in it; its clients resend."""
        station.alive = False
        self.stations = tuple(other for other in self.stations if other is not station)
        lost = [job.owner for job in station.jobs]
        station.jobs.clear()
        for request in lost:
            assert isinstance(request, _Request)
            self._settle(request, Outcome(False))
            self._later(self.now + RETRY_AFTER, request)
        self.policy.replica_gone(station.instance)
        self._pins.release_home(station.instance)

    # Actors

    def spawn(self, actor: Actor) -> None:
        """Start an actor now."""
        self._later(self.now, _Running(actor, None, self.now))

    def at(self, when: float, actor: Actor) -> None:
        """Start an actor later."""
        self._later(when, _Running(actor, None, when))

    def run(self, until: float = float("inf")) -> None:
        """Let time pass."""
        events = self._events
        while events and events[0][0] <= until:
            self.now, _, what = heapq.heappop(events)
            if isinstance(what, Station):
                if what.alive and what.wake == self.now:
                    self._advance(what)
            elif isinstance(what, _Running):
                self._resume(what)
            elif isinstance(what, _Request):
                self._enter(what)
            else:
                self._tick()

    def _later(self, when: float, what: object) -> None:
        self._serial += 1
        heapq.heappush(self._events, (when, self._serial, what))

    def _resume(self, running: _Running) -> None:
        try:
            step = next(running.actor)
        except StopIteration:
            group = running.parent
            if group is not None:
                group.left -= 1
                if not group.left:
                    self._later(self.now, group.waiter)
            return
        match step:
            case Wait(seconds):
                self._later(self.now + seconds, running)
            case Turn(text, session=session):
                ask = Ask(session, None, self.now, text.prompt() if self.policy.wants_prompt else None)
                self._enter(_Request(step, running, ask))
            case Together(actors):
                group = _Group(running, len(actors))
                for actor in actors:
                    self._later(self.now, _Running(actor, group, self.now))

    # Requests

    def _enter(self, request: _Request) -> None:
        """Send a request on, or let it wait where there is a gate and it says so."""
        gate = self._gate
        request.ask = evolve(request.ask, now=self.now)
        if gate is None or gate.admits(request.ask, self.stations, len(self._waiting)):
            self._send(request)
            return
        self.held += 1
        rank = gate.rank(request.ask)
        self._waiting.enter(request, Hold.WORKING_SET, self.now, self._max_hold, rank)
        self._start_ticking()

    def _start_ticking(self) -> None:
        if not self._ticking and len(self._waiting):
            self._ticking = True
            self._later(self.now + TICK, None)

    def _tick(self) -> None:
        self._ticking = False
        for waiter in self._waiting.expire(self.now):
            self._send(waiter.what)
        self._release()
        self._start_ticking()

    def _release(self) -> None:
        """Send on those for whom there is room now, in order."""
        gate = self._gate
        if gate is None:
            return

        def admits(request: _Request) -> bool:
            request.ask = evolve(request.ask, now=self.now)
            return gate.admits(request.ask, self.stations)

        while (waiter := self._waiting.take(admits)) is not None:
            self._send(waiter.what)

    def _send(self, request: _Request) -> None:
        """Route one request the way the fleet does: pin, choice, observation, lease."""
        turn = request.turn
        pin = None if turn.session is None else self._pins.find(turn.session, self.now)
        ask = Ask(turn.session, None if pin is None else pin.home, self.now, request.ask.prompt)
        position, reason = self.policy.choose(ask, self.stations)
        station = self.stations[position]
        if turn.session is not None and (pin is None or pin.home != station.instance):
            pin = self._pins.place(turn.session, station.instance, self.now)
        request.ask, request.station, request.pin = ask, station, pin
        request.trace = self.policy.observe(ask, station, reason)
        station.outstanding += 1
        station.served += 1
        if pin is not None:
            pin.inflight += 1
        job = Job(turn.text.tokens, turn.output, tuple(turn.text.blocks), request)
        station.jobs[job] = None
        station.engine.submit(job, self.now)
        self._arm(station)

    def _arm(self, station: Station) -> None:
        if station.engine.wake != station.wake:
            station.wake = station.engine.wake
            if station.wake is not None:
                self._later(station.wake, station)

    def _advance(self, station: Station) -> None:
        station.wake = None
        first, ended = station.engine.advance(self.now)
        self._tell_first(first)
        for job in ended:
            del station.jobs[job]
            request = job.owner
            assert isinstance(request, _Request)
            self.prompted += job.prompt
            self.cached += job.cached
            self.turns.append(self.now)
            self._settle(request, Outcome(True, job.prompt, job.cached, job.output))
            if request.turn.final and request.turn.session is not None:
                self._pins.release(request.turn.session)
                self.policy.session_ended(request.turn.session)
            self._later(self.now, request.sender)
        self._arm(station)
        if ended and len(self._waiting):
            self._release()

    def _tell_first(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            request = job.owner
            assert isinstance(request, _Request)
            if request.trace is not None:
                request.trace.first_byte(self.now)

    def _settle(self, request: _Request, outcome: Outcome) -> None:
        """Give back what the request held, once."""
        if request.station is not None:
            request.station.outstanding -= 1
        if request.pin is not None:
            request.pin.inflight -= 1
            self._pins.touch(request.pin, self.now)
        if request.trace is not None:
            request.trace.ended(self.now, outcome)
        request.station = request.trace = request.pin = None
