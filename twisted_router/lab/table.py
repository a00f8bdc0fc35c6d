"""Policies by rows, in percent against the baseline."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import fmean

from attrs import frozen

from .rows import Result, Row, Variant
from .runs import Progress, Run, run_all
from .variants import BASELINE, BY_NAME


@frozen
class Cell:
    """One policy in one row.

    :ivar change: percent against the baseline, mean over the seeds.
    :ivar spread: percentage points between the best and the worst seed.
    :ivar value: mean of the row's own measure.
    :ivar cached: share of prompt tokens found in caches.
    """

    change: float
    spread: float
    value: float
    cached: float


#: Cells by the names of policy and row.
Cells = Mapping[tuple[str, str], Cell]


def compare(
    rows: Sequence[Row],
    variants: Sequence[Variant],
    seeds: Sequence[int],
    progress: Progress,
    processes: int = 1,
) -> dict[tuple[str, str], Cell]:
    """Run everything, the baseline with it; return a cell for each (variant, row)."""
    lines = {variant.name: variant for variant in (BY_NAME[BASELINE], *variants)}
    runs = {
        (name, row.name): [Run(row, variant, seed) for seed in seeds]
        for row in rows
        for name, variant in lines.items()
    }
    results = run_all([run for some in runs.values() for run in some], processes, progress)
    got = {key: [results[run] for run in some] for key, some in runs.items()}
    return {(name, row): _cell(some, got[BASELINE, row]) for (name, row), some in got.items()}


def _cell(results: Sequence[Result], base: Sequence[Result]) -> Cell:
    changes = [100.0 * (one.value / other.value - 1.0) for one, other in zip(results, base, strict=True)]
    return Cell(
        fmean(changes),
        max(changes) - min(changes),
        fmean(one.value for one in results),
        fmean(one.cached for one in results),
    )


def best(cells: Cells, row: Row, names: Collection[str]) -> str | None:
    """The name of the policy with the best change in a row; the first of equals, None of none."""
    there = [name for name in names if (name, row.name) in cells]
    sign = -1.0 if row.more else 1.0
    return min(there, key=lambda name: sign * cells[name, row.name].change, default=None)


def render(
    cells: Cells,
    rows: Sequence[Row],
    variants: Sequence[Variant],
    seeds: Sequence[int],
    rivals: Collection[str] = (),
) -> list[str]:
    """The table as lines of text.

    :param rivals: names of the policies among which the best of each row is marked.
    """
    first = max(len("policy"), *(len(variant.name) for variant in variants))
    widths = [max(7, len(row.name) + 1) for row in rows]

    def line(head: str, words: Sequence[str]) -> str:
        padded = "  ".join(word.rjust(width) for word, width in zip(words, widths, strict=True))
        return f"{head.ljust(first)}  {padded}".rstrip()

    marked = " * marks the best of the policies by name;" if rivals else ""
    lines = [
        f"change against {BASELINE} in percent, mean of seeds {', '.join(map(str, seeds))}; "
        f"more is better where marked +, less elsewhere;{marked} last, {BASELINE}'s own figures",
        line("policy", [row.name + ("+" if row.more else " ") for row in rows]),
    ]
    winners = {row.name: best(cells, row, rivals) for row in rows}
    for variant in variants:
        words = [
            f"{cells[variant.name, row.name].change:+.1f}{'*' if winners[row.name] == variant.name else ' '}"
            for row in rows
        ]
        lines.append(line(variant.name, words))
    base = [f"{cells[BASELINE, row.name].value:.1f} " for row in rows]
    lines.append(line(f"({BASELINE})", base))
    return lines
