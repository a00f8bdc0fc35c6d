from __future__ import annotations

from twisted.internet.defer import CancelledError
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.errors import ShuttingDown
from twisted_router.services.traffic import Traffic


def nothing() -> None:
    """An abort that nobody is expected to call."""


def nothing_else() -> None:
    """Another one."""


class Gate(SynchronousTestCase):
    def setUp(self) -> None:
        self.traffic = Traffic()

    def test_count(self) -> None:
        """A request counts from its entry to its end, once, however often its end is told."""
        self.traffic.enter(nothing)
        self.traffic.enter(nothing_else)
        self.traffic.leave(nothing)
        self.traffic.leave(nothing)
        self.assertEqual(len(self.traffic), 1)

    def test_refuse(self) -> None:
        """A closing gate lets nobody in; those inside are left alone."""
        self.traffic.enter(nothing)
        self.traffic.refuse()
        self.assertRaises(ShuttingDown, self.traffic.enter, nothing)
        self.assertEqual(len(self.traffic), 1)

    def test_drained_at_once(self) -> None:
        """Without requests there is nothing to wait for."""
        self.successResultOf(self.traffic.drained())

    def test_drained_at_the_last(self) -> None:
        """Whoever waits is told when the last request ends, not before."""
        self.traffic.enter(nothing)
        self.traffic.enter(nothing_else)
        waiting = [self.traffic.drained() for _ in range(2)]
        self.traffic.leave(nothing)
        self.assertNoResult(waiting[0])
        self.traffic.leave(nothing_else)
        for one in waiting:
            self.successResultOf(one)

    def test_cancel(self) -> None:
        """One who waits no longer disturbs nobody else."""
        self.traffic.enter(nothing)
        impatient, patient = self.traffic.drained(), self.traffic.drained()
        impatient.cancel()
        self.failureResultOf(impatient, CancelledError)
        self.traffic.leave(nothing)
        self.successResultOf(patient)

    def test_cut(self) -> None:
        """Cutting aborts each request once, even when its end is told from within."""
        cut: list[str] = []

        def abort_first() -> None:
            cut.append("first")
            self.traffic.leave(abort_first)

        self.traffic.enter(abort_first)
        self.traffic.enter(lambda: cut.append("second"))
        self.assertEqual(self.traffic.cut(), 2)
        self.assertEqual(cut, ["first", "second"])
        self.assertEqual(len(self.traffic), 1)
