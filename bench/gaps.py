"""``python -m bench.gaps FILE [router's options]``: the router, watched by a timer of 1 ms.

FILE gets a line each time the timer was late: monotonic seconds, and for how many of them nothing happened.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TextIO

from twisted.internet import epollreactor

from twisted_router.cli.main import serve

PERIOD = 0.001


def watch(reactor: epollreactor.EPollReactor, file: TextIO) -> None:
    """Note every turn of the reactor that took longer than a period."""

    def look(due: float) -> None:
        now = time.monotonic()
        if now - due > PERIOD:
            print(f"{now:.6f} {now - due:.6f}", file=file, flush=True)
        reactor.callLater(PERIOD, look, now + PERIOD)

    reactor.callLater(PERIOD, look, time.monotonic() + PERIOD)


def between(path: Path, began: float, ended: float) -> list[float]:
    """The gaps, in seconds, that were noted between two moments of the monotonic clock."""
    noted = (tuple(map(float, line.split())) for line in path.read_text().splitlines())
    return [gap for when, gap in noted if began <= when <= ended]


def main() -> int:
    """Run the router; the reactor it will use is installed here first."""
    path, sys.argv[1:] = sys.argv[1], sys.argv[2:]
    epollreactor.install()
    from twisted.internet import reactor

    with open(path, "w") as file:
        reactor.callWhenRunning(watch, reactor, file)  # type: ignore[attr-defined]
        return serve()


if __name__ == "__main__":
    sys.exit(main())
