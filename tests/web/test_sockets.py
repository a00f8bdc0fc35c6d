"""What only real sockets show: how a connection ends, and how much of an answer piles up."""

from __future__ import annotations

from twisted.internet import reactor
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.protocol import ClientCreator, Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from tests.proxy.fakes import Answers
from tests.web.scene import STREAM, Router, chunk, post
from twisted_router.core.effects import Ending
from twisted_router.web.site import Limits, RouterChannel


class Client(Protocol):
    """A client on a real connection; what ends it is told once."""

    def __init__(self) -> None:
        self.heard = b""
        self.over: Deferred[type[BaseException]] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.heard += data

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        self.over.callback(reason.type)


class Watched(RouterChannel):
    """A channel that says when it is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.gone: Deferred[None] = Deferred()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        super().connectionLost(reason)
        self.gone.callback(None)


class Sockets(TestCase):
    timeout = 20

    def setUp(self) -> None:
        self.router = Router("a", limits=Limits(body=1000, bodies=5000))
        self.sending: Deferred[None] = Deferred()
        self.channels: list[Watched] = []
        self.addCleanup(lambda: DeferredList([channel.gone for channel in self.channels]))
        self.router.site.protocol = self.build  # type: ignore[assignment]
        port = reactor.listenTCP(0, self.router.site, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.port = port.getHost().port
        self.replica = self.router.replicas["a"]
        connect = self.replica.connect

        def connected(factory: object) -> Deferred[object]:
            reactor.callLater(0, self.sending.callback, None)
            return connect(factory)  # type: ignore[arg-type]

        self.replica.connect = connected  # type: ignore[method-assign,assignment]

    def build(self) -> Watched:
        channel = Watched()
        self.channels.append(channel)
        return channel

    async def call(self, data: bytes) -> Client:
        client: Client = await ClientCreator(reactor, Client).connectTCP("127.0.0.1", self.port)
        client.transport.write(data)  # type: ignore[union-attr]
        self.addCleanup(client.transport.abortConnection)  # type: ignore[union-attr]
        return client

    async def test_cut_for_an_old_client(self) -> None:
        """A cut answer whose end is the close ends in a reset: the client cannot take it for whole."""
        client = await self.call(b"POST /v1/x HTTP/1.0\r\nContent-Length: 0\r\n\r\n")
        await self.sending
        self.router.reply("a", STREAM + chunk(b"half"))
        self.replica.line.reset()
        self.assertIs(await client.over, ConnectionLost)

    async def test_cut(self) -> None:
        """A cut answer in chunks ends without its last one; the client has all that came before."""
        client = await self.call(post())
        await self.sending
        self.router.reply("a", STREAM + chunk(b"half"))
        self.replica.line.reset()
        self.assertIs(await client.over, ConnectionDone)
        self.assertTrue(client.heard.endswith(b"\r\n\r\n4\r\nhalf\r\n"))

    async def test_half_closed(self) -> None:
        """A client that closes its sending side counts as gone: the replica stops at once."""
        client = await self.call(post())
        await self.sending
        self.router.reply("a", STREAM + chunk(b"half"))
        client.transport.loseWriteConnection()  # type: ignore[union-attr]
        await self.channels[0].gone
        self.assertIs(self.router.notes.outcomes[0].ending, Ending.CLIENT_GONE)
        self.assertTrue(self.replica.line.aborted)

    async def test_refused_while_sending(self) -> None:
        """A client that goes on sending what was refused reads the whole refusal before anything breaks."""
        size = 4 << 20
        client = await self.call(b"POST /v1/x HTTP/1.1\r\nHost: r\r\nContent-Length: %d\r\n\r\n" % size)
        client.transport.write(b"x" * size)  # type: ignore[union-attr]
        self.assertIs(await client.over, ConnectionDone)
        self.assertEqual(Answers(client.heard).next().status, 413)

    async def test_unread(self) -> None:
        """Of an answer that a client does not read, what the kernel does not take stays with it."""
        client = await self.call(post())
        client.transport.pauseProducing()  # type: ignore[union-attr]
        await self.sending
        self.router.reply("a", STREAM)
        piece, sent = chunk(b"x" * 65536), 0
        while not self.replica.line.paused:
            self.router.reply("a", piece)
            sent += len(piece)
            self.assertLess(sent, 64 << 20, "nobody stops the replica")
        transport = self.channels[0].transport
        self.assertLess(len(transport.dataBuffer) + transport._tempDataLen, 256 * 1024)
        self.assertEqual(self.router.notes.outcomes, [])
        client.transport.abortConnection()  # type: ignore[union-attr]
        await self.channels[0].gone
        self.assertIs(self.router.notes.outcomes[0].ending, Ending.CLIENT_GONE)
        self.assertTrue(self.replica.line.aborted)
