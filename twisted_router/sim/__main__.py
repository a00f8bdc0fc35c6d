"""``python -m twisted_router.sim``: one simulated replica in the foreground."""

from __future__ import annotations

import sys

from twisted_router.sim.replica import main

if __name__ == "__main__":
    sys.exit(main())
