"""What is wrong with a command line, in one line with the nearest good spelling (pure)."""

from __future__ import annotations

import difflib
import re

from twisted.python import usage

_ENFORCED = "Parameter type enforcement failed: "


def complaint(options: usage.Options, problem: usage.UsageError) -> str:
    """The sentence for ``problem``, which parsing into ``options`` raised."""
    inner = getattr(options, "subOptions", None)
    if inner is not None:
        return complaint(inner, problem)
    text = str(problem).removeprefix(_ENFORCED)
    flag = re.fullmatch(r"option (--\S+) not recognized", text)
    if flag:
        known = ["--" + name.rstrip("=") for name in options.longOpt]
        return text + _nearest(flag[1], known)
    command = re.fullmatch(r"Unknown command: (.*)", text)
    if command:
        names = [str(row[0]) for row in getattr(options, "subCommands", ())]
        return f"unknown command {command[1]!r}" + (
            _nearest(command[1], names) or f"; try {', '.join(names)}"
        )
    if text == "Wrong number of arguments.":
        return "takes flags only, found a word that belongs to none"
    return text


def _nearest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {close[0]}?" if close else ""
