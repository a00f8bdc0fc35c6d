"""A simulated replica that writes down the id of each request it gets, and does the harm a request asks for.

``python -m bench.soak_replica LEDGER [flags of the simulated replica]``
"""

from __future__ import annotations

import os
import sys

from twisted.web.server import NOT_DONE_YET, Request

from twisted_router.sim import replica
from twisted_router.sim.routes import Replica

_ledger = -1


class Noting(Replica):
    """The simulated replica with a ledger."""

    def render(self, request: Request) -> int:
        """Write the id down before anything else, so that a kill cannot lose it."""
        name = request.getHeader("x-soak-id")
        if name is not None:
            os.write(_ledger, f"{name}\n".encode())
        harm = request.getHeader("x-soak-harm")
        if harm == "reset":
            request.channel.transport.abortConnection()
            return NOT_DONE_YET
        if harm == "cut":
            request.setHeader("content-length", "1000")
            request.write(b"not all of it")
            request.channel.loseConnection()
            return NOT_DONE_YET
        return super().render(request)


def main() -> int:
    """Run it; the exit code."""
    global _ledger
    _ledger = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    # The program builds its replica by this name.
    replica.Replica = Noting  # type: ignore[misc]
    return replica.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
