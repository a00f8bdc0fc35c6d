"""The closing line of ``make test`` tells the truth about what ran before it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

TALLY = Path(__file__).resolve().parent.parent / ".ci" / "tally.py"


class TallyTests(SynchronousTestCase):
    """What is printed last, and the exit code."""

    def _tally(self, *commands: str) -> tuple[int, list[str]]:
        done = subprocess.run(
            [sys.executable, str(TALLY), *commands],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
        return done.returncode, done.stdout.splitlines()

    def test_trial_passed(self) -> None:
        """Trial's closing line is shown and counted."""
        self.assertEqual(
            self._tally("echo 'PASSED (successes=12)'"),
            (0, ["PASSED (successes=12)", "12 passed, 0 failed"]),
        )

    def test_trial_failed(self) -> None:
        """Failures, errors and unexpected successes all fail; skips are neither."""
        closing = "FAILED (skips=1, failures=2, errors=3, unexpectedSuccesses=1, successes=4)"
        code, lines = self._tally(f"echo '{closing}'; exit 1")
        self.assertEqual((code, lines[-1]), (1, "4 passed, 6 failed"))

    def test_pytest(self) -> None:
        """Pytest's closing line is understood, with and without its long duration."""
        code, lines = self._tally("echo '1 failed, 178 passed, 1 error in 251.12s (0:04:11)'; exit 1")
        self.assertEqual((code, lines[-1]), (1, "178 passed, 2 failed"))

    def test_nested(self) -> None:
        """The total of a nested run stands for all that run printed, and is not shown a second time."""
        nested = "echo 'PASSED (successes=2)'; echo '2 passed, 0 failed'"
        self.assertEqual(
            self._tally(nested, "echo '3 passed in 0.1s'"),
            (0, ["PASSED (successes=2)", "3 passed in 0.1s", "5 passed, 0 failed"]),
        )

    def test_failure_without_a_count(self) -> None:
        """A command that fails before it counts anything is one failure, and the next still runs."""
        code, lines = self._tally("echo mypy is unhappy; exit 2", "echo 'PASSED (successes=1)'")
        self.assertEqual((code, lines[-1]), (1, "1 passed, 1 failed"))

    def test_count_with_exit_code_zero(self) -> None:
        """A counted failure fails the whole, even where the command forgot to."""
        self.assertEqual(self._tally("echo 'FAILED (failures=1)'")[0], 1)
