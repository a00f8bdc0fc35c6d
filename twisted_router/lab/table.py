"""Policies by rows, in percent against the baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from attrs import frozen

from .rows import Result, Row, Variant, run_row
from .variants import BASELINE, BY_NAME

#: Told what is being run, before it is.
Progress = Callable[[str], None]


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


def compare(
    rows: Sequence[Row], variants: Sequence[Variant], seeds: Sequence[int], progress: Progress
) -> dict[tuple[str, str], Cell]:
    """Run everything; return a cell for each (variant, row)."""
    cells = {}
    for row in rows:
        progress(f"{row.name}: {BASELINE}")
        base = [run_row(row, BY_NAME[BASELINE], seed) for seed in seeds]
        for variant in variants:
            if variant.name == BASELINE:
                results = base
            else:
                progress(f"{row.name}: {variant.name}")
                results = [run_row(row, variant, seed) for seed in seeds]
            cells[variant.name, row.name] = _cell(results, base)
    return cells


def _cell(results: Sequence[Result], base: Sequence[Result]) -> Cell:
    changes = [100.0 * (one.value / other.value - 1.0) for one, other in zip(results, base, strict=True)]
    return Cell(
        fmean(changes),
        max(changes) - min(changes),
        fmean(one.value for one in results),
        fmean(one.cached for one in results),
    )


def render(
    cells: dict[tuple[str, str], Cell], rows: Sequence[Row], variants: Sequence[Variant], seeds: Sequence[int]
) -> list[str]:
    """The table as lines of text."""
    first = max(len("policy"), *(len(variant.name) for variant in variants))
    widths = [max(7, len(row.name)) for row in rows]

    def line(head: str, words: Sequence[str]) -> str:
        padded = "  ".join(word.rjust(width) for word, width in zip(words, widths, strict=True))
        return f"{head.ljust(first)}  {padded}"

    lines = [
        f"change against {BASELINE} in percent, mean of seeds {', '.join(map(str, seeds))}; "
        f"more is better where marked +, less elsewhere; last, {BASELINE}'s own figures",
        line("policy", [row.name + ("+" if row.more else "") for row in rows]),
    ]
    for variant in variants:
        words = [f"{cells[variant.name, row.name].change:+.1f}" for row in rows]
        lines.append(line(variant.name, words))
    base = [f"{cells[BASELINE, row.name].value:.1f}" for row in rows if (BASELINE, row.name) in cells]
    if len(base) == len(rows):
        lines.append(line(f"({BASELINE})", base))
    return lines
