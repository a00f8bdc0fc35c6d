"""The treq client of each replica, made when first asked for and closed when its replica is over."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint

from ..core.members import Member
from .client import ReplicaAgent, ReplicaClient
from .pool import Pool

#: Builds the endpoint for a replica; raises ``ConfigError``.
EndpointFor = Callable[[Member], IStreamClientEndpoint]


class Clients:
    """All clients, by the instance they talk to; calling it with a member gives the member's client.

    :param connect_timeout: seconds (``--connect-timeout``).
    """

    def __init__(self, clock: IReactorTime, endpoint_for: EndpointFor, connect_timeout: float) -> None:
        self._clock = clock
        self._endpoint_for = endpoint_for
        self._connect_timeout = connect_timeout
        self._clients: dict[str, ReplicaClient] = {}

    def __call__(self, member: Member) -> ReplicaClient:
        """Return the member's client."""
        client = self._clients.get(member.instance)
        if client is None:
            pool = Pool(self._clock, self._endpoint_for(member), self._connect_timeout, member.name)
            client = self._clients[member.instance] = ReplicaClient(
                ReplicaAgent(pool, member.url.encode("ascii"))
            )
        return client

    def forget(self, instance: str) -> None:
        """Close the connections to an instance that is over."""
        client = self._clients.pop(instance, None)
        if client is not None:
            client.close()

    def close(self) -> Deferred[None]:
        """Close all connections. Fires when they are gone."""
        closing = [client.close() for client in self._clients.values()]
        return DeferredList(closing).addCallback(lambda _: None)
