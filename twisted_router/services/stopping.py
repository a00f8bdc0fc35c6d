"""One stop, from the order to its proof."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from ..core.effects import Stop
from ..errors import StopUnconfirmed
from ..interfaces import ILauncher
from .presence import Knock, remains

#: Seconds between two looks at an address that still answers.
PULSE = 0.5


class Stopping:
    """Stops an instance and proves it: the stop step succeeds, then its address is silent and its lock free.

    :param grace: seconds between TERM and KILL, and again, from the end of the stop step on, for the address
        and the lock (``--stop-grace``).
    """

    _log = Logger()

    def __init__(
        self,
        order: Stop,
        launcher: ILauncher,
        knock: Knock,
        clock: IReactorTime,
        now: Callable[[], float],
        grace: float,
    ) -> None:
        self._order = order
        self._launcher = launcher
        self._knock = knock
        self._clock = clock
        self._now = now
        self._grace = grace
        self._told = False
        self._kill: Deferred[None] | None = None

    def run(self) -> Deferred[None]:
        """Fire when the stop is proved. Fails with ``StopUnconfirmed``; cancelling gives up the proof."""
        return Deferred.fromCoroutine(self._run())

    def hasten(self) -> bool:
        """Kill now instead of after the grace period; tell whether that was still to be done."""
        if self._told or self._kill is not None:
            return False
        order = self._order
        self._kill = self._launcher.stop(order.slot, order.instance, order.handle, 0.0)
        self._kill.addErrback(self._not_killed)
        return True

    async def _run(self) -> None:
        order = self._order
        try:
            await self._launcher.stop(order.slot, order.instance, order.handle, self._grace)
        finally:
            self._told = True
            if self._kill is not None:
                self._kill.cancel()
        until = self._now() + self._grace
        while (left := await self._left()) is not None:
            if self._now() >= until:
                raise StopUnconfirmed(f"{left} {self._grace:g} s after the stop step")
            await deferLater(self._clock, PULSE)

    async def _left(self) -> str | None:
        """A host that cannot be asked for a moment is asked again, like one where something is left."""
        slot = self._order.slot
        try:
            return await remains(self._knock, slot.address, slot.port, self._launcher, slot)
        except StopUnconfirmed as error:
            return error.message

    def _not_killed(self, failure: Failure) -> None:
        """The first stop step is still under way and has the last word."""
        if not failure.check(CancelledError):
            why = failure.getErrorMessage()
            self._log.warn("slot {slot}: hastened stop: {why}", slot=self._order.slot.name, why=why)
