"""One line about a command line."""

from __future__ import annotations

from twisted.python import usage
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.cli.main import MainOptions
from twisted_router.complaint import complaint


class ComplaintTests(SynchronousTestCase):
    """``complaint`` on what parsing raises."""

    def said(self, line: str) -> str:
        options = MainOptions()
        problem = self.assertRaises(usage.UsageError, options.parseOptions, line.split())
        return complaint(options, problem)

    def test_flag(self) -> None:
        """An unknown flag names the nearest one of its own command."""
        self.assertEqual(self.said("demo --prot 1"), "option --prot not recognized; did you mean --port?")

    def test_flag_unlike_any(self) -> None:
        """One that is like none is only named."""
        self.assertEqual(self.said("demo --zzzzzz"), "option --zzzzzz not recognized")

    def test_command(self) -> None:
        """An unknown command names the nearest one, or all."""
        self.assertEqual(self.said("dmo"), "unknown command 'dmo'; did you mean demo?")
        self.assertIn("try demo, sim, check-config", self.said("xyz"))

    def test_value(self) -> None:
        """A value that cannot be read names its flag."""
        self.assertEqual(
            self.said("demo --replicas many"), "--replicas: expected a number between 1 and 32, got 'many'"
        )

    def test_stray_word(self) -> None:
        """A word that belongs to no flag is said to be one."""
        self.assertEqual(self.said("demo now"), "takes flags only, found a word that belongs to none")

    def test_no_command(self) -> None:
        """Without a command, all are named."""
        self.assertEqual(self.said(""), "expected a command: demo, sim, check-config, lab, serve")
