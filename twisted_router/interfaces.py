"""The seams: what one room may expect of another it must not import."""

from __future__ import annotations

from collections.abc import Iterable

from twisted.internet.defer import Deferred
from zope.interface import Interface

from .core.effects import RequestEnd
from .core.records import FleetRecord, PinRecord
from .core.slots import Handle, Slot


class IRecorder(Interface):
    """Is told what becomes of requests; implemented by ``telemetry.metrics``. Never raises, never waits."""

    def started() -> None:
        """A proxied request was accepted and begins."""

    def ended(outcome: RequestEnd) -> None:
        """A proxied request ended; called exactly once for each ``started``."""

    def connect_moved(from_replica: str, to_replica: str) -> None:
        """A refused connection went to another replica instead."""


class ILauncher(Interface):
    """Starts and stops replica processes on one host.

    Every call is bounded in time by the launcher itself; a hanging host delays nobody but itself. Nothing is
    ever signalled that is not proved to be the named instance (pid and start time, or the marker in its
    environment).
    """

    def launch(slot: Slot, instance: str) -> Deferred[Handle]:
        """Start a replica in ``slot``, detached, so that it outlives the router.

        Fires once the process exists (or the broker accepted it). Fails with ``LaunchFailed`` when nothing
        of it is left running, ``LaunchUncertain`` when that cannot be known. Takes the slot's lock file,
        which the replica inherits, and fails without touching anything when somebody else holds it or when
        something already answers on the slot's port.
        """

    def stop(slot: Slot, instance: str, handle: Handle | None, grace: float) -> Deferred[None]:
        """Stop one instance: TERM to its group, KILL after ``grace`` seconds, or the host's stop command.

        Fires once no process of the instance is left and the slot's lock is free. Fails with
        ``StopUnconfirmed`` when that cannot be shown. An instance that is already gone is a success.
        """

    def watch(handle: Handle) -> Deferred[str]:
        """Fire with a sentence ("exited with code 1") when the process is seen to have ended.

        Never fires where processes cannot be seen. Cancelling it ends the watch.
        """

    def is_held(slot: Slot) -> Deferred[bool]:
        """Fire with whether any process holds the slot's lock. Fails with ``StopUnconfirmed`` if unknown."""

    def is_running(slot: Slot, instance: str, handle: Handle | None) -> Deferred[bool]:
        """Fire with whether any process of the instance is left, by pid and start time or by its marker.

        Nothing is signalled. Fails with ``StopUnconfirmed`` if that cannot be known.
        """

    def tail(slot: Slot, lines: int) -> Deferred[str]:
        """Fire with the last lines of the slot's log, empty when there are none; never fails."""

    def close() -> Deferred[None]:
        """Give up connections and watches; running replicas are left alone."""


class IStateStore(Interface):
    """Remembers over a crash what the router launched, and which session lives where.

    Every failure is a ``StateFileError`` whose text names the file, the fact and the way out, and leaves
    what was stored before as it was.
    """

    def lock() -> None:
        """Keep every other router out until ``close``; a second call by the same router renews its pid."""

    def load() -> FleetRecord:
        """Return what was saved last, ages counted up to now; an empty record before the first save."""

    def save(record: FleetRecord) -> None:
        """Store ``record``; it is on the disk when this returns. Blocks for one fsync of a small file."""

    def load_pins() -> tuple[PinRecord, ...]:
        """Return the pins saved last, idle times counted up to now; never fails, at worst there are none."""

    def save_pins(pins: Iterable[PinRecord]) -> None:
        """Store the pins. Blocks, for 100,000 of them a good part of a second, so call it in a thread."""

    def close() -> None:
        """Let another router in."""
