"""What clients may take: bytes, time, connections, and the file descriptors those need."""

from __future__ import annotations

import resource
from contextlib import suppress

from attrs import Factory, define, frozen

from ..errors import Overloaded, RouterError

#: Descriptors for what is neither a client's nor a replica's connection: logs, ssh, the state file.
_OWN = 32
#: Connections beyond the limit that are still answered, so that clients learn why; more are just closed.
_ANSWERED = 64


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
    """

    most: int
    full: int
    shut: int
    inside: int = 0

    @classmethod
    def of(cls, most: int | None, soft: int, replicas: int) -> Doors:
        """Plan with ``soft`` descriptors for ``replicas`` replicas; ``most`` is what the operator wants.

        A proxied request takes two descriptors, one on each side, and a probe one.
        """
        spare = max(8, min(128, soft // 8))
        if most is None:
            most = max(1, (soft - spare - _OWN - replicas) // 2)
        return cls(most, soft - spare, soft - spare // 2)

    def enter(self, descriptor: int) -> RouterError | None:
        """Count a new connection; return why it is not served, or None.

        :raises Shut: it is not even to be answered. It is counted all the same.
        """
        self.inside += 1
        if self.inside > self.most + _ANSWERED or descriptor >= self.shut:
            raise Shut
        if self.inside > self.most:
            return Overloaded(f"{self.most} clients are connected already (--max-connections)")
        if descriptor >= self.full:
            return Overloaded("the router is running out of file descriptors")
        return None

    def leave(self) -> None:
        """A counted connection is gone."""
        self.inside -= 1


class Shut(Exception):
    """Too many clients even to tell them."""


@frozen
class Limits:
    """What one client, and all of them together, may take.

    :ivar body: bytes of one upload.
    :ivar bodies: bytes of all uploads held at once.
    :ivar idle: seconds a connection may wait for its next request.
    :ivar head: seconds a request's head may take, however steadily it trickles.
    :ivar stall: seconds in which an upload has to bring ``stall_bytes`` more.
    :ivar linger: seconds a refused client may go on sending before it is cut off.
    :ivar doors: how many may be connected.
    """

    body: int
    bodies: int
    idle: float = 120.0
    head: float = 30.0
    stall: float = 30.0
    stall_bytes: int = 16 * 1024
    linger: float = 5.0
    doors: Doors = Factory(lambda: Doors.of(None, 1 << 20, 0))
