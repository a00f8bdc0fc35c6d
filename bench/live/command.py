"""``python -m bench live``: every candidate in every row, on four simulated replicas."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.engines import Engine, wait_until_it_serves
from bench.launched import ask, until
from bench.live.candidates import BASELINE, CANDIDATES, Candidate
from bench.live.judge import bars, cells, table
from bench.live.rows import ROWS
from bench.live.texts import MODEL
from bench.processes import ROOT, Children, Unavailable, children, free_port, tree
from bench.report import OUT, keep
from twisted_router.lab.engine import BLOCK
from twisted_router.lab.rows import BY_NAME

TEXT = "the laboratory's workloads in real time: ours, nginx, vllm-router, a perfect pin; simulated replicas"

REPLICAS = 4

#: Tokens in one event of a stream: enough for a time to the first, few enough to carry at this speed.
EVENT = 80


class Fleet:
    """Four simulated replicas with the laboratory's engine, of one time scale."""

    def __init__(self, row: str, scale: float) -> None:
        self.row = row
        self.scale = scale
        self._model = BY_NAME[row].model
        self.ports: list[int] = []
        self.pids: list[int] = []

    def start(self, family: Children) -> None:
        """Start them; returns when all answer."""
        model = self._model
        flags = {
            "time-scale": self.scale,
            "block-size": BLOCK,
            "kv-tokens": model.capacity,
            "max-model-len": model.capacity // 2,
            "max-num-seqs": model.batch,
            "batch-tokens": model.budget,
            "prefill-rate": model.prefill,
            "step-ms": model.step * 1000,
            "attention-span": model.attention,
            "context-ns": model.context * 1e9,
            "stream-interval": EVENT,
            "model": MODEL,
        }
        words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
        started = []
        for number in range(REPLICAS):
            port = free_port()
            argv = [sys.executable, "-m", "twisted_router.sim", "--port", str(port), *words]
            started.append((family.start(f"live-sim{number}", argv), port))
        for process, port in started:
            wait_until_it_serves(process, port, "a simulated replica")
            self.ports.append(port)
            self.pids += tree(process.pid)

    def empty(self) -> None:
        """Wait for what an earlier run has left, then forget what it has cached."""
        for port in self.ports:
            until(lambda at=port: not self._seen(at)["running"], "idle replicas", 30)
            status, _ = ask(port, "POST", "/reset_prefix_cache")
            if status != 200 or self._seen(port)["blocks_idle"]:
                raise Unavailable(f"The replica on port {port} keeps its cache.")

    def requests(self) -> list[int]:
        """How many each has taken so far."""
        return [self._seen(port)["requests"] for port in self.ports]

    @staticmethod
    def _seen(port: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(ask(port, "GET", "/sim")[1])
        return found


def _started(family: Children, one: Candidate, fleet: Fleet) -> Engine | None:
    if one.start is None:
        return None
    return one.start(fleet.scale)(family, f"live-{one.name}", fleet.ports, OUT)


def run(one: Candidate, fleet: Fleet, seed: int, limit: float) -> dict[str, Any]:
    """One candidate, started for it, plays the row once on empty caches. :raises Unavailable: it cannot."""
    with children(OUT / "logs") as family:
        engine = _started(family, one, fleet)
        fleet.empty()
        before = fleet.requests()
        argv = [sys.executable, "-m", "bench.live.play", "--row", fleet.row, "--seed", str(seed)]
        ports = fleet.ports if engine is None else [engine.port]
        argv += ["--ports", ",".join(map(str, ports)), "--scale", str(fleet.scale), "--limit", str(limit)]
        watched = {"router": [] if engine is None else engine.pids, "replicas": fleet.pids}
        argv += ["--watch", json.dumps(watched), *([] if one.ids else ["--no-ids"])]
        began = time.monotonic()
        done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, timeout=limit + 60)
        if done.returncode:
            raise Unavailable(f"{one.name} {fleet.row}: the client failed: {done.stderr[-2000:]}")
        seen: dict[str, Any] = json.loads(done.stdout)
        served = [now - then for now, then in zip(fleet.requests(), before, strict=True)]
        took = round(time.monotonic() - began, 1)
    return {"row": fleet.row, "candidate": one.name, "seed": seed, "took": took, "served": served, **seen}


def _line(run: dict[str, Any]) -> str:
    values = " ".join(f"{name} {value:.1f}" for name, value in run["values"].items())
    load = " ".join(f"{name} {share:.2f}" for name, share in run["load"].items())
    hits = 100 * run["cached"] / max(run["prompt"], 1)
    failed = f" FAILED {run['failures']}" if run["failures"] else ""
    cut = " stopped at its limit" if run["stopped"] else ""
    return (
        f"{run['row']:8} seed {run['seed']} {run['candidate']:15} {run['took']:5.1f} s  {values}  "
        f"turn {run['turn']:.2f}  hits {hits:.1f} %  served {run['served']}  late {run['late']:.2f}  "
        f"{load}{cut}{failed}"
    )


@contextlib.contextmanager
def _preferred(nice: int) -> Iterator[None]:
    """Change the priority of this process and its children, and of their session while inside."""
    session = Path("/proc/self/autogroup")
    os.nice(nice)
    before = session.read_text().split()[-1] if nice and session.exists() else None
    try:
        if before is not None:
            session.write_text(str(nice))
        yield
    finally:
        if before is not None:
            session.write_text(before)


def live(options: argparse.Namespace) -> int:
    """Everything asked for; 1 when a bar is missed or a candidate is not there."""
    if options.list:
        print("\n".join(f"{one.name:16} {one.about}" for one in CANDIDATES.values()), end="\n\n")
        print("\n".join(f"{row.name:16} {BY_NAME[row.name].about}" for row in ROWS.values()))
        return 0
    rows = _named(options.rows, ROWS, "row")
    chosen = _named(options.candidates, CANDIDATES, "candidate")
    seeds = [int(seed) for seed in options.seeds.split(",")]
    began = time.monotonic()
    runs: list[dict[str, Any]] = []
    with _preferred(options.nice):
        whole = all([_row(row, chosen, seeds, options, runs) for row in rows])
    found = cells(runs)
    print(f"\n{table(found, runs)}\n" if found else "")
    verdicts = bars(found)
    print("\n".join(f"{'ok    ' if holds else 'MISSED'}  {said}" for said, holds in verdicts))
    print(f"{time.monotonic() - began:.0f} s in all")
    keep("live", {"seeds": seeds, "scale": options.scale, "runs": runs, "verdicts": verdicts}, options.json)
    return int(not whole or not all(holds for _, holds in verdicts))


def _row(
    row: str, chosen: list[str], seeds: list[int], options: argparse.Namespace, runs: list[dict[str, Any]]
) -> bool:
    """Add every candidate's runs of one row to ``runs``, nginx's first; whether there are all of them."""
    fleet, whole = Fleet(row, ROWS[row].scale * options.scale), True
    with children(OUT / "logs") as family:
        fleet.start(family)
        for seed in seeds:
            for name in sorted(chosen, key=lambda name: name != BASELINE):
                try:
                    runs.append(run(CANDIDATES[name], fleet, seed, options.limit))
                except Unavailable as problem:
                    whole = False
                    print(f"without {name}: {problem}", file=sys.stderr)
                else:
                    print(_line(runs[-1]), flush=True)
    return whole


def _named(wish: str, there: dict[str, Any], what: str) -> list[str]:
    names = wish.split(",") if wish else list(there)
    if unknown := [name for name in names if name not in there]:
        raise Unavailable(f"There is no {what} {', '.join(unknown)}; there are: {', '.join(there)}.")
    return names
