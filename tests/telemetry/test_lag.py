from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.telemetry.lag import PERIOD, LagMeter


class LagMeterTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.seen: list[float] = []
        self.meter = LagMeter(self.clock, self.seen.append)
        self.meter.startService()

    def test_punctual(self) -> None:
        """A reactor with nothing else to do is not late."""
        self.clock.pump([PERIOD] * 3)
        self.assertEqual(self.seen, [0.0, 0.0, 0.0])

    def test_late(self) -> None:
        """What kept the reactor busy shows, once."""
        self.clock.advance(PERIOD + 0.5)
        self.clock.advance(PERIOD)
        self.assertEqual(self.seen, [0.5, 0.0])

    def test_stop(self) -> None:
        """Nothing is left behind."""
        self.meter.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])
