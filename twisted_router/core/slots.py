"""Hosts cut into slots: which devices, which port, how many."""

from __future__ import annotations

from attrs import frozen


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
        """``http://address:port``, IPv6 literals in brackets."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{address}:{self.port}"


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
