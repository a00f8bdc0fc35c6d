"""Every row of the micro-benchmark runs on the data path as it is."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from bench.micro import ROWS


class RowTests(SynchronousTestCase):
    """``ROWS``."""

    def test_run(self) -> None:
        """Each row can be made and called again and again."""
        for row in ROWS:
            call = row.make()
            call()
            call()

    def test_over(self) -> None:
        """A ratio is taken to a row that exists."""
        self.assertEqual({row.over for row in ROWS} - {row.name for row in ROWS} - {None}, set())
