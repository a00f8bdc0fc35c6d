"""Hosts cut into slots: which devices, which port, how many."""

from __future__ import annotations

from attrs import frozen

from ..config.model import HostConfig, authority, in_filling_order
from ..errors import ConfigError


@frozen
class Slot:
    """One place where one replica fits.

    :ivar name: ``<host>-d<first device>``, as in the manual's ``node02-d1``.
    :ivar host: the name of the declared host it belongs to.
    :ivar devices: the group of cards, in declared order.
    :ivar address: where the router reaches it: 127.0.0.1 or the host part of the ssh destination.
    :ivar port: ``port_base`` plus the first device.
    :ivar model: what its replica serves; launch times are remembered by host and model.
    """

    name: str
    host: str
    devices: tuple[int, ...]
    address: str
    port: int
    health_path: str = "/health"
    model: str = ""

    @property
    def url(self) -> str:
        """``http://address:port``."""
        return f"http://{authority(self.address, self.port)}"


@frozen
class Handle:
    """What identifies a launched process later, over restarts of the router.

    :ivar instance: the random name of this launch; also the marker in the process's environment.
    :ivar pid: the process (and process group) id on its host, or None when a broker did not tell.
    :ivar started: the kernel's start time of that pid, as an opaque string, or None; pid and start time
        together never name a stranger.
    :ivar log_path: where its output goes, on its host.
    """

    slot: str
    instance: str
    pid: int | None
    started: str | None
    log_path: str


@frozen
class Pool:
    """Every slot, and how many of them may be taken.

    :ivar slots: in the order in which they are filled.
    :ivar ceiling: how many replicas may be launched at once.
    :ivar initial: how many are launched at the start.
    """

    slots: tuple[Slot, ...] = ()
    ceiling: int = 0
    initial: int = 0


def cut_slots(hosts: tuple[HostConfig, ...]) -> tuple[Slot, ...]:
    """Cut hosts into slots, in the order in which they are filled."""
    return tuple(
        Slot(
            host.slot_name(group),
            host.name,
            group,
            host.address,
            host.slot_port(group),
            host.health_path,
            host.model,
        )
        for host in in_filling_order(hosts)
        for group in host.groups
    )


def plan_pool(hosts: tuple[HostConfig, ...], initial: int | None, most: int | None) -> Pool:
    """Size the pool.

    :param initial: ``--initial-replicas``; None means 1 when hosts are declared, else 0.
    :param most: ``--max-replicas``; None means the declared pool.
    :raises ConfigError: more are to be launched at the start than the pool can hold.
    """
    slots = cut_slots(hosts)
    ceiling = len(slots) if most is None else min(most, len(slots))
    if initial is None:
        initial = min(1, ceiling)
    if initial > ceiling:
        capped = "" if most is None else f", capped by max_replicas={most}"
        raise ConfigError(
            (f"initial_replicas={initial} exceeds the pool ceiling {ceiling} (declared devices{capped})",)
        )
    return Pool(slots, ceiling, initial)
