"""The router's whole data path in this process: real parts, connections that are plain objects."""

from __future__ import annotations

import secrets
from typing import Any, cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.web.resource import IResource
from zope.interface import implementer

from twisted_router.config.model import SESSION_SOURCES
from twisted_router.core.fleet import Fleet
from twisted_router.core.policies.session import SessionAffinity
from twisted_router.core.sessions import Pins
from twisted_router.proxy.clients import Clients
from twisted_router.proxy.deadlines import Deadlines
from twisted_router.proxy.exchange import Front
from twisted_router.proxy.head import SessionFinder
from twisted_router.services.traffic import Traffic
from twisted_router.telemetry.metrics import Metrics
from twisted_router.web.limits import Doors, Limits
from twisted_router.web.openai import RelayResource
from twisted_router.web.site import RouterSite


class Silent(StringTransport):
    """A transport that counts what is written to it and keeps nothing."""

    written = 0

    def write(self, data: bytes) -> None:
        """Count only."""
        self.written += len(data)

    def writeSequence(self, data: Any) -> None:
        """Count only."""
        self.write(b"".join(data))

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Nothing to delay."""


@implementer(IStreamClientEndpoint)
class Silence:
    """Connects at once, to nobody; keeps the last connection."""

    wire: IProtocol

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """See ``IStreamClientEndpoint``."""
        wire = protocolFactory.buildProtocol(cast(Any, None))
        assert wire is not None
        wire.makeConnection(Silent())
        self.wire = wire
        return succeed(wire)


class DataPath:
    """One client connection, the router, and one connection to a replica.

    :ivar client: the router's end of the client's connection; give it requests by ``dataReceived``.
    :ivar downstream: what the router wrote to the client.
    """

    def __init__(self) -> None:
        clock = Clock()
        fleet = Fleet(SessionAffinity(8), Pins(600.0), veto=10.0)
        fleet.add_static("r0", "http://127.0.0.1:8001")
        self._silence = Silence()
        traffic = Traffic()
        front = Front(
            fleet,
            Clients(clock, lambda member: self._silence, 5.0),
            traffic.enter,
            traffic.leave,
            lambda event: fleet.apply(event, clock.seconds()),
            Metrics(lambda: fleet.snapshot(clock.seconds()), None),
            SessionFinder(SESSION_SOURCES),
            Deadlines(clock, 3600.0),
            clock.seconds,
            lambda: secrets.token_hex(16),
        )
        relay = cast(IResource, RelayResource(front))
        site = RouterSite(relay, relay, Limits(1 << 26, 1 << 30), Doors.of(None, 1 << 20, 0), clock)
        client = site.buildProtocol(cast(Any, None))
        assert client is not None
        self.client: IProtocol = client
        self.downstream = Silent()
        client.makeConnection(self.downstream)

    def replica_sends(self, data: bytes) -> None:
        """Bytes arrive from the replica."""
        self._silence.wire.dataReceived(data)
