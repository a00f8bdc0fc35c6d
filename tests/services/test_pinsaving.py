from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.services.fakes import Store
from twisted_router.core.records import PinRecord
from twisted_router.core.sessions import Pins
from twisted_router.services.pinsaving import INTERVAL, SHARE, PinSaver


class Saving(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.pins = Pins(ttl=600)
        self.store = Store()
        #: saves that were handed to a thread, each with what it waits for
        self.threads: list[tuple[Callable[[], None], Deferred[None]]] = []
        self.saver = PinSaver(self.pins, self.store, self.clock, self.clock.seconds, self.in_thread)
        self.saver.startService()
        self.addCleanup(self.saver.stopService)

    def in_thread(self, save: Callable[[], None]) -> Deferred[None]:
        self.threads.append((save, Deferred()))
        return self.threads[-1][1]

    def run_thread(self) -> None:
        """Let the thread do its work, whatever comes of it."""
        save, done = self.threads.pop(0)
        try:
            save()
        except Exception:
            done.errback()
        else:
            done.callback(None)

    def test_changed(self) -> None:
        """Pins are saved within the interval, as idle as they are then."""
        self.pins.place("s1", "static", 0.0)
        self.clock.advance(INTERVAL)
        self.run_thread()
        self.assertEqual(self.store.pins, (PinRecord("s1", "static", INTERVAL),))

    def test_unchanged(self) -> None:
        """What has not changed is not written again; an idle router leaves the disk alone."""
        self.clock.pump([INTERVAL] * 5)
        self.assertEqual(self.threads, [])
        self.pins.place("s1", "static", self.clock.seconds())
        self.clock.advance(INTERVAL)
        self.run_thread()
        self.clock.pump([INTERVAL] * 5)
        self.assertEqual(self.threads, [])

    def test_every_change(self) -> None:
        """A use, a move, a new pin and a pin less are each a change."""
        first = self.pins.place("s1", "a", 0.0)
        changes: list[Callable[[], object]] = [
            lambda: self.pins.touch(first, self.clock.seconds()),
            lambda: self.pins.place("s1", "b", self.clock.seconds()),
            lambda: self.pins.place("s2", "a", self.clock.seconds()),
            lambda: self.pins.release("s1"),
            lambda: self.pins.release("s2"),
        ]
        for change in changes:
            self.clock.advance(INTERVAL)
            if self.threads:
                self.run_thread()
            self.clock.advance(0.5)
            change()
            self.clock.advance(INTERVAL)
            self.run_thread()
        self.assertEqual(self.store.pins, ())

    def test_one_at_a_time(self) -> None:
        """While a save is under way no other begins; a long one is followed by a long pause."""
        self.pins.place("s1", "a", 0.0)
        self.clock.advance(INTERVAL)
        self.clock.pump([1.0] * 10)
        self.assertEqual(len(self.threads), 1)
        self.run_thread()
        self.pins.place("s2", "a", self.clock.seconds())
        self.clock.advance(10 / SHARE - 0.1)
        self.assertEqual(self.threads, [])
        self.clock.advance(0.1)
        self.assertEqual(len(self.threads), 1)

    def test_full_disk(self) -> None:
        """A save that fails is tried again; a person is told once, not every time."""
        self.store.full = "full"
        self.pins.place("s1", "a", 0.0)
        for _ in range(3):
            self.clock.advance(INTERVAL)
            self.run_thread()
        self.store.full = None
        self.clock.advance(INTERVAL)
        self.run_thread()
        self.assertEqual(len(self.store.pins), 1)

    def test_broken(self) -> None:
        """A save that breaks is logged, once, and tried again."""
        self.store.save_pins = lambda pins: 1 / 0  # type: ignore[method-assign,assignment,return-value]
        self.pins.place("s1", "a", 0.0)
        for _ in range(3):
            self.clock.advance(INTERVAL)
            self.run_thread()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_last_save(self) -> None:
        """Stopping saves once more and is done when that is done."""
        self.pins.place("s1", "a", 0.0)
        stopped = self.saver.stopService()
        self.assertNoResult(stopped)
        self.run_thread()
        self.successResultOf(stopped)
        self.assertEqual(len(self.store.pins), 1)
        self.assertEqual((self.threads, self.clock.getDelayedCalls()), ([], []))

    def test_last_save_waits(self) -> None:
        """The last save comes after one that is still under way, and has the newest pins."""
        self.pins.place("s1", "a", 0.0)
        self.clock.advance(INTERVAL)
        self.pins.place("s2", "a", self.clock.seconds())
        stopped = self.saver.stopService()
        self.assertEqual(len(self.threads), 1)
        self.run_thread()
        self.assertNoResult(stopped)
        self.run_thread()
        self.successResultOf(stopped)
        self.assertEqual((len(self.store.pins), self.clock.getDelayedCalls()), (2, []))

    def test_last_save_fails(self) -> None:
        """A last save that fails does not keep the router from stopping."""
        self.store.full = "full"
        self.pins.place("s1", "a", 0.0)
        stopped = self.saver.stopService()
        self.run_thread()
        self.successResultOf(stopped)
