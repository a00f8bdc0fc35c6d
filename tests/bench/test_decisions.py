"""``python -m bench decisions``."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from bench.decisions import CASES, body_of, decisions, weigh


class DecisionTests(SynchronousTestCase):
    """What is measured, and that it is within its bars on a machine with nothing else to do."""

    def test_bodies(self) -> None:
        """A body is about as long as asked for."""
        for size in (30_000, 240_000):
            self.assertTrue(0.95 * size < len(body_of(size, "x")) < 1.05 * size, size)

    def test_bars(self) -> None:
        """The best of many decisions of each kind takes less than the median may."""
        for case in CASES:
            decide = decisions(case)
            self.assertLess(min(decide() for _ in range(100)), case.bar, case.name)

    def test_memory(self) -> None:
        """A conversation without an id, its text and its pin weigh less than a kilobyte."""
        few, more = weigh(False, 1000), weigh(False, 3000)
        self.assertLess((more - few) / 2000 * 1e6, 1000.0)
        self.assertGreater(more, few)
