"""All replicas and leases: the only mutable truth of the router. No clock, no sockets, no Twisted."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import define, field, frozen

from ..errors import NoReplicaReady
from .effects import (
    ConnectRefused,
    Effects,
    Event,
    Phase,
    ProbeAnswered,
    ProbeNow,
    ProbeSilent,
    Routed,
    SessionFinished,
    Silence,
    Unrouted,
)
from .policies.vocabulary import Affinity, Ask, Policy, Reason
from .sessions import Pin, Pins
from .snapshot import FleetView, ReplicaView

#: Probes a replica may miss in a row before it leaves rotation (manual: Readiness and Failover).
MISSES_ALLOWED = 2


@define(eq=False)
class Member:
    """One replica in the fleet.

    :ivar instance: names this life of it; a static replica has one life, named like itself.
    :ivar url: ``scheme://host:port``, no trailing slash.
    :ivar ready: probes say it can serve.
    :ivar seen: it has answered well at least once.
    :ivar good: seconds (monotonic) of the last 2xx answer it completed for a client, or None.
    """

    name: str
    instance: str
    url: str
    ready: bool
    owned: bool = False
    draining: bool = False
    seen: bool = False
    misses: int = 0
    routed: int = 0
    good: float | None = None
    leases: set[Lease] = field(factory=set, repr=False)

    @property
    def outstanding(self) -> int:
        """Requests dispatched here and not yet finished: the live leases, nothing else."""
        return len(self.leases)

    @property
    def phase(self) -> Phase:
        """The manual's word for where it is in its life."""
        if self.draining:
            return Phase.DRAINING
        if not self.seen:
            return Phase.STARTING
        return Phase.READY if self.ready else Phase.FAILED

    def view(self) -> ReplicaView:
        """Freeze it."""
        return ReplicaView(
            self.name,
            self.instance,
            self.url,
            self.ready,
            self.phase,
            self.draining,
            self.owned,
            self.outstanding,
            self.routed,
        )


@frozen(eq=False)
class Choice:
    """A replica picked for one request, and the rule that picked it."""

    member: Member
    reason: Reason
    ask: Ask
    pin: Pin


class Lease:
    """One request's share of a replica's load, given back exactly once however the request ends."""

    __slots__ = ("_clock", "_pins", "member", "pin")

    def __init__(self, choice: Choice, pins: Pins, clock: Callable[[], float]) -> None:
        self.member = choice.member
        self.pin = choice.pin
        self._pins = pins
        self._clock = clock
        self.member.leases.add(self)
        self.pin.inflight += 1

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *unused: object) -> None:
        self.release()

    def release(self, *, good: bool = False) -> None:
        """Give the share back; ``good`` when a 2xx answer was completed. A second call does nothing."""
        if self not in self.member.leases:
            return
        self.member.leases.discard(self)
        self.pin.inflight -= 1
        now = self._clock()
        self._pins.touch(self.pin, now)
        if good:
            self.member.good = now


class Fleet:
    """Owns the replicas, their readiness, the pins and every lease.

    :param veto: seconds for which a completed 2xx answer excuses a probe that *timed out*: a busy engine is
        not a dead one. 0 turns the excuse off.
    """

    def __init__(self, policy: Policy, pins: Pins, *, veto: float) -> None:
        self._policy = policy
        self._pins = pins
        self._veto = veto
        self._members: dict[str, Member] = {}
        self._routable: tuple[Member, ...] = ()
        self._routed = self._hits = self._rejected = 0

    # Routing

    def pick(self, session: str, known: bool, now: float) -> Choice:
        """Choose a replica for one request and pin its conversation there.

        :param session: the conversation's id, minted for this request where the client named none.
        :param known: whether the client named it.
        :raises NoReplicaReady: nothing is routable.
        """
        if not self._routable:
            self._rejected += 1
            raise NoReplicaReady("no serving replica is currently routable")
        pin = self._pins.find(session, now) if known else None
        ask = Ask(session if known else None, None if pin is None else pin.home, now)
        position, reason = self._policy.choose(ask, self._routable)
        self._routed += 1
        if reason is Reason.PINNED:
            self._hits += 1
        return self._settle(session, ask, self._routable[position], reason, pin, now)

    def pick_other(self, refused: Choice, now: float) -> Choice | None:
        """Choose again after a refused connection, or None when no other replica is routable."""
        others = tuple(member for member in self._routable if member is not refused.member)
        if not others:
            return None
        if refused.reason.affinity is Affinity.HIT:
            self._hits -= 1
        refused.member.routed -= 1
        ask = Ask(refused.ask.session, None, now)
        position, _ = self._policy.choose(ask, others)
        return self._settle(
            refused.pin.session, ask, others[position], Reason.CONNECT_REFUSED, refused.pin, now
        )

    def _settle(
        self, session: str, ask: Ask, member: Member, reason: Reason, pin: Pin | None, now: float
    ) -> Choice:
        member.routed += 1
        if pin is None or pin.home != member.instance:
            pin = self._pins.place(session, member.instance, now)
        self._policy.observe(ask, member, reason)
        return Choice(member, reason, ask, pin)

    def lease(self, choice: Choice, clock: Callable[[], float]) -> Lease:
        """Count one request as load of the chosen replica until the lease is released."""
        return Lease(choice, self._pins, clock)

    # What happens to replicas

    def add_static(self, name: str, url: str) -> None:
        """Take in a replica that already runs; it is offered work from the start (manual: Readiness)."""
        self._members[name] = Member(name, name, url, ready=True)
        self._refresh()

    def members(self) -> Iterable[Member]:
        """Every replica, in the order they came."""
        return self._members.values()

    def apply(self, event: Event, now: float) -> Effects:
        """Take note of what happened; return what has to be done about it."""
        match event:
            case ProbeAnswered(instance, status):
                member = self._members.get(instance)
                if member is None:
                    return ()
                return self._healthy(member) if status == 200 else self._missed(member, f"status {status}")
            case ProbeSilent(instance, how):
                member = self._members.get(instance)
                if member is None or (how is Silence.TIMED_OUT and self._is_excused(member, now)):
                    return ()
                return self._missed(member, how.value)
            case ConnectRefused(instance):
                member = self._members.get(instance)
                if member is None:
                    return ()
                return (*self._missed(member, Silence.REFUSED.value), ProbeNow(instance))
            case SessionFinished(session):
                self._pins.release(session)
        return ()

    def sweep(self, now: float) -> int:
        """Forget expired pins; return how many there were."""
        return self._pins.sweep(now)

    def snapshot(self) -> FleetView:
        """Freeze the whole fleet for whoever wants to show it."""
        return FleetView(
            tuple(member.view() for member in self._members.values()),
            len(self._pins),
            self._routed,
            self._hits,
            self._rejected,
        )

    def _healthy(self, member: Member) -> Effects:
        member.misses = 0
        member.seen = True
        if member.ready:
            return ()
        member.ready = True
        self._refresh()
        return (Routed(member.name),)

    def _missed(self, member: Member, why: str) -> Effects:
        member.misses += 1
        if not member.ready or member.misses < MISSES_ALLOWED:
            return ()
        member.ready = False
        self._refresh()
        return (Unrouted(member.name, why),)

    def _is_excused(self, member: Member, now: float) -> bool:
        return self._veto > 0 and member.good is not None and now - member.good <= self._veto

    def _refresh(self) -> None:
        self._routable = tuple(
            member for member in self._members.values() if member.ready and not member.draining
        )
