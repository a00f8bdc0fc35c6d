from __future__ import annotations

import socket
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionRefusedError, NoRouteError
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase, TestCase

from twisted_router.config.model import ReplicaConfig
from twisted_router.proxy.connect import endpoint_for
from twisted_router.services.presence import Knock, Presence, knocker


def knock(reactor: Any, timeout: float) -> Knock:
    """A knock by the endpoints that the router's connections to replicas use."""
    return knocker(
        lambda address, port: endpoint_for(reactor, ReplicaConfig("", address, port), timeout),
        reactor,
        timeout,
    )


class Knocking(SynchronousTestCase):
    def setUp(self) -> None:
        self.reactor = MemoryReactorClock()
        self.answer = knock(self.reactor, 2.0)("127.0.0.1", 8001)

    def fail_with(self, error: Exception) -> Presence:
        factory = self.reactor.tcpClients[-1][2]
        factory.clientConnectionFailed(None, Failure(error))
        return self.successResultOf(self.answer)  # type: ignore[no-any-return]

    def test_refused(self) -> None:
        """Only a refused connection is silence."""
        self.assertIs(self.fail_with(ConnectionRefusedError()), Presence.SILENT)

    def test_ipv6(self) -> None:
        """A literal of either kind is refused at once, without the pause between a name's addresses."""
        self.answer = knock(self.reactor, 2.0)("::1", 8001)
        self.assertIs(self.fail_with(ConnectionRefusedError()), Presence.SILENT)

    def test_no_route(self) -> None:
        """A host that cannot be reached says nothing about what runs on it."""
        self.assertIs(self.fail_with(NoRouteError()), Presence.UNKNOWN)

    def test_timeout(self) -> None:
        """Neither does one that lets the time run out."""
        self.assertNoResult(self.answer)
        self.reactor.advance(2.0)
        self.assertIs(self.successResultOf(self.answer), Presence.UNKNOWN)


class Sockets(TestCase):
    def test_name(self) -> None:
        """A name is knocked at like an address."""
        port: IListeningPort = reactor.listenTCP(0, Factory.forProtocol(Protocol), interface="127.0.0.1")  # type: ignore[attr-defined]
        self.addCleanup(port.stopListening)
        answer = knock(reactor, 5.0)("localhost", port.getHost().port)  # type: ignore[attr-defined]
        return answer.addCallback(self.assertIs, Presence.PRESENT)  # type: ignore[return-value]

    def test_accepted(self) -> None:
        """An accepted connection is presence, though nothing is said on it; it is hung up at once."""
        lost: Deferred[None] = Deferred()

        class Mute(Protocol):
            def connectionLost(self, reason: Failure = None) -> None:  # type: ignore[assignment]
                lost.callback(None)

        port: IListeningPort = reactor.listenTCP(0, Factory.forProtocol(Mute), interface="127.0.0.1")  # type: ignore[attr-defined]
        self.addCleanup(port.stopListening)
        answer = knock(reactor, 5.0)("127.0.0.1", port.getHost().port)  # type: ignore[arg-type,attr-defined]
        answer.addCallback(self.assertIs, Presence.PRESENT)
        return answer.addCallback(lambda _: lost)  # type: ignore[return-value]

    def test_closed_port(self) -> None:
        """A port nobody listens on is silent."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            answer = knock(reactor, 5.0)("127.0.0.1", taken.getsockname()[1])  # type: ignore[arg-type]
            return answer.addCallback(self.assertIs, Presence.SILENT)  # type: ignore[return-value]
