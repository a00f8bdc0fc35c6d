"""The frozen read model of the fleet: what ``/health``, ``/replicas`` and ``/metrics`` are rendered from."""

from __future__ import annotations

from attrs import field, frozen

from .effects import Phase
from .records import Reservation


@frozen
class ReplicaView:
    """One replica at one moment.

    :ivar age: seconds it has been in its phase, or None when that is not known.
    :ivar why: what went wrong with it, or why it is being stopped; empty when nothing did.
    :ivar elapsed: seconds since its launch was asked for, while it is starting; None otherwise.
    :ivar eta: seconds until it should be ready, after the last launch of this model on this host; None
        when there was none.
    :ivar retry_in: seconds until it is launched anew, while a lost replica waits for that; None otherwise.
    :ivar losses: how many times in a row its slot has lost a replica.
    """

    name: str
    instance: str
    url: str
    ready: bool
    phase: Phase
    draining: bool
    owned: bool
    outstanding: int
    routed: int
    age: float | None = None
    why: str = ""
    elapsed: float | None = None
    eta: float | None = None
    retry_in: float | None = None
    losses: int = 0


@frozen
class UnconfirmedView:
    """A slot kept from every launch until a person releases it.

    :ivar age: seconds it has been reserved.
    """

    slot: str
    instance: str
    reason: Reservation
    why: str
    age: float
    devices: tuple[int, ...]
    address: str
    port: int


@frozen
class FailureView:
    """The last thing that went wrong on a slot.

    :ivar tail: the last lines the replica wrote, or empty.
    :ivar age: seconds ago.
    """

    slot: str
    instance: str
    why: str
    tail: str
    age: float


@frozen
class CapacityView:
    """What the router may launch on, and what it has launched.

    :ivar owned: replicas the router has launched or adopted and not yet seen stopped.
    :ivar ceiling: how many it may have at once.
    :ivar free_slots: where a launch could go, abandoned slots included.
    :ivar abandoned: free slots that lost too many replicas in a row; only a person uses them again.
    """

    owned: int = 0
    ceiling: int = 0
    free_slots: tuple[str, ...] = ()
    unconfirmed: tuple[UnconfirmedView, ...] = ()
    abandoned: tuple[str, ...] = ()
    failures: tuple[FailureView, ...] = ()


@frozen
class FleetView:
    """The whole fleet at one moment."""

    replicas: tuple[ReplicaView, ...]
    sessions: int
    routed: int
    affinity_hits: int
    rejected: int
    capacity: CapacityView = field(factory=CapacityView)

    @property
    def ready(self) -> int:
        """How many replicas can be given new work."""
        return sum(1 for replica in self.replicas if replica.ready and not replica.draining)

    @property
    def eta(self) -> float | None:
        """Seconds until the next starting replica should be ready, or None when that is not known."""
        return min((replica.eta for replica in self.replicas if replica.eta is not None), default=None)

    @property
    def failed(self) -> int:
        """How many replicas served once and stopped answering."""
        return sum(1 for replica in self.replicas if replica.phase is Phase.FAILED)
