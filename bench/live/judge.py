"""What the runs say: change against nginx, cache hits, and whether the bars hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from attrs import frozen

from bench.live.candidates import BASELINE, CANDIDATES, PIN
from bench.live.rows import ROWS
from bench.tables import render
from twisted_router.lab.rows import BY_NAME

#: Percentage points that ours may be behind the perfect pin, and percent behind nginx.
POINTS = 2.0

#: One run as ``bench.live.play`` prints it, with ``row``, ``candidate`` and ``seed``.
Run = Mapping[str, Any]


def _busy(run: Run) -> float:
    return float(run["load"]["busy"])


def _own(run: Run) -> float:
    return float(sum(run["load"][who] for who in ("router", "replicas", "driver")))


def _late(run: Run) -> float:
    return float(run["late"])


#: What else the machine did, and whether that can have mattered.
_CONDITIONS: tuple[tuple[str, Callable[[Run], float]], ...] = (
    ("machine busy", _busy),
    ("processors used by the run", _own),
    ("client late, simulated s", _late),
)


@frozen
class Cell:
    """One candidate in one row, over its seeds.

    :ivar change: percent against nginx at the same seed, median.
    :ivar hits: percent of prompt tokens found in caches, mean.
    :ivar failures: requests that failed.
    :ivar guessed: whether a run was cut short; the change is then that of the time a turn took.
    """

    change: float
    low: float
    high: float
    hits: float
    failures: int
    guessed: bool

    def __str__(self) -> str:
        marks = ("~" if self.guessed else "") + (f" {self.failures} failed" if self.failures else "")
        return f"{self.change:+.1f} ({self.hits:.0f}){marks}"


def change(run: Run, base: Run, row: str) -> float:
    """Percent by which ``run`` differs from ``base`` in ``row``; in time a turn when one was cut short."""
    if row in run["values"] and row in base["values"]:
        return 100.0 * float(run["values"][row] / base["values"][row] - 1.0)
    slower = run["turn"] / base["turn"]
    return 100.0 * float((1.0 / slower if BY_NAME[row].more else slower) - 1.0)


def cells(runs: Iterable[Run]) -> dict[tuple[str, str], Cell]:
    """A cell for each (candidate, row), of the seeds that nginx was run with too."""
    found = {(run["row"], run["candidate"], run["seed"]): run for run in runs}
    gathered: dict[tuple[str, str], list[tuple[Run, float]]] = {}
    for (played, candidate, seed), run in found.items():
        base = found.get((played, BASELINE, seed))
        if base is not None:
            for row in (played, *ROWS[played].also):
                gathered.setdefault((candidate, row), []).append((run, change(run, base, row)))
    return {where: _cell(seen) for where, seen in gathered.items()}


def _cell(seen: Sequence[tuple[Run, float]]) -> Cell:
    changes = [by for _, by in seen]
    return Cell(
        median(changes),
        min(changes),
        max(changes),
        100.0 * fmean(run["cached"] / max(run["prompt"], 1) for run, _ in seen),
        sum(sum(run["failures"].values()) for run, _ in seen),
        any(run["stopped"] for run, _ in seen),
    )


def table(found: Mapping[tuple[str, str], Cell], runs: Sequence[Run]) -> str:
    """Candidates by rows, then how busy the machine was and how late the client: mean and most."""
    rows = list(dict.fromkeys(row for _, row in found))
    names = list(dict.fromkeys(candidate for candidate, _ in found))
    lines = [[name, *(str(found.get((name, row), "-")) for row in rows)] for name in names]
    played = {row: name for name, live in ROWS.items() for row in (name, *live.also)}
    for head, figure in _CONDITIONS:
        seen = {row: [figure(run) for run in runs if run["row"] == played[row]] for row in rows}
        lines.append([head, *(f"{fmean(seen[row]):.2f}-{max(seen[row]):.2f}" for row in rows)])
    heads = [row + ("+" if BY_NAME[row].more else "") for row in rows]
    return render(["% against nginx (hits)", *heads], lines)


def bars(found: Mapping[tuple[str, str], Cell]) -> list[tuple[str, bool]]:
    """Each bar of ours that can be judged, as a sentence, and whether it holds."""
    verdicts = []
    for (name, row), cell in found.items():
        if not CANDIDATES[name].is_ours:
            continue
        worse = -cell.change if BY_NAME[row].more else cell.change
        pin = found.get((PIN, row))
        if row in ROWS and ROWS[row].conversations and pin is not None:
            behind = worse - (-pin.change if BY_NAME[row].more else pin.change)
            said = f"{name} {row}: {behind:+.1f} points behind the perfect pin, at most {POINTS:+.1f}"
            verdicts.append((said, behind <= POINTS))
        said = f"{name} {row}: {worse:+.1f} % worse than nginx, at most {POINTS:+.1f}"
        verdicts.append((said, worse <= POINTS))
        if cell.failures:
            verdicts.append((f"{name} {row}: {cell.failures} requests failed, none may", False))
    return verdicts
