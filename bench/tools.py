"""The stub replica and the load generator: compiled when there is a compiler, in Python otherwise."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from bench.processes import ROOT, Children, Unavailable

NATIVE = ROOT / "bench" / "native"
BIN = ROOT / "bench" / "bin"


def command(name: str, *, native: bool = True) -> list[str]:
    """The argv that runs ``stub`` or ``load``, built first when it is missing or older than its source."""
    compiler = shutil.which("cc") if native else None
    if compiler is None:
        return [sys.executable, "-m", f"bench.fallback.{name}"]
    built, sources = BIN / name, [NATIVE / f"{name}.c", NATIVE / "event.h"]
    if not built.exists() or built.stat().st_mtime < max(source.stat().st_mtime for source in sources):
        BIN.mkdir(exist_ok=True)
        fresh = BIN / f"{name}.{os.getpid()}"
        subprocess.run([compiler, "-O2", "-o", str(fresh), str(sources[0])], check=True)
        fresh.rename(built)
    return [str(built)]


def start_stub(family: Children, *, ports: int = 4, reply: int = 1024, native: bool = True) -> list[int]:
    """One stub process that plays *ports* replicas; returns where they listen."""
    argv = [*command("stub", native=native), "--ports", str(ports), "--reply", str(reply)]
    stub = family.start(f"stub-{ports}-{reply}", argv)
    assert stub.stdout is not None
    line = stub.stdout.readline()
    if not line:
        raise Unavailable("The stub replica did not start; its log lies in bench/out/logs.")
    listening: list[int] = json.loads(line)["ports"]
    return listening


def run_load(
    port: int, flags: Mapping[str, object], pids: list[int], *, native: bool = True
) -> dict[str, Any]:
    """Load *port* and return what the generator measured, with the cost of *pids*."""
    argv = [*command("load", native=native), "--port", str(port)]
    for flag, value in flags.items():
        argv += [f"--{flag}", str(value)]
    if pids:
        argv += ["--watch", ",".join(map(str, pids))]
    bound = sum(float(str(flags.get(key, 0))) for key in ("seconds", "warmup", "drain")) + 40
    done = subprocess.run(argv, capture_output=True, text=True, timeout=bound, check=True, cwd=ROOT)
    result: dict[str, Any] = json.loads(done.stdout)
    return result
