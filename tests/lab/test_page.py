"""The laboratory's page keeps up with the program."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.cli.lab import LabOptions
from twisted_router.core.policies.registry import POLICIES
from twisted_router.lab.rows import ROWS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "laboratory.rst").read_text(encoding="utf-8")


class PageTests(SynchronousTestCase):
    def test_rows(self):
        """Every row has its entry, and no other."""
        table = PAGE.partition("\nThe rows\n")[2].partition("\nYour own traffic\n")[0]
        self.assertEqual(re.findall(r"^``([^`]+)``", table, re.MULTILINE), [row.name for row in ROWS])
        plain = " ".join(table.split())
        for row in ROWS:
            self.assertIn(row.about[1:], plain)

    def test_policies(self):
        """Every policy has its line in both halves of the table of this release."""
        table = PAGE.partition("\nThe table of this release\n")[2].partition("\nSeeds 4, 5 and 6")[0]
        for name in POLICIES:
            self.assertEqual(len(re.findall(rf"^``{name}`` .*[0-9]", table, re.MULTILINE)), 2, name)

    def test_flags(self):
        """Every flag the page gives to ``lab`` is one it has."""
        options = LabOptions()
        flags = {f"--{one[0]}" for one in (*options.optFlags, *options.optParameters)}
        flags |= {f"-{one[1]}" for one in (*options.optFlags, *options.optParameters) if one[1]}
        for line in re.findall(r"pypto-router lab( .*)", PAGE):
            self.assertEqual(set(re.findall(r" (--?[a-z]+)", line.partition("#")[0])) - flags, set())
