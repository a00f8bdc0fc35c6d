"""How late the reactor is: what everything waits for that something else keeps it busy."""

from __future__ import annotations

from collections.abc import Callable

from twisted.application.service import Service
from twisted.internet.interfaces import IDelayedCall, IReactorTime

#: Seconds between two looks.
PERIOD = 0.25


class LagMeter(Service):
    """Asks to be called after ``PERIOD``, again and again, and tells how many seconds late that was."""

    def __init__(self, clock: IReactorTime, observe: Callable[[float], object]) -> None:
        self._clock = clock
        self._observe = observe
        self._call: IDelayedCall | None = None

    def startService(self) -> None:
        """Begin."""
        super().startService()
        self._again()

    def stopService(self) -> None:
        """End."""
        super().stopService()
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _again(self) -> None:
        self._call = self._clock.callLater(PERIOD, self._look, self._clock.seconds() + PERIOD)

    def _look(self, due: float) -> None:
        self._observe(max(0.0, self._clock.seconds() - due))
        self._again()
