from __future__ import annotations

from collections.abc import Callable

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.proxy.deadlines import Deadlines


class DeadlinesTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.queue = Deadlines(self.clock, 10.0)
        self.fired: list[tuple[str, float]] = []

    def named(self, name: str) -> Callable[[], None]:
        return lambda: self.fired.append((name, self.clock.seconds()))

    def test_order(self) -> None:
        """Each is called at its own time, in the order of arming, and once."""
        self.queue.arm(self.named("a"))
        self.clock.advance(3)
        self.queue.arm(self.named("b"))
        self.queue.arm(self.named("c"))
        self.clock.pump([1] * 30)
        self.assertEqual(self.fired, [("a", 10), ("b", 13), ("c", 13)])
        self.assertEqual(len(self.queue), 0)

    def test_not_early(self) -> None:
        """Nothing is called before its time."""
        self.queue.arm(self.named("a"))
        self.clock.advance(9.999)
        self.assertEqual(self.fired, [])

    def test_again(self) -> None:
        """Arming what is armed starts its time anew, behind those armed meanwhile."""
        a = self.named("a")
        self.queue.arm(a)
        self.queue.arm(self.named("b"))
        self.clock.advance(6)
        self.queue.arm(a)
        self.clock.pump([1] * 20)
        self.assertEqual(self.fired, [("b", 10), ("a", 16)])

    def test_cancel(self) -> None:
        """What is cancelled is not called; cancelling what is not armed does nothing."""
        a = self.named("a")
        self.queue.arm(a)
        self.queue.arm(self.named("b"))
        self.queue.cancel(a)
        self.queue.cancel(a)
        self.clock.pump([1] * 20)
        self.assertEqual(self.fired, [("b", 10)])

    def test_one_timer(self) -> None:
        """However many are armed, the reactor has one timer to keep."""
        for number in range(100):
            self.queue.arm(self.named(str(number)))
            self.clock.advance(0.01)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.clock.advance(9.5)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.clock.pump([0.1] * 20)
        self.assertEqual((len(self.fired), self.clock.getDelayedCalls()), (100, []))

    def test_arming_within(self) -> None:
        """A call may arm another deadline, or itself again, and cancel its neighbour."""
        b = self.named("b")

        def a() -> None:
            self.fired.append(("a", self.clock.seconds()))
            self.queue.cancel(b)
            if len(self.fired) < 2:
                self.queue.arm(a)

        self.queue.arm(a)
        self.queue.arm(b)
        self.clock.pump([1] * 40)
        self.assertEqual(self.fired, [("a", 10), ("a", 20)])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_arming_within_delays_nobody(self) -> None:
        """One that arms itself anew when called leaves those behind it their time."""

        def a() -> None:
            self.queue.arm(a)

        self.queue.arm(a)
        self.clock.advance(3)
        self.queue.arm(self.named("b"))
        self.clock.pump([1] * 20)
        self.assertEqual(self.fired, [("b", 13)])
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)

    def test_stopping_within(self) -> None:
        """A call may stop the queue."""
        self.queue.arm(self.queue.stop)
        self.queue.arm(self.named("b"))
        self.clock.pump([1] * 20)
        self.assertEqual((self.fired, self.clock.getDelayedCalls()), ([], []))

    def test_a_call_that_raises(self) -> None:
        """One that raises does not take the deadlines behind it along."""
        self.queue.arm(lambda: [][0])
        self.queue.arm(self.named("b"))
        with self.assertRaises(IndexError):  # a real reactor logs it and goes on
            self.clock.advance(10)
        self.clock.advance(0)
        self.assertEqual([name for name, _ in self.fired], ["b"])

    def test_stop(self) -> None:
        """Stopping forgets all of them and the timer; the queue can be used again."""
        self.queue.arm(self.named("a"))
        self.queue.stop()
        self.assertEqual((len(self.queue), self.clock.getDelayedCalls()), (0, []))
        self.queue.arm(self.named("b"))
        self.clock.advance(10)
        self.assertEqual(self.fired, [("b", 10)])
