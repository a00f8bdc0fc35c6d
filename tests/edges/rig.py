"""A router in this process between real sockets on loopback: a test plays the clients and the replica."""

from __future__ import annotations

import socket
from collections.abc import Callable

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from twisted_router.assembly import _Parts
from twisted_router.config.model import FleetConfig, ReplicaConfig, Settings
from twisted_router.web.site import RouterSite

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def post(body: bytes = b"{}", *fields: bytes) -> bytes:
    """Write a request."""
    lines = (b"POST /v1/x HTTP/1.1", b"Host: router", b"Content-Length: %d" % len(body), *fields, b"", body)
    return b"\r\n".join(lines)


class Peer(Protocol):
    """One end that keeps what it hears and tells when something has happened."""

    def __init__(self, told: Callable[[Peer], object] = lambda _: None) -> None:
        self.heard = b""
        self.over: Failure | None = None
        self._told = told
        self._waiting: list[tuple[Callable[[Peer], bool], Deferred[Peer]]] = []

    def until(self, true: Callable[[Peer], bool]) -> Deferred[Peer]:
        """Fires once ``true`` of this end, at the latest when it is over."""
        waiting: Deferred[Peer] = Deferred()
        self._waiting.append((true, waiting))
        self._look()
        return waiting

    def hears(self, words: bytes, times: int = 1) -> Deferred[Peer]:
        """Fires once it has heard ``words`` so often."""
        return self.until(lambda peer: peer.heard.count(words) >= times)

    def ends(self) -> Deferred[Peer]:
        """Fires once the connection is over."""
        return self.until(lambda peer: False)

    @property
    def was_reset(self) -> bool:
        """Whether it ended otherwise than in order."""
        return self.over is not None and not self.over.check(ConnectionDone)

    def dataReceived(self, data: bytes) -> None:
        self.heard += data
        self._told(self)
        self._look()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.over = reason
        self._look()

    def _look(self) -> None:
        for true, waiting in list(self._waiting):
            if self.over is not None or true(self):
                self._waiting.remove((true, waiting))
                waiting.callback(self)


class Replica(Factory):
    """A replica that does with each piece it hears whatever the test says."""

    noisy = False

    def __init__(self, told: Callable[[Peer], object]) -> None:
        self.told = told
        self.peers: list[Peer] = []

    def buildProtocol(self, addr: object) -> Peer:
        peer = Peer(lambda peer: self.told(peer))
        self.peers.append(peer)
        return peer

    @property
    def requests(self) -> int:
        """How many requests have come."""
        return sum(peer.heard.count(b"POST /v1/") for peer in self.peers)


def answer_each(answer: bytes = OK) -> Callable[[Peer], None]:
    """What a replica does that answers each request, told apart by their common beginning."""
    given: dict[Peer, int] = {}

    def told(peer: Peer) -> None:
        came = peer.heard.count(b"POST /v1/")
        peer.transport.write(answer * (came - given.get(peer, 0)))
        given[peer] = came

    return told


class EdgeTestCase(TestCase):
    """Clients, a router, a replica."""

    timeout = 30.0

    def begin(self, told: Callable[[Peer], object] | None = None, **settings: object) -> None:
        """Start the router and one replica."""
        self.replica = Replica(told or answer_each())
        behind = reactor.listenTCP(0, self.replica, interface="127.0.0.1")
        self.addCleanup(behind.stopListening)
        config = FleetConfig(replicas=(ReplicaConfig("r", "127.0.0.1", behind.getHost().port),))
        parts = _Parts(config, Settings(**settings), reactor)  # type: ignore[arg-type]
        self.parts = parts
        front = parts.front()
        self.deadlines = front.deadlines
        parts.front = lambda: front  # type: ignore[method-assign]  # the one whose deadlines are ended here
        self.site: RouterSite = parts.site()
        self.port = reactor.listenTCP(0, self.site, 512, interface="127.0.0.1")
        # Accepted connections inherit it: the kernel is not to take megabytes for who does not read.
        self.port.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        self.addCleanup(self.end)
        self.clients: list[Peer] = []

    async def end(self) -> None:
        """Close everything and wait until it is closed."""
        for peer in (*self.clients, *self.replica.peers):
            if peer.over is None:
                peer.transport.abortConnection()
                await peer.ends()
        await self.parts.clients.close()
        self.deadlines.stop()
        if self.port.connected:
            await self.port.stopListening()

    async def connect(self, *pieces: bytes) -> Peer:
        """A client that has sent ``pieces``."""
        factory = Factory.forProtocol(Peer)
        factory.noisy = False
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", self.port.getHost().port)
        peer = await endpoint.connect(factory)
        peer.transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        self.clients.append(peer)
        for piece in pieces:
            peer.transport.write(piece)
        return peer
