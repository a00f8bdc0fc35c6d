"""Connections in memory: both ends of the router's traffic without a socket, on a clock."""

from __future__ import annotations

from collections import deque
from http.client import HTTPResponse
from typing import Any, cast

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IProtocolFactory, IPullProducer, IStreamClientEndpoint
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringIOWithoutClosing, StringTransport
from twisted.python.failure import Failure
from zope.interface import implementer


class Line(StringTransport):
    """The router's end of one connection; the test plays the other end.

    As with a socket, nothing is delivered while the protocol has paused it, and a connection that the
    protocol closes or aborts is lost a turn of the clock later.
    """

    def __init__(self, clock: Clock, peer: str = "127.0.0.1") -> None:
        super().__init__(peerAddress=IPv4Address("TCP", peer, 50000), lenient=True)
        self.clock = clock
        self.aborted = False
        self.half_closed = False
        self.gone = False
        self._arrived: deque[bytes | Exception] = deque()

    def carry(self, protocol: Protocol) -> Protocol:
        self.protocol = protocol
        protocol.makeConnection(self)
        return protocol

    @property
    def paused(self) -> bool:
        return bool(self.producerState == "paused")

    def deliver(self, data: bytes) -> None:
        """The other end sends; one call of ``dataReceived``."""
        self._arrived.append(data)
        self._flush()

    def hang_up(self, error: Exception | None = None) -> None:
        """The other end closes in order, or with an error; behind what it has sent."""
        self._arrived.append(error or ConnectionDone())
        self._flush()

    def reset(self) -> None:
        """The other end resets."""
        self.hang_up(ConnectionLost())

    def resumeProducing(self) -> None:
        super().resumeProducing()
        self.clock.callLater(0, self._flush)

    def registerProducer(self, producer: IPullProducer, streaming: bool) -> None:
        """As a socket does: whoever has to be asked is asked for the first piece at once."""
        super().registerProducer(producer, streaming)
        if not streaming:
            producer.resumeProducing()

    def drain(self) -> bool:
        """All has been sent: ask whoever has to be asked for the next piece; False when there is nobody."""
        if self.producer is None:
            return False
        self.producer.resumeProducing()
        return True

    def write(self, data: bytes) -> None:
        if not (self.gone or self.aborted or self.half_closed):
            super().write(data)

    def loseConnection(self) -> None:
        if not self.disconnecting:
            self.disconnecting = True
            self.clock.callLater(0, self._lost, ConnectionDone())

    def loseWriteConnection(self) -> None:
        self.half_closed = True

    def abortConnection(self) -> None:
        if not self.aborted and not self.gone:
            self.aborted = self.disconnecting = True
            self.clock.callLater(0, self._lost, ConnectionAborted())

    def _flush(self) -> None:
        while self._arrived and not (self.paused or self.gone or self.aborted):
            arrived = self._arrived.popleft()
            if isinstance(arrived, Exception):
                self._lost(arrived)
            else:
                self.protocol.dataReceived(arrived)

    def _lost(self, error: Exception) -> None:
        if not self.gone:
            self.gone = True
            self.connected = False
            if self.producer is not None:
                self.producer.stopProducing()
                self.producer = None
            self.protocol.connectionLost(Failure(error))


@implementer(IStreamClientEndpoint)
class Endpoint:
    """Where a replica listens, or does not.

    :ivar error: what every attempt fails with, when set.
    :ivar silent: attempts are left hanging, in ``hanging``.
    :ivar lines: every connection made, in order.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.error: Exception | None = None
        self.silent = False
        self.hanging: list[tuple[Deferred[Any], IProtocolFactory]] = []
        self.given_up = 0
        self.attempts = 0
        self.lines: list[Line] = []

    def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
        self.attempts += 1
        if self.error is not None:
            return fail(self.error)
        if self.silent:
            hanging: Deferred[Any] = Deferred(self._give_up)
            self.hanging.append((hanging, factory))
            return hanging
        return succeed(self._accept(factory))

    def accept(self) -> Line:
        """Let the oldest hanging attempt through."""
        hanging, factory = self.hanging.pop(0)
        hanging.callback(self._accept(factory))
        return self.line

    @property
    def line(self) -> Line:
        """The newest connection."""
        return self.lines[-1]

    def _accept(self, factory: IProtocolFactory) -> Protocol:
        line = Line(self.clock)
        self.lines.append(line)
        return line.carry(cast(Protocol, factory.buildProtocol(line.getPeer())))

    def _give_up(self, _: object) -> None:
        self.given_up += 1


class Answers:
    """Reads what a client has heard, answer by answer, with the standard library's own parser."""

    def __init__(self, heard: bytes) -> None:
        self._stream = StringIOWithoutClosing(heard)

    def makefile(self, *_: object) -> StringIOWithoutClosing:
        """Stand in for the socket that ``HTTPResponse`` wants."""
        return self._stream

    def next(self, method: str = "GET") -> HTTPResponse:
        """Read a head; ``read`` of the result raises ``IncompleteRead`` where the body is cut."""
        answer = HTTPResponse(cast(Any, self), method=method)
        answer.begin()
        return answer

    def rest(self) -> bytes:
        """What comes after the answers read so far."""
        return self._stream.read()
