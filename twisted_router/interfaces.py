"""The seams: what one room may expect of another it must not import."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from zope.interface import Interface

from .core.effects import Outcome
from .core.slots import Handle, Slot


class IRecorder(Interface):
    """Is told what becomes of requests; implemented by ``telemetry.metrics``. Never raises, never waits."""

    def started() -> None:
        """A proxied request was accepted and begins."""

    def ended(outcome: Outcome) -> None:
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

    def tail(slot: Slot, lines: int) -> Deferred[str]:
        """Fire with the last lines of the slot's log, empty when there are none; never fails."""

    def close() -> Deferred[None]:
        """Give up connections and watches; running replicas are left alone."""
