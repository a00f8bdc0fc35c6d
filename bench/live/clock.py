"""Our router in a process whose policies see a clock that runs faster; its sockets' timers do not.

``python -m bench.live.clock SCALE [flags of pypto-serving-router]``
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.main import installReactor


class SteadyReactor(EPollReactor):  # type: ignore[misc]  # untyped upstream
    """A reactor that keeps the machine's clock, whichever it is given."""

    real = staticmethod(time.monotonic)
    seconds = property(lambda self: self.real, lambda self, given: None)


def faster(real: Callable[[], float], scale: float) -> Callable[[], float]:
    """A clock that begins where ``real`` is and runs ``scale`` times as fast."""
    began = real()
    return lambda: began + (real() - began) * scale


def main() -> int:
    """Run the router."""
    scale, *flags = sys.argv[1:]
    installReactor(SteadyReactor())
    time.monotonic = faster(time.monotonic, float(scale))
    from twisted_router.cli.main import serve

    return serve(flags)


if __name__ == "__main__":
    sys.exit(main())
