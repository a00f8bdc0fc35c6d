"""Keeps a launch away from an address where something listens already."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.protocol import Factory, Protocol

from ..config.model import authority
from ..core.slots import Slot
from ..errors import LaunchFailed

#: Seconds a connection attempt may take before the address counts as silent.
PATIENCE = 2.0


class _HangUp(Protocol):
    """Says nothing and leaves."""

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.loseConnection()


def _answers(reactor: Any, address: str, port: int) -> Deferred[bool]:
    """Fire with whether a connection to ``address:port`` is accepted; nothing is sent. Never fails."""
    endpoint = HostnameEndpoint(reactor, address, port, timeout=PATIENCE)
    factory = Factory.forProtocol(_HangUp)
    factory.noisy = False
    attempt = endpoint.connect(factory)
    attempt.addTimeout(PATIENCE, reactor)
    return attempt.addCallbacks(lambda _: True, lambda _: False)


async def refuse_taken(reactor: Any, slot: Slot, where: str) -> None:
    """Raise LaunchFailed when something already answers where the replica of ``slot`` is to listen."""
    if await _answers(reactor, slot.address, slot.port):
        raise LaunchFailed(
            f"{where}: something already answers on {authority(slot.address, slot.port)}; "
            f"stop it, or give the host another port_base"
        )
