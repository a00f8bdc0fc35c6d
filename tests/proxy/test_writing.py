from __future__ import annotations

import contextlib

from twisted.internet import reactor
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.protocol import ClientCreator, Factory, Protocol
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase, TestCase

from twisted_router.proxy.writing import PIECE, Upload, has_unsent, writer


class Quiet(Protocol):
    """The far end of a real connection, which reads when it is told to."""

    def __init__(self) -> None:
        self.size = 0
        self.last = b""
        self.wanted: tuple[int, Deferred[None]] | None = None
        self.over: Deferred[None] = Deferred()

    def connectionMade(self) -> None:
        self.factory.accepted.callback(self)  # type: ignore[union-attr]

    def read(self, size: int) -> Deferred[None]:
        self.wanted = (size, Deferred())
        self.dataReceived(b"")
        return self.wanted[1]

    def dataReceived(self, data: bytes) -> None:
        self.size += len(data)
        self.last = data[-1:] or self.last
        if self.wanted is not None and self.size >= self.wanted[0]:
            wanted, self.wanted = self.wanted, None
            wanted[1].callback(None)

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        self.over.callback(None)


class Source:
    """A push producer that notes what it is told."""

    def __init__(self) -> None:
        self.paused: Deferred[None] = Deferred()
        self.resumed: Deferred[None] = Deferred()

    def pauseProducing(self) -> None:
        if not self.paused.called:
            self.paused.callback(None)

    def resumeProducing(self) -> None:
        if self.paused.called and not self.resumed.called:
            self.resumed.callback(None)

    def stopProducing(self) -> None:
        """Nothing to stop."""


class Writer(TestCase):
    """``writer`` on a real pair of sockets: that is what it is about."""

    timeout = 20

    async def pair(self) -> tuple[Protocol, Quiet]:
        factory = Factory.forProtocol(Quiet)
        factory.accepted = Deferred()  # type: ignore[attr-defined]
        port = reactor.listenTCP(0, factory, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        near = await ClientCreator(reactor, Protocol).connectTCP("127.0.0.1", port.getHost().port)
        far: Quiet = await factory.accepted  # type: ignore[attr-defined]

        def close() -> Deferred[object]:
            far.transport.resumeProducing()  # type: ignore[union-attr]
            near.transport.abortConnection()
            return DeferredList([far.over])

        self.addCleanup(close)
        return near, far

    async def test_at_once(self) -> None:
        """A write that the kernel takes is sent before the call returns, and queues nothing."""
        near, far = await self.pair()
        write = writer(near.transport)
        self.assertNotEqual(write, near.transport.write)
        arrived = far.read(5)
        write(b"hello")
        self.assertFalse(has_unsent(near.transport))
        await arrived

    async def test_full(self) -> None:
        """What the kernel does not take is queued in order: the producer is paused, and resumed later."""
        near, far = await self.pair()
        far.transport.pauseProducing()  # type: ignore[union-attr]
        write = writer(near.transport)
        source = Source()
        near.transport.registerProducer(source, True)
        sent = 0
        while not source.paused.called:
            write(b"x" * 262_144)
            sent += 262_144
        write(b"y" * 10)
        await source.paused
        self.assertNoResult(source.resumed)
        arrived = far.read(sent + 10)
        far.transport.resumeProducing()  # type: ignore[union-attr]
        await arrived
        await source.resumed
        self.assertEqual((far.size, has_unsent(near.transport)), (sent + 10, False))

    async def test_behind_what_waits(self) -> None:
        """While bytes are queued, later ones queue behind them, even when the kernel has room again."""
        near, far = await self.pair()
        far.transport.pauseProducing()  # type: ignore[union-attr]
        write = writer(near.transport)
        sent = 0
        while not has_unsent(near.transport):
            write(b"x" * 262_144)
            sent += 262_144
        drained = 0
        with contextlib.suppress(BlockingIOError):  # between two turns of the reactor
            while True:
                drained += len(far.transport.socket.recv(1 << 20))  # type: ignore[union-attr]
        write(b"y")
        arrived = far.read(sent + 1 - drained)
        far.transport.resumeProducing()  # type: ignore[union-attr]
        await arrived
        self.assertEqual(far.last, b"y")

    async def test_gone(self) -> None:
        """Writing to a connection that is gone does nothing."""
        near, far = await self.pair()
        write = writer(near.transport)
        gone: Deferred[None] = Deferred()
        near.connectionLost = lambda reason: gone.callback(None)  # type: ignore[method-assign]
        far.transport.abortConnection()  # type: ignore[union-attr]
        await gone
        self.assertIsNone(write(b"x"))


class LettingGo(SynchronousTestCase):
    """What is left of an upload when it is over; a TLS transport keeps its producer longer than that."""

    def upload(self) -> tuple[Upload, bytearray, StringTransport]:
        body = bytearray(2 * PIECE)
        transport = StringTransport()
        return Upload(transport, memoryview(body), lambda: None), body, transport

    def test_sent(self) -> None:
        """A body that is sent is kept no longer, not even by its empty rest."""
        upload, body, transport = self.upload()
        upload.resumeProducing()
        self.assertRaises(BufferError, body.clear)
        upload.resumeProducing()
        body.clear()
        self.assertEqual(len(transport.value()), 2 * PIECE)

    def test_cut(self) -> None:
        """A body whose connection is gone is kept no longer."""
        upload, body, _ = self.upload()
        upload.stopProducing()
        body.clear()
        self.assertTrue(upload.done)

    def test_not_asked_in_vain(self) -> None:
        """A TLS transport, which goes on asking until it is told, is told with the last piece."""
        upload, _, transport = self.upload()
        upload.resumeProducing()
        self.assertIs(transport.producer, upload)
        transport.dataBuffer = b"unsent"  # type: ignore[attr-defined]
        upload.resumeProducing()
        self.assertIsNone(transport.producer)
