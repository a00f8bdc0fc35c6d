"""Where scripted replicas phone home to: their reports and their ends, as Deferreds."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory, connectionDone
from twisted.protocols.basic import LineReceiver
from twisted.python.failure import Failure


class Caller(LineReceiver):
    """One process that phoned home."""

    delimiter = b"\n"
    MAX_LENGTH = 1 << 20

    def __init__(self, home: Home) -> None:
        self._home = home
        self.about: dict[str, Any] = {}
        self.ended: Deferred[None] = Deferred()

    def lineReceived(self, line: bytes) -> None:
        self.about = json.loads(line)
        self._home.arrived(self)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.ended.callback(None)


class Home(Factory):
    """Listens for scripted replicas."""

    noisy = False

    def __init__(self, reactor: Any) -> None:
        self.callers: list[Caller] = []
        self._open: list[Caller] = []
        self._waiting: list[Deferred[Caller]] = []
        self._listening: IListeningPort = reactor.listenTCP(0, self, interface="127.0.0.1")
        self.port: int = self._listening.getHost().port

    def buildProtocol(self, addr: object) -> Caller:
        caller = Caller(self)
        self._open.append(caller)
        return caller

    def arrived(self, caller: Caller) -> None:
        """A process has told who it is."""
        if self._waiting:
            self._waiting.pop(0).callback(caller)
        else:
            self.callers.append(caller)

    def next(self) -> Deferred[Caller]:
        """Fire with the next process that phones home."""
        if self.callers:
            return succeed(self.callers.pop(0))
        waiting: Deferred[Caller] = Deferred()
        self._waiting.append(waiting)
        return waiting

    async def close(self) -> None:
        """Stop listening, hang up on whoever is left."""
        await self._listening.stopListening()
        for caller in self._open:
            if not caller.ended.called:
                caller.transport.loseConnection()
            await caller.ended
