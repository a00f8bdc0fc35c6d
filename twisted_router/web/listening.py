"""The listening socket: accepts a few at a time, and waits when accepting fails."""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IDelayedCall, IProtocolFactory, IReactorTime
from twisted.internet.tcp import Port

#: Seconds without accepting after it failed: the socket stays readable, and trying at once again would spin.
PAUSE = 0.1


class PatientPort(Port):
    """Accepts at most ``at_once`` connections in one turn of the reactor.

    Twisted takes a hundred and more before it looks at the first, which can use up every descriptor before
    anybody is turned away.
    """

    def __init__(
        self, port: int, factory: IProtocolFactory, backlog: int, interface: str, reactor: Any, at_once: int
    ) -> None:
        super().__init__(port, factory, backlog, interface, reactor)
        self._clock: IReactorTime = reactor
        self._at_once = at_once
        self._in_vain = 0
        self._waiting: IDelayedCall | None = None

    def doRead(self) -> None:
        """Accept; after two turns in vain, none for a while. One is a client that left meanwhile."""
        self.numberAccepts = self._at_once
        before = self.sessionno
        super().doRead()
        if self.sessionno != before:
            self._in_vain = 0
            return
        self._in_vain += 1
        if self._in_vain > 1 and self.connected and self._waiting is None:
            self.stopReading()
            self._waiting = self._clock.callLater(PAUSE, self._again)

    def _again(self) -> None:
        self._waiting = None
        self.startReading()

    def connectionLost(self, reason: Any) -> None:
        """It is closed."""
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        super().connectionLost(reason)
