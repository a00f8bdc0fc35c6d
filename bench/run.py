"""``python -m bench``: measure this router beside its peers, on loopback, every process bounded and ended."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from bench import crash, death, decisions, micro, pressure, reach, scale, soak
from bench.cases import CASES
from bench.engines import STARTERS, WIRE, Engine, starters
from bench.live import command as live
from bench.processes import Unavailable, children
from bench.report import OUT, keep
from bench.tables import bar_table, case_table, medians
from bench.tools import run_load, start_stub


def wire(options: argparse.Namespace) -> int:
    """Each case for each engine in turn, round by round; 1 when ours made an error."""
    chosen = starters(options.engines.split(","), options.variant)
    results: dict[str, dict[str, list[dict[str, Any]]]] = {}
    summary: dict[str, dict[str, dict[str, float]]] = {}
    with children(OUT / "logs") as family:
        replicas = start_stub(family, ports=options.replica_count)
        engines: list[Engine] = []
        for name, start in chosen.items():
            try:
                engines.append(start(family, name, replicas, OUT))
            except Unavailable as problem:
                print(f"without {name}: {problem}", file=sys.stderr)
                if options.command == "wire" or name == "us":
                    return 1
        keys = options.cases.split(",")
        count = len(keys) * len(engines) * options.rounds
        print(f"{count} measurements, about {count * (options.seconds + 1):.0f} s\n", flush=True)
        for key in keys:
            case, seen = CASES[key], results.setdefault(key, {engine.name: [] for engine in engines})
            for turn in range(options.rounds):
                at = turn % len(engines)
                for engine in engines[at:] + engines[:at]:
                    flags = {**case.flags, "seconds": options.seconds}
                    seen[engine.name].append(run_load(engine.port, flags, engine.pids))
            summary[key] = medians(case, seen)
            print(case_table(case, summary[key]), end="\n\n", flush=True)
    if bars := bar_table(summary):
        print(bars, end="\n\n")
    keep(
        options.command,
        {"rounds": options.rounds, "seconds": options.seconds, "medians": summary, "raw": results},
        options.json,
    )
    return int(any(table.get("us", {}).get("errors") for table in summary.values()))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)

    def add(name: str, text: str, run: Any, rounds: int, seconds: float) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        sub.add_argument("--rounds", type=int, default=rounds, help="interleaved rounds (%(default)s)")
        sub.add_argument(
            "--seconds", type=float, default=seconds, help="length of one measurement (%(default)s)"
        )
        sub.add_argument(
            "--variant", action="append", default=[], metavar="NAME=COMMAND", help="another build of ours"
        )
        sub.add_argument("--json", metavar="FILE", help="where the JSON goes (bench/out)")
        return sub

    for name, text, engines in (
        ("wire", "straight to the stub, us and nginx in turn", WIRE),
        ("peers", "us and every peer in turn", list(STARTERS)),
    ):
        sub = add(name, text, wire, 5, 2.0)
        sub.add_argument("--engines", default=",".join(engines), help="%(default)s")
        sub.add_argument("--cases", default=",".join(CASES), help="%(default)s")
        sub.add_argument(
            "--replica-count", type=int, default=4, help="replicas behind each engine (%(default)s)"
        )
    sub = add("scale", "ours: replicas, open streams, pins", scale.scale, 3, 2.0)
    sub.add_argument("--part", action="append", choices=scale.PARTS, help="all of them unless named")
    for name, text in pressure.KINDS.items():
        sub = add(name, text, pressure.pressure, 1, 3.0)
        sub.add_argument("--engines", default=",".join(WIRE), help="%(default)s")
    add("gap", "how long our reactor is kept busy by 20 MB uploads", pressure.reactor_gap, 3, 3.0)
    sub = add("micro", "parts of the data path in this process, no sockets", micro.micro, 3, 0.3)
    sub.add_argument("--only", metavar="REGEX", help="rows whose name matches")
    sub.add_argument("--profile", action="store_true", help="show where the time of these rows goes instead")
    sub = commands.add_parser("decisions", help=decisions.TEXT, description=decisions.TEXT)
    sub.set_defaults(run=decisions.measure)
    sub.add_argument("--count", type=int, default=1000, help="decisions of each kind (%(default)s)")
    sub.add_argument("--json", metavar="FILE", help="where the JSON goes (bench/out)")
    sub = commands.add_parser("reach", help=reach.TEXT, description=reach.TEXT)
    sub.set_defaults(run=reach.reach)
    sub.add_argument("--row", default="fewshot", choices=("fewshot", "fewshot-many"), help="%(default)s")
    sub.add_argument("--tasks", type=int, default=4, help="tasks the row has (%(default)s)")
    sub.add_argument("--seeds", default="1,2,3", metavar="N,N", help="%(default)s")
    sub.add_argument("--seconds", type=float, default=60.0, help="for each search (%(default)s)")
    sub.add_argument("--json", metavar="FILE", help="where the JSON goes (bench/out)")
    sub = commands.add_parser("live", help=live.TEXT, description=live.TEXT)
    sub.set_defaults(run=live.live)
    sub.add_argument("--rows", default="", metavar="NAME,NAME", help="all of them unless named")
    sub.add_argument("--candidates", default="", metavar="NAME,NAME", help="all of them unless named")
    sub.add_argument("--seeds", default="1", metavar="N,N", help="%(default)s")
    sub.add_argument(
        "--scale", type=float, default=1.0, help="times each row's own speed; less is slower (%(default)s)"
    )
    sub.add_argument("--limit", type=float, default=90.0, help="seconds one run may take (%(default)s)")
    sub.add_argument(
        "--nice", type=int, default=0, help="added to the priority number of every process (%(default)s)"
    )
    sub.add_argument("--list", action="store_true", help="name candidates and rows, run nothing")
    sub.add_argument("--json", metavar="FILE", help="where the JSON goes (bench/out)")
    sub = commands.add_parser("soak", help=soak.TEXT, description=soak.TEXT)
    sub.set_defaults(run=soak.soak)
    sub.add_argument("--minutes", type=float, default=30, help="length (%(default)s)")
    sub.add_argument("--json", metavar="FILE", help="where the JSON goes (bench/out)")
    for name, text, run in (
        ("death", "a replica killed outright under load, at default settings", death.death),
        ("crash", "the router killed under load and started again", crash.crash),
    ):
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        sub.add_argument("--clients", type=int, default=24, help="conversations (%(default)s)")
        sub.add_argument("--json", metavar="FILE", help="where the JSON goes (bench/out)")
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand; its exit status."""
    options = parser().parse_args(argv)
    if getattr(options, "cases", None) and (unknown := set(options.cases.split(",")) - set(CASES)):
        print(
            f"There is no case {', '.join(sorted(unknown))}; there are: {', '.join(CASES)}.", file=sys.stderr
        )
        return 2
    try:
        status: int = options.run(options)
    except Unavailable as problem:
        print(problem, file=sys.stderr)
        return 1
    return status
