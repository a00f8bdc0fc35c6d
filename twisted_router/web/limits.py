"""What clients may take: bytes, time, connections, and the file descriptors those need."""

from __future__ import annotations

import resource
from contextlib import suppress

from attrs import define, field, frozen
from twisted.logger import Logger

from ..errors import Overloaded, RouterError

_log = Logger()

#: Descriptors for what is neither a client's nor a replica's connection: the reactor, logs, the state file. A
#: router at rest has a dozen; one of 64 more is for processes, which grow with the machine.
_OWN = 16


@frozen
class OpenFiles:
    """The limit on open files of this process.

    :ivar soft: the soft limit now.
    :ivar original: the one this process was started with, for what it launches; None if it is the same.
    """

    soft: int
    original: int | None


def raise_open_files() -> OpenFiles:
    """Raise the soft limit on open files to the hard one, as far as the system allows."""
    original, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if original != hard:
        with suppress(ValueError, OSError):  # an unlimited hard limit may be more than the kernel grants
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return OpenFiles(
        1 << 20 if soft == resource.RLIM_INFINITY else soft, original if soft != original else None
    )


@define
class Doors:
    """Counts the clients' connections and says when one more is too many.

    :ivar most: connections served at once.
    :ivar full: a connection whose descriptor has this number or a higher one is not served. The kernel gives
        out the lowest free number, so a high one says that nearly all of them are in use.
    :ivar shut: from this number on there is not even an answer.
    :ivar told: so many beyond ``most`` are answered, to let clients know why; more are just closed.
    """

    most: int
    full: int
    shut: int
    told: int
    inside: int = 0
    _turning_away: bool = field(default=False, init=False)

    @classmethod
    def of(cls, wanted: int | None, soft: int, replicas: int) -> Doors:
        """Plan with ``soft`` descriptors for ``replicas`` replicas and, at most, ``wanted`` clients.

        A proxied request takes two descriptors, one on each side, and a probe one.
        """
        spare = max(8, min(128, soft // 8))
        most = max(1, (soft - spare - _OWN - soft // 64 - replicas) // 2)
        if wanted is not None and wanted > most:
            _log.warn(
                "--max-connections {wanted}: the limit on open files, {soft}, is enough for {most} clients",
                wanted=wanted,
                soft=soft,
                most=most,
            )
        return cls(most if wanted is None else min(wanted, most), soft - spare, soft - spare // 2, spare // 2)

    def enter(self, descriptor: int) -> RouterError | None:
        """Count a new connection; return why it is not served, or None.

        :raises Shut: it is not even to be answered. It is counted all the same.
        """
        self.inside += 1
        if self.inside <= self.most and descriptor < self.full:
            return None
        if self.inside > self.most:
            problem = Overloaded(f"{self.most} clients are connected already (--max-connections)")
        else:
            problem = Overloaded("the router is running out of file descriptors")
        if not self._turning_away:
            self._turning_away = True
            _log.warn("turning clients away: {why}", why=problem.message)
        if self.inside > self.most + self.told or descriptor >= self.shut:
            raise Shut
        return problem

    def leave(self) -> None:
        """A counted connection is gone."""
        self.inside -= 1
        if self._turning_away and self.inside <= self.most * 0.9:
            self._turning_away = False
            _log.info("clients are let in again: {inside} are connected", inside=self.inside)


class Shut(Exception):
    """Too many clients even to tell them."""


@frozen
class Limits:
    """What one client, and all of them together, may take; ``Doors`` count how many there are.

    :ivar body: bytes of one upload.
    :ivar bodies: bytes of all uploads held at once.
    :ivar idle: seconds a connection may wait for its next request.
    :ivar head: seconds a request's head may take, however steadily it trickles.
    :ivar stall: seconds in which an upload has to bring ``stall_bytes`` more.
    :ivar linger: seconds a refused client may go on sending before it is cut off.
    """

    body: int
    bodies: int
    idle: float = 120.0
    head: float = 30.0
    stall: float = 30.0
    stall_bytes: int = 16 * 1024
    linger: float = 5.0
