from __future__ import annotations

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, TCP4ClientEndpoint, TCP6ClientEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.ssl import Certificate, PrivateCertificate
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.proxy.authority import Authority
from twisted_router.config.model import ReplicaConfig
from twisted_router.errors import (
    ConfigError,
    ReplicaConnectTimedOut,
    ReplicaReset,
    ReplicaUnreachable,
    RouterError,
)
from twisted_router.proxy.client import ReplicaAgent, ReplicaClient
from twisted_router.proxy.connect import endpoint_for
from twisted_router.proxy.pool import Pool
from twisted_router.proxy.writing import PIECE

AUTHORITY = Authority()
STRANGER = Authority("stranger")


class Replica(Protocol):
    """A server that answers every request with the name of the certificate it was shown."""

    def __init__(self) -> None:
        self.heard = b""

    def connectionMade(self) -> None:
        self.factory.lines.append(self)  # type: ignore[union-attr]
        self.over: Deferred[None] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.heard += data
        head, ended, body = self.heard.partition(b"\r\n\r\n")
        _, _, length = head.partition(b"Content-Length: ")
        if not ended or len(body) < int(length or b"0"):
            return
        shown = self.transport.getPeerCertificate()  # type: ignore[union-attr]
        name = b"nobody" if shown is None else shown.get_issuer().CN.encode()
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(name) + name)  # type: ignore[union-attr]

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        self.over.callback(None)


class Plain(Protocol):
    """A server that answers a TLS greeting in plain HTTP."""

    def dataReceived(self, data: bytes) -> None:
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")  # type: ignore[union-attr]


class Silent(Protocol):
    """A server that accepts and says nothing."""

    def connectionMade(self) -> None:
        self.greeted: Deferred[None] = Deferred()
        self.over: Deferred[None] = Deferred()
        self.factory.accepted.callback(self)  # type: ignore[union-attr]

    def dataReceived(self, data: bytes) -> None:
        if not self.greeted.called:
            self.greeted.callback(None)

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        self.over.callback(None)


class Tls(TestCase):
    """Real TLS over loopback: what is verified, and against what."""

    def setUp(self) -> None:
        self.factory = Factory.forProtocol(Replica)
        self.factory.lines = []  # type: ignore[attr-defined]

    def file(self, content: bytes) -> str:
        path = FilePath(self.mktemp())
        path.setContent(content)
        return str(path.path)

    def serve(self, *subjects: str, demand: bool = False) -> int:
        own = PrivateCertificate.loadPEM(AUTHORITY.issue(*subjects))
        options = own.options(Certificate.loadPEM(AUTHORITY.pem)) if demand else own.options()
        port = reactor.listenSSL(0, self.factory, options, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        return int(port.getHost().port)

    async def ask(
        self,
        port: int,
        host: str = "127.0.0.1",
        ca: bytes = AUTHORITY.pem,
        own: bytes | None = None,
        body: bytes | None = None,
    ) -> bytes:
        """Have one exchange over TLS; return what the replica answers."""
        config = ReplicaConfig(
            "node0",
            host,
            port,
            "https",
            ca_file=self.file(ca),
            client_cert=None if own is None else self.file(own),
        )
        pool = Pool(reactor, endpoint_for(reactor, config, 5.0), 5.0, "node0")
        client = ReplicaClient(ReplicaAgent(pool, config.url.encode()))
        try:
            response = await client.request(b"GET", b"/", data=body)
            content: bytes = await response.content()
            return content
        finally:
            await client.close()
            for line in self.factory.lines:  # type: ignore[attr-defined]
                await line.over

    async def test_right_address(self) -> None:
        """A certificate for the address, from the file's authority, is trusted."""
        self.assertEqual(await self.ask(self.serve("127.0.0.1")), b"nobody")

    async def test_right_name(self) -> None:
        """A certificate for the name is trusted when the replica is called by it."""
        self.assertEqual(await self.ask(self.serve("localhost"), "localhost"), b"nobody")

    async def test_large(self) -> None:
        """A body of many pieces arrives whole."""
        body = b"y" * (10 * PIECE + 1)
        self.assertEqual(await self.ask(self.serve("127.0.0.1"), body=body), b"nobody")
        (line,) = self.factory.lines  # type: ignore[attr-defined]
        self.assertEqual(line.heard.partition(b"\r\n\r\n")[2], body)

    async def test_several_authorities(self) -> None:
        """Every authority in the file is trusted, not the first alone."""
        port = self.serve("127.0.0.1")
        self.assertEqual(await self.ask(port, ca=STRANGER.pem + AUTHORITY.pem), b"nobody")

    async def refused(self, asked: Deferred[bytes]) -> None:
        """Expect a failure before anything of the request was heard."""
        with self.assertRaises(RouterError) as caught:
            await asked
        self.assertIsInstance(caught.exception, ReplicaReset | ReplicaUnreachable)
        self.assertEqual([line.heard for line in self.factory.lines if line.heard], [])  # type: ignore[attr-defined]

    async def test_wrong_name(self) -> None:
        """A certificate for another name or address is refused before the request is sent."""
        for host, subject in (
            ("localhost", "elsewhere.example"),
            ("127.0.0.1", "127.0.0.2"),
            ("127.0.0.1", "localhost"),
        ):
            await self.refused(Deferred.fromCoroutine(self.ask(self.serve(subject), host)))

    async def test_unknown_authority(self) -> None:
        """A certificate from an authority that is not in the file is refused."""
        await self.refused(Deferred.fromCoroutine(self.ask(self.serve("127.0.0.1"), ca=STRANGER.pem)))

    async def test_reason(self) -> None:
        """A refused certificate is a failure to connect, with TLS's own words."""
        port = self.serve("127.0.0.1")
        with self.assertRaises(ReplicaUnreachable) as caught:
            await self.ask(port, ca=STRANGER.pem)
        self.assertTrue(
            caught.exception.why.startswith("TLS: certificate verify failed"), caught.exception.why
        )
        with self.assertRaises(ReplicaUnreachable) as caught:
            await self.ask(port, "localhost")
        self.assertIn("TLS: the certificate is for another name", str(caught.exception))

    async def test_no_tls(self) -> None:
        """So is a replica that does not speak TLS at all."""
        port = reactor.listenTCP(0, Factory.forProtocol(Plain), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        with self.assertRaises(ReplicaUnreachable) as caught:
            await self.ask(port.getHost().port)
        self.assertIn("TLS: ", str(caught.exception))

    async def test_silent(self) -> None:
        """One that says nothing is given up after the connect timeout, its connection dropped."""
        accepted: Deferred[Silent] = Deferred()
        factory = Factory.forProtocol(Silent)
        factory.accepted = accepted  # type: ignore[attr-defined]
        port = reactor.listenTCP(0, factory, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        clock = Clock()
        config = ReplicaConfig(
            "node0", "127.0.0.1", port.getHost().port, "https", ca_file=self.file(AUTHORITY.pem)
        )
        connecting = Pool(clock, endpoint_for(reactor, config, 60.0), 5.0, "node0").connect()
        silent = await accepted
        await silent.greeted
        self.assertNoResult(connecting)
        clock.advance(5)
        self.failureResultOf(connecting, ReplicaConnectTimedOut)
        await silent.over

    async def test_client_certificate(self) -> None:
        """The configured certificate is shown to a replica that demands one."""
        port = self.serve("127.0.0.1", demand=True)
        self.assertEqual(await self.ask(port, own=AUTHORITY.issue("router")), b"authority")

    async def test_no_client_certificate(self) -> None:
        """Without one, such a replica does not answer."""
        await self.refused(Deferred.fromCoroutine(self.ask(self.serve("127.0.0.1", demand=True))))


class Addresses(SynchronousTestCase):
    def test_kinds(self) -> None:
        """Literals of either family are connected to as they are; only names are looked up."""
        for host, kind in (
            ("127.0.0.1", TCP4ClientEndpoint),
            ("::1", TCP6ClientEndpoint),
            ("node02", HostnameEndpoint),
        ):
            self.assertIsInstance(endpoint_for(Clock(), ReplicaConfig("a", host, 1), 5.0), kind)


class Files(SynchronousTestCase):
    def problem(self, **paths: str) -> str:
        config = ReplicaConfig("node0", "10.0.0.1", 443, "https", **paths)
        with self.assertRaises(ConfigError) as caught:
            endpoint_for(Clock(), config, 5.0)
        (problem,) = caught.exception.problems
        return str(problem)

    def file(self, content: bytes) -> str:
        path = FilePath(self.mktemp())
        path.setContent(content)
        return str(path.path)

    def test_missing(self) -> None:
        """A file that cannot be read is named, with the replica and the reason."""
        for key in ("ca_file", "client_cert"):
            self.assertEqual(
                self.problem(**{key: "/no/such.pem"}),
                "replica node0: /no/such.pem: No such file or directory",
            )

    def test_no_certificate(self) -> None:
        """A file that holds none says so."""
        for content in (b"", b"hello", AUTHORITY.issue("x").partition(b"-----END CERTIFICATE-----\n")[2]):
            path = self.file(content)
            self.assertEqual(
                self.problem(ca_file=path), f"replica node0: {path}: it holds no PEM certificate"
            )

    def test_damaged(self) -> None:
        """A damaged certificate is a sentence, not a traceback."""
        path = self.file(AUTHORITY.pem.replace(b"MII", b"!!!"))
        self.assertTrue(self.problem(ca_file=path).startswith(f"replica node0: {path}: "))

    def test_no_key(self) -> None:
        """A client certificate needs its key in the same file."""
        for content in (b"", AUTHORITY.pem):
            path = self.file(content)
            problem = self.problem(client_cert=path)
            self.assertTrue(problem.startswith(f"replica node0: {path}: "))
            self.assertNotIn("[]", problem)

    def test_http(self) -> None:
        """Without TLS no certificate is read."""
        self.assertIsInstance(
            endpoint_for(Clock(), ReplicaConfig("a", "10.0.0.1", 80, ca_file="/no/such.pem"), 5.0),
            TCP4ClientEndpoint,
        )
