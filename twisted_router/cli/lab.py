"""``pypto-router lab``: compare routing policies on simulated replicas, or on recorded traffic."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from twisted.python.reflect import namedModule

from twisted_router.cli.command import CommandOptions

#: What is meant where nothing is given: everything, and three seeds.
_ALL: dict[str, tuple[object, ...]] = {"policies": (), "rows": (), "seeds": (1, 2, 3)}


def _names(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _seeds(text: str) -> tuple[int, ...]:
    words = _names(text)
    if not words or not all(word.isascii() and word.isdigit() for word in words):
        raise ValueError(f"--seeds: expected whole numbers with commas between them, got {text!r}")
    return tuple(int(word) for word in words)


def _count(flag: str) -> Callable[[str], int]:
    def count(text: str) -> int:
        if not (text.isascii() and text.isdigit() and int(text)):
            raise ValueError(f"{flag}: expected a whole number of at least 1, got {text!r}")
        return int(text)

    return count


class LabOptions(CommandOptions):
    """The command line of ``lab``."""

    synopsis = "[options]"
    longdesc = """Drive the router's own policies through simulated replicas in simulated time, and print how
much better or worse each is than least_conn. Nothing is started and no machine is contacted. A run with the
same seeds prints the same table.
The table comes on the standard output, with the best policy of each row marked, and after it what is
expected of `work` and whether it holds. Progress is shown where standard error is a terminal.
With --replay the traffic is your own: JSON lines with time (seconds), session (or null), bytes or tokens of
the prompt, and output_tokens."""

    optFlags = [["list", "l", "List policies and rows, and exit."]]
    optParameters: list[list[Any]] = [
        ["policies", "p", None, "Policies to compare, with commas between them; all when not given.", _names],
        ["rows", "r", None, "Rows of the table, with commas between them; all when not given.", _names],
        [
            "seeds",
            "s",
            None,
            "Seeds to run each row with, with commas between them (default: 1,2,3).",
            _seeds,
        ],
        ["replay", None, None, "Run this trace (JSON lines) instead of the rows."],
        ["replicas", None, 4, "Replicas the trace meets.", _count("--replicas")],
        ["capacity", None, 900_000, "Tokens the cache of each of them holds.", _count("--capacity")],
        [
            "processes",
            "j",
            None,
            "Runs to do at once (default: one for each processor).",
            _count("--processes"),
        ],
    ]

    def postOptions(self) -> None:
        """Fill in what was not given."""
        for name, meant in _ALL.items():
            if self[name] is None:
                self[name] = meant

    def run(self) -> int:
        """Run what was asked for; give the exit code. The laboratory is a program of its own."""
        program = namedModule("twisted_router.lab.program")
        if self["list"]:
            return int(program.describe(sys.stdout))
        given = ("policies", "rows", "seeds", "replay", "replicas", "capacity", "processes")
        wish = program.Wish(**{name: self[name] for name in given if self[name] is not None})
        return int(program.run(wish, sys.stdout, sys.stderr))
