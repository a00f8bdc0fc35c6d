"""What outlives the router: frozen values that the state file stores and the next start reads back."""

from __future__ import annotations

from enum import Enum

from attrs import frozen

from .slots import Handle


class Reservation(Enum):
    """Why a slot is kept from every launch until a person releases it."""

    STOP_UNCONFIRMED = "stop-unconfirmed"
    UNREACHABLE = "unreachable-at-startup"
    LEFT_CONFIG = "slot-left-config"


@frozen
class SlotRecord:
    """One slot on which a process of ours is, or may be.

    :ivar slot: its name when it was launched on; the configuration may have lost it since.
    :ivar instance: the launch that took it.
    :ivar handle: the launched process, or None when the router died before the launcher answered.
    :ivar reason: why it is reserved, or None while it is in service as far as the router knows.
    :ivar why: the sentence that goes with ``reason``.
    :ivar age: seconds it has been so; the file adds the time it lay on disk.
    """

    slot: str
    instance: str
    devices: tuple[int, ...]
    address: str
    port: int
    handle: Handle | None = None
    reason: Reservation | None = None
    why: str = ""
    age: float = 0.0


@frozen
class LaunchTime:
    """How many seconds the last successful launch of one model on one host took to be ready."""

    host: str
    model: str
    seconds: float


@frozen
class FleetRecord:
    """Everything that must survive the router, pins apart."""

    slots: tuple[SlotRecord, ...] = ()
    launch_times: tuple[LaunchTime, ...] = ()


@frozen
class PinRecord:
    """One conversation's home.

    :ivar home: the instance it is pinned to; a static replica's name.
    :ivar idle: seconds since its last use; the file adds the time it lay on disk.
    """

    session: str
    home: str
    idle: float
