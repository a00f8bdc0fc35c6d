"""The frozen read model of the fleet: what ``/health``, ``/replicas`` and ``/metrics`` are rendered from."""

from __future__ import annotations

from attrs import frozen

from .effects import Phase


@frozen
class ReplicaView:
    """One replica at one moment."""

    name: str
    instance: str
    url: str
    ready: bool
    phase: Phase
    draining: bool
    owned: bool
    outstanding: int
    routed: int


@frozen
class FleetView:
    """The whole fleet at one moment."""

    replicas: tuple[ReplicaView, ...]
    sessions: int
    routed: int
    affinity_hits: int
    rejected: int

    @property
    def ready(self) -> int:
        """How many replicas can be given new work."""
        return sum(1 for replica in self.replicas if replica.ready and not replica.draining)

    @property
    def failed(self) -> int:
        """How many replicas served once and stopped answering."""
        return sum(1 for replica in self.replicas if replica.phase is Phase.FAILED)
