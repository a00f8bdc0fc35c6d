"""Whether something already listens at an address."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.protocol import Factory, Protocol

#: Seconds a connection attempt may take before the address counts as silent.
PATIENCE = 2.0


class _HangUp(Protocol):
    """Says nothing and leaves."""

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.loseConnection()


def answers(reactor: Any, address: str, port: int) -> Deferred[bool]:
    """Fire with whether a connection to ``address:port`` is accepted; nothing is sent. Never fails."""
    endpoint = HostnameEndpoint(reactor, address, port, timeout=PATIENCE)
    factory = Factory.forProtocol(_HangUp)
    factory.noisy = False
    attempt = endpoint.connect(factory)
    attempt.addTimeout(PATIENCE, reactor)
    return attempt.addCallbacks(lambda _: True, lambda _: False)
