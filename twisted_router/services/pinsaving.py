"""Saves the session pins again and again, so that affinity survives the router."""

from __future__ import annotations

from collections.abc import Callable

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from ..core.sessions import Pins
from ..errors import StateFileError
from ..interfaces import IStateStore

#: Seconds between two saves; what a crash can cost of affinity.
INTERVAL = 2.0

#: A save that takes long is repeated less often: at most this share of the time goes into saving.
SHARE = 0.05

#: Calls a function where it does not keep the reactor waiting (``deferToThread``); fires with its result.
InThread = Callable[[Callable[[], None]], Deferred[None]]


class PinSaver(Service):
    """Saves pins that have changed, in a thread, one save at a time, and once more when stopped.

    :param now: monotonic seconds, as the pins use them.
    """

    _log = Logger()

    def __init__(
        self,
        pins: Pins,
        store: IStateStore,
        clock: IReactorTime,
        now: Callable[[], float],
        in_thread: InThread,
    ) -> None:
        self._pins = pins
        self._store = store
        self._clock = clock
        self._now = now
        self._in_thread = in_thread
        self._timer: IDelayedCall | None = None
        self._saving: Deferred[None] = succeed(None)
        self._saved: tuple[int, str, float] | None = None
        self._complained = False

    def startService(self) -> None:
        """Save from now on."""
        super().startService()
        self._wait(INTERVAL)

    def stopService(self) -> Deferred[None]:
        """Save a last time, after a save under way; fires when that is done."""
        super().stopService()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        last: Deferred[None] = Deferred()
        self._saving.addBoth(lambda _: self._save().addBoth(lambda _: last.callback(None)))
        return last

    def _wait(self, seconds: float) -> None:
        self._timer = self._clock.callLater(seconds, self._due)

    def _due(self) -> None:
        self._timer = None
        began = self._now()
        self._saving = self._save().addBoth(lambda _: self._again(self._now() - began))

    def _again(self, took: float) -> None:
        if self.running:
            self._wait(max(INTERVAL, took / SHARE))

    def _save(self) -> Deferred[None]:
        """Save what has changed; fires when it is done and never fails."""
        # Whatever happens to pins shows in their number or in the one that was used last.
        newest = self._pins.newest()
        state = None if newest is None else (len(self._pins), newest.session, newest.last)
        if state == self._saved:
            return succeed(None)
        pins, now = self._pins.copied(), self._now()
        saving = self._in_thread(lambda: self._store.save_pins(pin.record(now) for pin in pins))

        def saved(_: None) -> None:
            self._saved = state
            self._complained = False

        return saving.addCallbacks(saved, self._failed)

    def _failed(self, failure: Failure) -> None:
        """Say it once, not every two seconds while a disk is full."""
        if not self._complained:
            self._complained = True
            if failure.check(StateFileError):
                self._log.error("session pins are not saved: {why}", why=failure.getErrorMessage())
            else:
                self._log.failure("session pins are not saved", failure)
