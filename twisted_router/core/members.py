"""One replica as the data path sees it: routable or not, and how many requests it has."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field, frozen

from .effects import NO_USAGE, Phase, Usage
from .policies.vocabulary import Ask, Outcome, Reason, Trace
from .sessions import Pin, Pins
from .snapshot import ReplicaView


def _nobody() -> None:
    """Nobody waits for a static replica to become idle."""


@define(eq=False)
class Member:
    """One replica in the fleet.

    :ivar instance: names this life of it; a static replica has one life, named like itself.
    :ivar url: ``scheme://host:port``, no trailing slash.
    :ivar ready: probes say it can serve.
    :ivar seen: it has answered well at least once.
    :ivar good: seconds (monotonic) of the last 2xx answer it completed for a client, or None.
    :ivar since: seconds (monotonic) at which its phase last changed, or None.
    :ivar idle: called when a draining replica has given back its last lease.
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
    since: float | None = None
    leases: set[Lease] = field(factory=set, repr=False)
    idle: Callable[[], None] = field(default=_nobody, repr=False)
    _shown: Phase = Phase.STARTING

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

    def turn(self, now: float) -> None:
        """Date a change of phase."""
        phase = self.phase
        if phase is not self._shown:
            self._shown = phase
            self.since = now

    def view(self, now: float) -> ReplicaView:
        """Freeze it as it is at ``now``."""
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
            age=None if self.since is None else now - self.since,
        )


@frozen(eq=False)
class Choice:
    """A replica picked for one request, and the rule that picked it.

    :ivar trace: the policy's note on this request, to be told how it goes; None when it does not care.
    """

    member: Member
    reason: Reason
    ask: Ask
    pin: Pin
    trace: Trace | None = None


class Lease:
    """One request's share of a replica's load, given back exactly once however the request ends."""

    __slots__ = ("_clock", "_pins", "member", "pin", "trace")

    def __init__(self, choice: Choice, pins: Pins, clock: Callable[[], float]) -> None:
        self.member = choice.member
        self.pin = choice.pin
        self.trace = choice.trace
        self._pins = pins
        self._clock = clock
        self.member.leases.add(self)
        self.pin.inflight += 1

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *unused: object) -> None:
        self.release()

    def release(self, *, good: bool = False, usage: Usage = NO_USAGE) -> None:
        """Give the share back; a second call does nothing.

        :param good: a 2xx answer was completed.
        :param usage: what the answer said of its tokens.
        """
        member = self.member
        if self not in member.leases:
            return
        member.leases.discard(self)
        self.pin.inflight -= 1
        now = self._clock()
        self._pins.touch(self.pin, now)
        if good:
            member.good = now
        if self.trace is not None:
            self.trace.ended(now, Outcome(good, *usage))
        if member.draining and not member.leases:
            member.idle()
