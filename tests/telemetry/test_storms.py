from __future__ import annotations

from twisted.logger import LogEvent, Logger, LogLevel, formatEvent
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.telemetry.storms import BURST, WINDOW, Damped


class DampedTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.now = 0.0
        self.passed: list[LogEvent] = []
        self.log = Logger("here", observer=Damped(self.passed.append, lambda: self.now))

    def lines(self) -> list[str]:
        return [formatEvent(event) for event in self.passed]

    def test_storm(self) -> None:
        """Ten thousand warnings from one place are ten, and one line that says how many more there were."""
        for number in range(10_000):
            self.log.warn("replica {name} is gone", name=number)
        self.assertEqual(len(self.passed), BURST)
        self.now = WINDOW
        self.log.info("calm")
        self.assertEqual(len(self.passed), BURST + 2)
        self.assertEqual(
            self.lines()[BURST:],
            ["9990 more like this within 10 seconds were left out: replica {name} is gone", "calm"],
        )
        self.assertEqual(self.passed[BURST]["log_level"], LogLevel.warn)

    def test_again(self) -> None:
        """After the time, the same may be said again."""
        for _ in range(2):
            for _ in range(BURST + 1):
                self.log.error("broken")
            self.now += WINDOW
        self.assertEqual(self.lines().count("broken"), 2 * BURST)

    def test_others(self) -> None:
        """A storm hides nothing else."""
        for _ in range(100):
            self.log.warn("loud")
        self.log.warn("quiet")
        self.assertIn("quiet", self.lines())

    def test_information(self) -> None:
        """Lines that were asked for, such as one for each request, all come."""
        for _ in range(100):
            self.log.info("a request")
        self.assertEqual(len(self.passed), 100)

    def test_twisted(self) -> None:
        """What Twisted says of each connection is no line that was asked for."""
        log = Logger("twisted.internet.tcp.Port", observer=Damped(self.passed.append, lambda: self.now))
        for _ in range(100):
            log.info("closed")
        self.assertEqual(len(self.passed), BURST)

    def test_failures(self) -> None:
        """Tracebacks count as storms, whatever level they are logged at."""
        for _ in range(100):
            self.log.failure("crashed", Failure(ValueError()), level=LogLevel.info)
        self.assertEqual(len(self.passed), BURST)
