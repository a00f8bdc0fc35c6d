"""Does a request cost the same with 200 replicas, 5,000 open streams or 100,000 pins?"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from typing import Any

from bench.cases import Case
from bench.engines import OURS, Engine, ours
from bench.processes import Children, children, rss_kb
from bench.report import OUT, keep
from bench.tables import medians, render
from bench.tools import run_load, start_stub

PINS = 100_000
#: Events per second over all streams together, so that only their number changes.
OFFERED = 10_000
#: Streams begin and end well outside the window, and all must end complete.
STREAM_SECONDS = 20

Rows = list[tuple[str, Engine, Case]]


def _start(family: Children, command: list[str], name: str, replicas: list[int]) -> Engine:
    return ours(command)(family, name, replicas, OUT)


def replica_rows(family: Children, command: list[str]) -> Rows:
    """Plain requests over 1 to 200 replicas."""
    case = Case("replicas", "request", {"connections": 32})
    ports = start_stub(family, ports=200)
    return [(f"{n} replicas", _start(family, command, f"us-{n}", ports[:n]), case) for n in (1, 4, 32, 200)]


def stream_rows(family: Children, command: list[str]) -> Rows:
    """The same events per second over 10 to 5,000 open streams."""
    engine = _start(family, command, "us-streams", start_stub(family, ports=5))
    rows: Rows = []
    for count in (10, 1000, 5000):
        rate = OFFERED // count
        flags: dict[str, object] = {
            "stream": 1,
            "connections": count,
            "rate": rate,
            "chunks": rate * STREAM_SECONDS,
        }
        rows.append(
            (f"{count} streams", engine, Case("streams", "chunk", {**flags, "warmup": 1, "drain": 60}))
        )
    return rows


def pin_rows(family: Children, command: list[str]) -> Rows:
    """Plain requests on a fresh router and on one that holds 100,000 pins, few or all of them in use."""
    ports = start_stub(family, ports=6)
    fresh, full = (_start(family, command, name, ports) for name in ("us-fresh", "us-full"))
    filling = {"connections": 32, "requests": PINS, "sessions": PINS, "warmup": 0, "seconds": 180}
    filled = run_load(full.port, filling, full.pids)
    print(f"pinned {filled['complete']} sessions, {filled['errors']} errors")
    few = Case("pins", "request", {"connections": 32, "sessions": 256})
    every = Case("pins", "request", {"connections": 32, "sessions": PINS})
    return [
        ("256 pins", fresh, few),
        ("100,000 pins, 256 used", full, few),
        ("100,000 pins, all used", full, every),
    ]


PARTS: dict[str, Callable[[Children, list[str]], Rows]] = {
    "replicas": replica_rows,
    "streams": stream_rows,
    "pins": pin_rows,
}


def measure(rows: Rows, rounds: int, seconds: float) -> dict[str, list[dict[str, Any]]]:
    """Interleaved rounds over *rows*; memory that was held before a row's load is kept beside its result."""
    raw: dict[str, list[dict[str, Any]]] = {name: [] for name, _, _ in rows}
    for _ in range(rounds):
        for name, engine, case in rows:
            before = rss_kb(engine.pids)
            result = run_load(engine.port, {**case.flags, "seconds": seconds}, engine.pids)
            raw[name].append({**result, "rss_kb_before": before})
    return raw


def scale(options: argparse.Namespace) -> int:
    """Each part by itself; ratios are to its first row. 1 when anything went wrong on the wire."""
    command = shlex.split(options.variant[0].partition("=")[2]) if options.variant else [str(OURS)]
    kept: dict[str, Any] = {}
    errors = 0.0
    for part in options.part or list(PARTS):
        with children(OUT / "logs") as family:
            rows = PARTS[part](family, command)
            raw = measure(rows, options.rounds, options.seconds)
        case = rows[0][2]
        table = medians(case, raw)
        first = table[rows[0][0]]["cpu"]
        lines = []
        for name, _, row_case in rows:
            row, results = table[name], raw[name]
            errors += row["errors"]
            grown = max(result["rss_kb"] - result["rss_kb_before"] for result in results)
            complete = min(result["complete"] for result in results)
            per = f"{grown / int(str(row_case.flags['connections'])):.1f}" if part == "streams" else "-"
            cost = [
                f"{row['cpu']:.1f}",
                f"{row['cpu_low']:.1f}-{row['cpu_high']:.1f}",
                f"{row['cpu'] / first:.2f}",
            ]
            lines.append([name, *cost, f"{row['rss_mb']:.0f}", per, str(complete), f"{row['errors']:.0f}"])
        unit = f"cpu/{case.unit} us"
        print(
            render([part, unit, "low-high", "x first", "RSS MB", "kB/stream", "complete", "errors"], lines),
            end="\n\n",
        )
        kept[part] = {"medians": table, "raw": raw}
    keep("scale", {"rounds": options.rounds, "seconds": options.seconds, **kept}, options.json)
    return 1 if errors else 0
