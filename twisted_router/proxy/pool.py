"""Connections to one replica: idle ones kept warm, new ones made, all of them closed in the end."""

from __future__ import annotations

from errno import EMFILE, ENFILE
from typing import cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.error import ConnectError, ConnectionRefusedError, DNSLookupError, TimeoutError
from twisted.internet.interfaces import IDelayedCall, IReactorTime, IStreamClientEndpoint
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from ..errors import Overloaded, ReplicaConnectTimedOut, ReplicaRefused, ReplicaUnreachable
from .wire import Wire

#: Seconds an idle connection is kept. Model servers close theirs after 5 (uvicorn's default), and a request
#: that meets such a close on its way is lost.
IDLE_SECONDS = 4.0
#: Seconds without reuse after a replica dropped a connection that was used again. Such a replica answers one
#: request a connection, whatever it promises, and a request cannot be sent a second time to find out.
DISTRUST_SECONDS = 30.0
#: Idle connections kept for one replica at most.
IDLE_CAP = 1024


class Pool:
    """Hands out connections to one replica, the most recently used first.

    :param connect_timeout: seconds a new connection may take, name look-up included.
    :param name: how the replica is called in errors.
    """

    def __init__(
        self, clock: IReactorTime, endpoint: IStreamClientEndpoint, connect_timeout: float, name: str
    ) -> None:
        self._clock = clock
        self._endpoint = endpoint
        self._timeout = connect_timeout
        self._name = name
        self._idle: list[tuple[Wire, float]] = []
        self._open: set[Wire] = set()
        self._timer: IDelayedCall | None = None
        self._distrusted_until = 0.0
        self._closed = False
        self._waiting: list[Deferred[None]] = []
        self._factory = Factory.forProtocol(self._build)
        self._factory.noisy = False

    def take(self) -> Wire | None:
        """Return an idle connection that still works, or None."""
        too_old = self._clock.seconds() - IDLE_SECONDS
        while self._idle:
            wire, since = self._idle.pop()
            if since >= too_old and wire.is_fresh():
                return wire
            wire.abort()
        return None

    def connect(self) -> Deferred[Wire]:
        """Open a new connection.

        Fails with ``ReplicaRefused`` when nobody listens, ``ReplicaUnreachable`` for anything else that keeps
        the connection from being made within the time, ``Overloaded`` when the router lacks a descriptor for
        it. Cancelling it gives up.
        """
        connecting = cast("Deferred[Wire]", self._endpoint.connect(self._factory))
        connecting.addTimeout(self._timeout, self._clock)
        return connecting.addCallbacks(self._admit, self._explain)

    def close(self) -> Deferred[None]:
        """Close every connection, busy ones too. Fires when all of them are gone."""
        self._closed = True
        self._idle.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gone: Deferred[None] = Deferred()
        self._waiting.append(gone)
        for wire in tuple(self._open):
            wire.stopProducing()
        self._tell_closed()
        return gone

    def _admit(self, wire: Wire) -> Wire:
        """Let a connection live that was made before the pool was closed."""
        if self._closed:
            wire.abort()
            raise ReplicaUnreachable(f"replica {self._name} is unreachable: it is being let go")
        return wire

    def _tell_closed(self) -> None:
        if not self._open:
            waiting, self._waiting = self._waiting, []
            for gone in waiting:
                gone.callback(None)

    def _build(self) -> Wire:
        wire = Wire(self._went_idle, self._lost)
        self._open.add(wire)
        return wire

    def _went_idle(self, wire: Wire) -> None:
        now = self._clock.seconds()
        if self._closed or len(self._idle) >= IDLE_CAP or now < self._distrusted_until:
            wire.abort()
            return
        self._idle.append((wire, now))
        if self._timer is None:
            self._timer = self._clock.callLater(IDLE_SECONDS, self._expire)

    def _lost(self, wire: Wire) -> None:
        self._open.discard(wire)
        self._idle = [entry for entry in self._idle if entry[0] is not wire]
        if wire.stale:
            self._distrusted_until = self._clock.seconds() + DISTRUST_SECONDS
            idle, self._idle = self._idle, []
            for unsafe, _ in idle:
                unsafe.abort()
        self._tell_closed()

    def _expire(self) -> None:
        """Close what has been idle too long; the oldest are in front."""
        self._timer = None
        too_old = self._clock.seconds() - IDLE_SECONDS
        while self._idle and self._idle[0][1] <= too_old:
            self._idle.pop(0)[0].abort()
        if self._idle:
            self._timer = self._clock.callLater(self._idle[0][1] - too_old, self._expire)

    def _explain(self, failure: Failure) -> Failure:
        if failure.check(CancelledError):
            return failure
        if failure.check(ConnectionRefusedError):
            return Failure(
                ReplicaRefused(f"replica {self._name} refused the connection: nobody listens there")
            )
        if failure.check(TimeoutError, DeferredTimeout):
            late = f"no connection within {self._timeout:g} seconds"
            return Failure(ReplicaConnectTimedOut(f"replica {self._name} is unreachable: {late}"))
        if isinstance(failure.value, ConnectError) and failure.value.osError in (EMFILE, ENFILE):
            return Failure(Overloaded("the router has run out of file descriptors; try again later"))
        if failure.check(DNSLookupError):
            why = "its host name cannot be resolved"
        elif failure.check(ConnectError):
            why = failure.getErrorMessage().rstrip(".")
        else:
            why = f"{type(failure.value).__name__}: {failure.getErrorMessage()}"
        return Failure(ReplicaUnreachable(f"replica {self._name} is unreachable: {why}", why))
