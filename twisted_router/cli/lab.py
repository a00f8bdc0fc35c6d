"""``pypto-router lab``: compare routing policies on simulated replicas, or on recorded traffic."""

from __future__ import annotations

import sys
from typing import Any

from twisted.python import usage
from twisted.python.reflect import namedModule


def _names(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _seeds(text: str) -> tuple[int, ...]:
    seeds = tuple(int(word) for word in _names(text))
    if not seeds:
        raise ValueError("expected whole numbers with commas between them")
    return seeds


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError("expected a whole number of at least 1")
    return number


class LabOptions(usage.Options):
    """The command line of ``lab``."""

    synopsis = "lab [options]"
    longdesc = """Drive the router's own policies through simulated replicas in simulated time, and print how
much better or worse each is than least_conn. Nothing is started and no machine is contacted. A run with the
same seeds prints the same table.

With --replay the traffic is your own: JSON lines with time (seconds), session (or null), bytes or tokens of
the prompt, and output_tokens. The table comes on the standard output, progress on standard error."""

    optFlags = [["list", "l", "List policies and rows, and exit."]]
    optParameters: list[list[Any]] = [
        ["policies", "p", (), "Policies to compare, with commas between them; all when not given.", _names],
        ["rows", "r", (), "Rows of the table, with commas between them; all when not given.", _names],
        ["seeds", "s", (1, 2, 3), "Seeds to run each row with, with commas between them.", _seeds],
        ["replay", None, None, "Run this trace (JSON lines) instead of the rows."],
        ["replicas", None, 4, "Replicas the trace meets.", _positive],
        ["capacity", None, 900_000, "Tokens the cache of each of them holds.", _positive],
    ]

    def run(self) -> int:
        """Run what was asked for; give the exit code. The laboratory is a program of its own."""
        program = namedModule("twisted_router.lab.program")
        if self["list"]:
            return int(program.describe(sys.stdout))
        wish = program.Wish(
            self["policies"],
            self["rows"],
            self["seeds"],
            self["replay"],
            self["replicas"],
            self["capacity"],
        )
        return int(program.run(wish, sys.stdout, sys.stderr))
