"""Many deadlines of one length behind a single timer."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime


class Deadlines:
    """Calls back whatever was armed ``seconds`` ago and not cancelled since.

    All deadlines of one queue have the same length, so they fall due in the order they were armed: arming and
    cancelling cost a dictionary entry, where a delayed call each would cost a heap.

    :ivar seconds: the length of each.
    """

    def __init__(self, clock: IReactorTime, seconds: float) -> None:
        self._clock = clock
        self.seconds = seconds
        self._due: dict[Callable[[], None], float] = {}
        self._timer: IDelayedCall | None = None

    def __len__(self) -> int:
        return len(self._due)

    def arm(self, expired: Callable[[], None]) -> None:
        """Call ``expired`` after the queue's time, counted from now even if it was armed before."""
        self._due.pop(expired, None)
        self._due[expired] = self._clock.seconds() + self.seconds
        if self._timer is None:
            self._timer = self._clock.callLater(self.seconds, self._wake)

    def cancel(self, expired: Callable[[], None]) -> None:
        """Forget a deadline; one that is not armed is none."""
        self._due.pop(expired, None)

    def stop(self) -> None:
        """Forget all deadlines."""
        self._due.clear()
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def _wake(self) -> None:
        # The timer that has just run stays in its place, so that arming within a call makes no second one.
        now = self._clock.seconds()
        try:
            while self._due:
                expired, due = next(iter(self._due.items()))
                if due > now:
                    break
                del self._due[expired]
                expired()
        finally:
            # Also when a call raised: those behind it keep their time.
            if self._timer is None or not self._timer.active():
                left = next(iter(self._due.values()), None)
                self._timer = (
                    None if left is None else self._clock.callLater(max(0.0, left - now), self._wake)
                )
