"""What is kept of a run: its figures as JSON, with the facts about the machine that they need."""

from __future__ import annotations

import json
import os
import platform
import time
from pathlib import Path
from typing import Any

from bench.processes import ROOT

OUT = ROOT / "bench" / "out"


def facts() -> dict[str, Any]:
    """What must be known about a machine to read its figures."""
    load = os.getloadavg()
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "load_average": [round(value, 2) for value in load],
    }


def keep(name: str, document: dict[str, Any], to: str | None) -> None:
    """Write the run's JSON, and say where."""
    OUT.mkdir(exist_ok=True)
    path = Path(to) if to else OUT / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(json.dumps({**facts(), "command": name, **document}, indent=1) + "\n")
    print(f"kept in {path}")
