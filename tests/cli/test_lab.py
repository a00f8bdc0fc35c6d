"""The command line of ``pypto-router lab``."""

from __future__ import annotations

from twisted.python import usage
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.cli.lab import LabOptions


class LabOptionsTests(SynchronousTestCase):
    def parse(self, *words):
        options = LabOptions()
        options.parseOptions(list(words))
        return options

    def test_lists(self):
        """Names and seeds are given with commas between them."""
        options = self.parse("--policies", "work, session", "-r", "short", "-s", "4,5")
        self.assertEqual(options["policies"], ("work", "session"))
        self.assertEqual(options["rows"], ("short",))
        self.assertEqual(options["seeds"], (4, 5))

    def test_defaults(self):
        """All policies, all rows, three seeds."""
        options = self.parse()
        self.assertEqual((options["policies"], options["rows"], options["seeds"]), ((), (), (1, 2, 3)))

    def test_refused(self):
        """Seeds and counts that are no numbers are refused with a sentence that names the flag."""
        for words, flag in (
            (("-s", "one"), "--seeds"),
            (("-s", ","), "--seeds"),
            (("--replicas", "0"), "--replicas"),
            (("--capacity", "much"), "--capacity"),
            (("-j", "0"), "--processes"),
        ):
            error = self.assertRaises(usage.UsageError, self.parse, *words)
            self.assertIn(f"{flag}: expected", str(error))

    def test_run(self):
        """What is asked for reaches the laboratory: an unknown policy is its answer, with exit code 1."""
        self.assertEqual(self.parse("--policies", "werk").run(), 1)
