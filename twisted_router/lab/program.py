"""``pypto-router lab``: what is asked for, run, and printed."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import TextIO, TypeVar

from attrs import evolve, field, frozen

from ..core.policies.registry import POLICIES
from ..errors import ConfigError
from .bars import judge
from .engine import EngineModel
from .replay import read_trace, replay_row
from .rows import ROWS, Row, Variant
from .runs import Progress, Run, processors
from .table import compare, render
from .variants import RIVALS, VARIANTS


@frozen
class Wish:
    """What to run; empty tuples mean all.

    :ivar replay: a trace to run instead of the rows.
    :ivar replicas: how many replicas a trace meets.
    :ivar capacity: tokens the cache of each of them holds.
    :ivar processes: how many runs to do at once.
    """

    policies: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (1, 2, 3)
    replay: str | None = None
    replicas: int = 4
    capacity: int = EngineModel().capacity
    processes: int = field(factory=processors)


def describe(out: TextIO) -> int:
    """Print every policy with its parameters, and every row."""
    out.write("policies:\n")
    for variant in VARIANTS:
        entry = POLICIES.get(variant.name)
        out.write(f"  {variant.name:26}{_about(variant) if entry is None else entry.about}\n")
        if entry is not None:
            for parameter in entry.parameters:
                out.write(f"    {parameter.name + '=' + str(parameter.default):24}{parameter.about}\n")
            if entry.harm:
                out.write(f"    {'(beware)':24}{entry.harm}\n")
    out.write("rows:\n")
    for row in ROWS:
        out.write(f"  {row.name:26}{row.about}\n")
    return 0


def _about(variant: Variant) -> str:
    if variant.pooled:
        return "least_conn where all replicas share one cache without limit: no real fleet can"
    words = [] if variant.named else ["clients send no session ids"]
    if "gate" in variant.name:
        words.append("with the working-set gate")
        words.append("capacity reported" if variant.reports else "capacity learned from answers")
    return ", ".join(words) or "another basis of prefix"


def run(wish: Wish, out: TextIO, err: TextIO) -> int:
    """Print the table asked for on ``out``, progress on ``err`` if that is a terminal; give the exit code."""
    try:
        rows = _replayed(wish) if wish.replay is not None else pick(ROWS, wish.rows, "row")
        variants = pick(VARIANTS, wish.policies, "policy")
    except ConfigError as error:
        for problem in error.problems:
            err.write(f"{problem}\n")
        return 1
    seeds = wish.seeds if wish.replay is None else wish.seeds[:1]
    progress = _shown(err) if err.isatty() else _unseen
    try:
        cells = compare(rows, variants, seeds, progress, wish.processes)
    except KeyboardInterrupt:
        err.write("\ninterrupted\n")
        return 130
    rivals = RIVALS if wish.replay is None and len(variants) > 1 else ()
    for line in (*render(cells, rows, variants, seeds, rivals), *judge(cells)):
        out.write(f"{line}\n")
    return 0


def _shown(err: TextIO) -> Progress:
    """Keep one line of a terminal up to date."""
    started = monotonic()

    def progress(done: int, total: int, run: Run) -> None:
        what = f"{run.row.name}: {run.variant.name}, seed {run.seed}"
        end = "\n" if done == total else ""
        err.write(f"\r{monotonic() - started:6.1f} s  {done} of {total}  {what:60.60}{end}")
        err.flush()

    return progress


def _unseen(done: int, total: int, run: Run) -> None:
    """Nobody looks."""


Named = TypeVar("Named", Row, Variant)


def pick(there: Sequence[Named], names: Sequence[str], what: str) -> list[Named]:
    """Return those of these names, in the order asked for; all when none is.

    :raises ConfigError: a name that is not there.
    """
    known = {one.name: one for one in there}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(tuple(f"no {what} {name!r}; there are {', '.join(known)}" for name in unknown))
    return [known[name] for name in names] if names else list(there)


def _replayed(wish: Wish) -> list[Row]:
    assert wish.replay is not None
    try:
        with open(wish.replay, encoding="utf-8") as file:
            records = read_trace(file, wish.replay)
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise ConfigError((f"{wish.replay}: cannot be read: {reason}",)) from problem
    return [replay_row("replay", records, wish.replicas, evolve(EngineModel(), capacity=wish.capacity))]
