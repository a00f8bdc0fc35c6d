"""The seams: what one room may expect of another it must not import."""

from __future__ import annotations

from zope.interface import Interface

from .core.effects import Outcome


class IRecorder(Interface):
    """Is told what becomes of requests; implemented by ``telemetry.metrics``. Never raises, never waits."""

    def started() -> None:
        """A proxied request was accepted and begins."""

    def ended(outcome: Outcome) -> None:
        """A proxied request ended; called exactly once for each ``started``."""

    def connect_moved(from_replica: str, to_replica: str) -> None:
        """A refused connection went to another replica instead."""
