"""All replicas and leases: the only mutable truth of the router. No clock, no sockets, no Twisted."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..errors import Conflict, NoReplicaReady, QueueFull
from . import reports
from .effects import (
    ConnectRefused,
    Effects,
    Event,
    ProbeAnswered,
    ProbeNow,
    ProbeSilent,
    Routed,
    SessionFinished,
    Silence,
    Tick,
    Unrouted,
)
from .members import Choice, Lease, Member
from .policies.gate import Gate
from .policies.vocabulary import Affinity, Ask, Policy, Reason
from .records import FleetRecord, PinRecord
from .sessions import Pin, Pins
from .snapshot import FleetView
from .supervision import NO_LAUNCHING, Launching, Supervision
from .waiting import Hold
from .wish import Wish

#: Probes a replica may miss in a row before it leaves rotation (manual: Readiness and Failover).
MISSES_ALLOWED = 2


def _nobody() -> None:
    """Nobody performs effects."""


class Fleet:
    """Owns the replicas, their readiness, the pins and every lease.

    :param veto: seconds for which a completed 2xx answer excuses a probe that *timed out*: a busy engine is
        not a dead one. 0 turns the excuse off.
    :param launching: what may be launched.
    :param max_outstanding: requests one replica may have at once; None sets no limit.
    :ivar wake: called when a draining replica has given back its last lease, so that something is due;
        whoever performs effects sets it to apply a ``Tick``.
    """

    def __init__(
        self,
        policy: Policy,
        pins: Pins,
        *,
        veto: float,
        launching: Launching = NO_LAUNCHING,
        max_outstanding: int | None = None,
    ) -> None:
        self._policy = policy
        self._gate = policy if isinstance(policy, Gate) else None
        self._most = max_outstanding
        self._pins = pins
        self._veto = veto
        self._static: dict[str, Member] = {}
        self._members: dict[str, Member] = {}
        self._homes: frozenset[str] = frozenset()
        self._routable: tuple[Member, ...] = ()
        self._routed = self._hits = self._rejected = 0
        self._slots = Supervision(launching, veto, self._idle)
        self.wake: Callable[[], None] = _nobody

    # Routing

    @property
    def is_gated(self) -> bool:
        """Whether the policy may hold requests while the caches are full."""
        return self._gate is not None

    @property
    def wants_prompt(self) -> bool:
        """Whether the policy reads a request's text, and what becomes of it."""
        return self._policy.wants_prompt

    def pick(self, wish: Wish, now: float) -> Choice:
        """Choose a replica for one request and pin its conversation there.

        :raises NoReplicaReady: nothing is routable.
        :raises QueueFull: everything that is routable is at ``max_outstanding``.
        """
        candidates = self._open()
        if not candidates:
            self.reject()
            if self._routable:
                raise QueueFull(f"every routable replica has {self._most} requests (--max-outstanding)")
            raise NoReplicaReady("no serving replica is currently routable; GET /health shows each one")
        pin = None if wish.named is None else self._pins.find(wish.named, now)
        ask = Ask(wish.named, None if pin is None else pin.home, now, wish.prompt, wish.streams)
        position, reason = self._policy.choose(ask, candidates)
        self._routed += 1
        if reason.affinity is Affinity.HIT:
            self._hits += 1
        return self._settle(wish.session, ask, candidates[position], reason, pin)

    def reject(self) -> None:
        """Count a request that gets no replica."""
        self._rejected += 1

    def pick_other(self, refused: Choice, now: float) -> Choice | None:
        """Choose again after a refused connection, or None when no other replica is routable."""
        others = tuple(member for member in self._open() if member is not refused.member)
        if not others:
            return None
        if refused.reason.affinity is Affinity.HIT:
            self._hits -= 1
        refused.member.routed -= 1
        ask = Ask(refused.ask.session, None, now, refused.ask.prompt, refused.ask.streams)
        position, _ = self._policy.choose(ask, others)
        return self._settle(refused.pin.session, ask, others[position], Reason.CONNECT_REFUSED, refused.pin)

    def report_capacity(self, instance: str, tokens: int) -> None:
        """Take note of how many tokens a replica's cache holds; only a gate cares."""
        if self._gate is not None:
            self._gate.report_capacity(instance, tokens)

    def must_wait(self, wish: Wish, now: float, ahead: int) -> Hold | None:
        """Tell why a request had better wait before it is picked for, or None.

        :param ahead: how many wait already; who comes later does not overtake them.
        """
        candidates = self._open()
        if not candidates:
            return Hold.COLD
        if self._gate is None:
            return Hold.COLD if ahead else None
        ask = Ask(wish.named, None, now, wish.prompt, wish.streams)
        return None if self._gate.admits(ask, candidates, ahead) else Hold.WORKING_SET

    def rank(self, wish: Wish, now: float) -> int:
        """The order among those who wait: smaller ones first, equal ones as they came."""
        if self._gate is None:
            return 0
        return self._gate.rank(Ask(wish.named, None, now, wish.prompt, wish.streams))

    def _open(self) -> tuple[Member, ...]:
        """The routable replicas that may be given one more request."""
        most = self._most
        if most is None:
            return self._routable
        return tuple(member for member in self._routable if member.outstanding < most)

    def _settle(self, session: str, ask: Ask, member: Member, reason: Reason, pin: Pin | None) -> Choice:
        member.routed += 1
        if pin is None or pin.home != member.instance:
            pin = self._pins.place(session, member.instance, ask.now)
        return Choice(member, reason, ask, pin, self._policy.observe(ask, member, reason))

    def lease(self, choice: Choice, clock: Callable[[], float]) -> Lease:
        """Count one request as load of the chosen replica until the lease is released."""
        return Lease(choice, self._pins, clock)

    # What happens to replicas

    def add_static(self, name: str, url: str) -> None:
        """Take in a replica that already runs; it is offered work from the start (manual: Readiness)."""
        self._static[name] = Member(name, name, url, ready=True)
        self._refresh()

    def members(self) -> Iterable[Member]:
        """Every replica that is not known to be gone, static ones first."""
        return self._members.values()

    def apply(self, event: Event, now: float) -> Effects:
        """Take note of what happened; return what has to be done about it, in order.

        :raises Conflict, NotFound, ShuttingDown: a person asked (``Grow``, ``ReleaseSlot``) for what cannot
            be; nothing has changed.
        """
        match event:
            case ProbeAnswered(instance, status):
                return self._probed(instance, None if status == 200 else f"status {status}", now)
            case ProbeSilent(instance, how, why):
                member = self._members.get(instance)
                if member is None or (how is Silence.TIMED_OUT and self._is_excused(member, now)):
                    return ()
                return self._probed(instance, f"{how.value}: {why}" if why else how.value, now)
            case ConnectRefused(instance):
                if instance not in self._members:
                    return ()
                return (*self._probed(instance, Silence.REFUSED.value, now), ProbeNow(instance))
            case SessionFinished(session):
                self._pins.release(session)
                self._policy.session_ended(session)
                return ()
            case Tick():
                return self._supervised(self._slots.tick(now), now)
            case _:
                return self._supervised(self._slots.apply(event, now), now)

    def next_deadline(self) -> float | None:
        """Return when the next ``Tick`` is needed, in monotonic seconds; None when nothing is waited for."""
        return self._slots.next_deadline()

    def sweep(self, now: float) -> int:
        """Forget expired pins; return how many there were."""
        return self._pins.sweep(now)

    def snapshot(self, now: float) -> FleetView:
        """Freeze the whole fleet for whoever wants to show it."""
        return FleetView(
            (
                *(member.view(now) for member in self._static.values()),
                *reports.replicas(self._slots, now),
            ),
            len(self._pins),
            self._routed,
            self._hits,
            self._rejected,
            reports.capacity(self._slots, now),
        )

    # What persons and a start of the router ask for

    def retirable(self, name: str) -> str:
        """Return the instance that ``Retire`` would end; who waits for it, waits for its ``Retired``.

        :raises NotFound: there is no such replica.
        :raises Conflict: it is not the router's to stop, or its slot is reserved already.
        """
        if name in self._static:
            raise Conflict(f"replica {name} was not launched by this router, which does not stop it")
        return self._slots.retirable(name)

    def to_adopt(self) -> tuple[Member, ...]:
        """Return the reclaimed replicas that ``Adopted`` or ``Unreachable`` is still awaited for."""
        return self._slots.to_adopt()

    def plan_initial(self, now: float) -> Effects:
        """Launch what is missing at the start; adopted replicas count."""
        return self._supervised(self._slots.plan_initial(now), now)

    def record(self, now: float) -> FleetRecord:
        """Freeze what a later start has to know about launched replicas."""
        return reports.record(self._slots, now)

    def restore_times(self, record: FleetRecord) -> None:
        """Take over how long launches took; its slots come back one by one, as ``Reclaimed``."""
        for time in record.launch_times:
            self._slots.launch_times[time.host, time.model] = time.seconds

    def restore_pins(self, records: Iterable[PinRecord], now: float) -> int:
        """Pin conversations again whose home is still here; return how many there are.

        To be called after every ``Reclaimed`` and before any request.
        """
        for record in sorted(records, key=lambda record: record.idle):
            if record.home in self._homes:
                self._pins.restore(record.session, record.home, now - record.idle)
        self._pins.sweep(now)
        return len(self._pins)

    # Inside

    def _probed(self, instance: str, miss: str | None, now: float) -> Effects:
        """Count a probe's verdict; ``miss`` says what was wrong, None that it is healthy."""
        member = self._members.get(instance)
        if member is None:
            return ()
        if miss is None:
            member.misses = 0
            if member.owned:
                return () if member.ready else self._supervised(self._slots.answered(instance, now), now)
            return self._healthy(member, now)
        member.misses += 1
        if not member.ready or member.misses < MISSES_ALLOWED:
            return ()
        if member.owned:
            return self._supervised(self._slots.fell_silent(instance, miss, now), now)
        member.ready = False
        member.since = now
        self._refresh()
        return (Unrouted(member.name, miss),)

    def _healthy(self, member: Member, now: float) -> Effects:
        if not (member.seen and member.ready):
            member.since = now
        member.seen = True
        if member.ready:
            return ()
        member.ready = True
        self._refresh()
        return (Routed(member.name),)

    def _is_excused(self, member: Member, now: float) -> bool:
        return self._veto > 0 and member.good is not None and now - member.good <= self._veto

    def _idle(self) -> None:
        self.wake()

    def _supervised(self, effects: Effects, now: float) -> Effects:
        """Let the data path see what supervision has changed."""
        if effects:
            for member in self._slots.members():
                member.turn(now)
            self._refresh()
        return effects

    def _refresh(self) -> None:
        """Work out who is there and who is routable; pins never name a replica that is going or gone."""
        members = (*self._static.values(), *self._slots.members())
        self._members = {member.instance: member for member in members}
        self._routable = tuple(member for member in members if member.ready and not member.draining)
        homes = frozenset(member.instance for member in members if not member.draining)
        for gone in self._homes - homes:
            self._pins.release_home(gone)
            self._policy.replica_gone(gone)
        self._homes = homes
