from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.config.model import Settings
from twisted_router.core.places import Rules


class RulesTests(SynchronousTestCase):
    def test_defaults(self) -> None:
        """The manual's defaults."""
        rules = Rules.of(Settings())
        self.assertEqual((rules.launch_timeout, rules.drain_timeout, rules.replace_after), (600, 300, 30))
        self.assertEqual((rules.backoff, rules.losses_allowed, rules.proven), (10, 3, 600))
        self.assertEqual(rules, Rules())

    def test_floor(self) -> None:
        """Dead is never decided in less than two health intervals."""
        for interval, after, expected in ((5, 30, 30), (15, 30, 30), (20, 30, 40), (5, 1, 10)):
            settings = Settings(health_interval=interval, replace_after=after)
            self.assertEqual(Rules.of(settings).replace_after, expected)

    def test_settings_are_taken_over(self) -> None:
        """Launch and drain timeout come from the command line."""
        rules = Rules.of(Settings(launch_timeout=7, drain_timeout=8))
        self.assertEqual((rules.launch_timeout, rules.drain_timeout), (7, 8))
