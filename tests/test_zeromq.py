"""ZeroMQ sockets on the reactor: nothing that came in is left lying, nothing stays behind."""

from __future__ import annotations

import zmq
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from twisted_router.zeromq import TURN, ReactorSocket


class ReactorSocketTests(TestCase):
    timeout = 30

    def setUp(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.context.setsockopt(zmq.LINGER, 0)
        self.addCleanup(self.context.destroy, linger=0)
        self.got: list[bytes] = []
        self.waiting: tuple[int, Deferred[None]] | None = None
        peer = self.context.socket(zmq.DEALER)
        self.addCleanup(peer.close, linger=0)
        self.peer = peer
        peer.bind("tcp://127.0.0.1:*")
        self.endpoint = peer.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode()  # type: ignore[union-attr]

    def connect(self) -> ReactorSocket:
        socket = self.context.socket(zmq.DEALER)
        socket.connect(self.endpoint)
        self.socket = ReactorSocket(reactor, socket, self.heard)  # type: ignore[arg-type]
        self.addCleanup(self.socket.close)
        return self.socket

    def heard(self, frames: list[bytes]) -> None:
        self.got += frames
        if self.waiting is not None and len(self.got) >= self.waiting[0]:
            self.waiting, (_, waiting) = None, self.waiting
            waiting.callback(None)

    def until(self, count: int) -> Deferred[None]:
        waiting: Deferred[None] = Deferred()
        self.waiting = (count, waiting)
        return waiting

    async def test_burst(self) -> None:
        """Of many messages that come at once, all are handed over, in more than one turn."""
        numbers = [b"%d" % number for number in range(5 * TURN)]
        self.connect()
        for number in numbers:
            self.peer.send(number)
        await self.until(len(numbers))
        self.assertEqual(self.got, numbers)

    async def test_there_already(self) -> None:
        """What came in before anybody looked is handed over."""
        socket = self.context.socket(zmq.DEALER)
        socket.connect(self.endpoint)
        self.peer.send(b"early")
        socket.poll()
        # The descriptor has told by now, and tells no more.
        ready = ReactorSocket(reactor, socket, self.heard)  # type: ignore[arg-type]
        self.addCleanup(ready.close)
        await self.until(1)
        self.assertEqual(self.got, [b"early"])

    async def test_after_send(self) -> None:
        """What sending has noticed on the way is handed over, though the descriptor tells no more."""
        socket = self.connect()
        socket.send([b"hello"])
        await self.until_peer_heard()
        self.peer.send(b"1")
        socket._socket.poll()
        socket.send([b"again"])
        await self.until(1)
        self.assertEqual(self.got, [b"1"])

    def until_peer_heard(self) -> Deferred[None]:
        waiting: Deferred[None] = Deferred()
        heard: list[list[bytes]] = []

        def hear(frames: list[bytes]) -> None:
            heard.append(frames)
            if len(heard) == 1:
                waiting.callback(None)

        self.addCleanup(ReactorSocket(reactor, self.peer, hear).close)  # type: ignore[arg-type]
        return waiting

    async def test_closed_in_between(self) -> None:
        """Who closes it while messages are handed over gets no more of them."""
        handed: list[bytes] = []
        closed: Deferred[None] = Deferred()

        def close(frames: list[bytes]) -> None:
            handed.extend(frames)
            socket.close()
            closed.callback(None)

        inner = self.context.socket(zmq.DEALER)
        inner.connect(self.endpoint)
        socket = ReactorSocket(reactor, inner, close)  # type: ignore[arg-type]
        for _ in range(3):
            self.peer.send(b"x")
        await closed
        self.assertEqual(handed, [b"x"])

    def test_closed(self) -> None:
        """Closing leaves neither reader nor timer, and may be done twice."""
        socket = self.connect()
        self.assertIn(socket, reactor.getReaders())
        socket.close()
        socket.close()
        self.assertNotIn(socket, reactor.getReaders())
        self.assertEqual(socket.fileno(), -1)

    def test_lost(self) -> None:
        """The end of the reactor closes it."""
        socket = self.connect()
        socket.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(socket.fileno(), -1)
