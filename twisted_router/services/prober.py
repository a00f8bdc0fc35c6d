"""Asks every replica for its health, all at once, round after round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, TimeoutError, maybeDeferred, succeed
from twisted.internet.error import ConnectionRefusedError, TCPTimedOutError
from twisted.internet.error import TimeoutError as ConnectTimeout
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from ..core.effects import Event, ProbeAnswered, ProbeSilent, Silence
from ..core.fleet import Fleet
from ..core.members import Member
from ..errors import ReplicaConnectTimedOut, ReplicaRefused, ReplicaUnreachable


class ProbeResponse(Protocol):
    """What a probe needs of an HTTP response."""

    code: int

    def discard(self) -> object:
        """Throw the body away; fires at its end, and cancelling aborts the connection."""


class ProbeClient(Protocol):
    """What a probe needs of an HTTP client that is bound to one replica."""

    def request(self, method: bytes, target: bytes, /) -> Deferred[ProbeResponse]:
        """Fire with the response once its head is complete; cancelling aborts the connection."""


#: Fires with the HTTP status of one replica's health answer, or fails with what kept it from answering.
Probe = Callable[[Member], Deferred[int]]


def ask_health(client: ProbeClient, path: bytes) -> Deferred[int]:
    """Fire with the status that ``GET path`` is answered with, once its body has been thrown away."""

    def answered(response: ProbeResponse) -> Deferred[int]:
        return maybeDeferred(response.discard).addCallback(lambda _: response.code)

    return client.request(b"GET", path).addCallback(answered)


def probe_timeout(interval: float, connect_timeout: float) -> float:
    """Seconds one probe may take: the longer of the health interval and the connect timeout.

    At the manual's defaults both are 5 s, so a hang is a miss within one interval. A shorter interval does
    not shorten the patience: an engine in the middle of a long prefill answers late and is not dead.
    """
    return max(interval, connect_timeout)


def how_silent(failure: Failure) -> Silence:
    """Name the way in which a probe got no answer."""
    if failure.check(ConnectionRefusedError, ReplicaRefused):
        return Silence.REFUSED
    if failure.check(TimeoutError, ConnectTimeout, TCPTimedOutError, ReplicaConnectTimedOut):
        return Silence.TIMED_OUT
    return Silence.BROKEN


class Prober(Service):
    """Starts a probe of every replica each ``interval`` seconds and reports each verdict as an event.

    A replica whose last probe is still under way is not asked a second time, and nobody waits for it.

    :param probe: asks one replica; bounded here by ``timeout`` seconds.
    :param apply: takes the events; what follows from them is not this room's concern.
    :param clock: only wakes us; ``now`` is the monotonic time that pins are compared with.
    """

    _log = Logger()

    def __init__(
        self,
        fleet: Fleet,
        probe: Probe,
        apply: Callable[[Event], object],
        clock: IReactorTime,
        now: Callable[[], float],
        *,
        interval: float,
        timeout: float,
    ) -> None:
        self._fleet = fleet
        self._probe = probe
        self._apply = apply
        self._clock = clock
        self._now = now
        self._interval = interval
        self._timeout = timeout
        self._running: dict[str, Deferred[None]] = {}
        self._loop = LoopingCall(self._round)
        self._loop.clock = clock

    def startService(self) -> None:
        """Probe everybody at once and then every interval."""
        super().startService()
        self._loop.start(self._interval).addErrback(self._swallow, "the probing loop stopped")

    def stopService(self) -> Deferred[None]:
        """Stop asking; probes under way are cancelled and not reported."""
        super().stopService()
        if self._loop.running:
            self._loop.stop()
        for running in tuple(self._running.values()):
            running.cancel()
        return succeed(None)

    def probe_now(self, instance: str) -> None:
        """Ask one replica without waiting for the next round; nothing happens while it is being asked."""
        if not self.running:
            return
        for member in self._fleet.members():
            if member.instance == instance and instance not in self._running:
                self._start(member)
                return

    def _round(self) -> None:
        """Start one probe per replica; never raises and never waits, either would stop the loop for good."""
        try:
            for member in tuple(self._fleet.members()):
                if member.instance in self._running:
                    self._log.debug("{name} is still being probed", name=member.name)
                else:
                    self._start(member)
            self._fleet.sweep(self._now())
        except Exception:
            self._log.failure("a round of probes was cut short")

    def _start(self, member: Member) -> None:
        instance = member.instance
        asked = maybeDeferred(self._probe, member).addTimeout(self._timeout, self._clock)
        running = asked.addCallbacks(
            lambda status: self._report(ProbeAnswered(instance, status)),
            lambda failure: self._failed(instance, failure),
        ).addErrback(self._swallow, "a probe's verdict could not be applied")
        self._running[instance] = running
        running.addBoth(self._ended, instance)

    def _ended(self, _: object, instance: str) -> None:
        self._running.pop(instance, None)

    def _failed(self, instance: str, failure: Failure) -> None:
        if not failure.check(CancelledError):
            how, error = how_silent(failure), failure.value
            why = error.why if how is Silence.BROKEN and isinstance(error, ReplicaUnreachable) else ""
            self._report(ProbeSilent(instance, how, why))

    def _report(self, event: Event) -> None:
        if self.running:
            self._apply(event)

    def _swallow(self, failure: Failure, what: str) -> None:
        self._log.failure("{what}", failure, what=what)
