"""What is expected of ``work``, row by row, and whether it holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from attrs import frozen

from .rows import BY_NAME as ROWS
from .table import Cells
from .variants import BASELINE, BOUND, RIVALS

#: Points by which ``work`` may be behind.
MAY_LACK = 1.0


@frozen
class Bar:
    """One expectation.

    :ivar rows: the rows it is about; the mean of them counts.
    :ivar lines: the lines of the table it is asked of.
    :ivar rivals: the lines it must keep up with; the best of them counts.
    :ivar lack: points by which it may be behind.
    """

    rows: tuple[str, ...]
    lines: tuple[str, ...] = ("work", "work-no-ids")
    rivals: tuple[str, ...] = RIVALS
    lack: float = MAY_LACK

    @property
    def needs(self) -> set[tuple[str, str]]:
        """The cells without which nothing can be said."""
        return {(name, row) for name in (*self.lines, *self.rivals) for row in self.rows}

    def verdicts(self, cells: Cells) -> Iterator[str]:
        """A line of text for each line of the table it is asked of."""
        what = " and ".join(self.rows)
        rival = min(self.rivals, key=lambda name: self._cost(cells, name))
        goal = self._cost(cells, rival)
        for name in self.lines:
            behind = self._cost(cells, name) - goal
            held = behind <= self.lack
            words = f"missed by {behind - self.lack:.1f}" if not held else "ok"
            yield (
                f"{words:14}  {what:14}  {name:18} {self._change(cells, name):+6.1f}  "
                f"{rival} {self._change(cells, rival):+.1f}, at most {self.lack:g} behind"
            )

    def _change(self, cells: Cells, name: str) -> float:
        return fmean(cells[name, row].change for row in self.rows)

    def _cost(self, cells: Cells, name: str) -> float:
        return fmean(cells[name, row].change * (-1.0 if ROWS[row].more else 1.0) for row in self.rows)


_GATED = ("work-gate", "work-gate-no-ids")

BARS = (
    *(Bar((row,)) for row in ("tbench", "gaps", "steady", "short")),
    Bar(("mixed", "bulk")),
    *(Bar((row,)) for row in ("lead", "slow", "loss", "add")),
    *(Bar((row,), _GATED) for row in ("pressure", "gap-pressure")),
    Bar(("fewshot",), rivals=(BOUND,)),
    *(Bar((row,), rivals=(BASELINE,), lack=0.0) for row in ("grpo", "pass16")),
)


def judge(cells: Cells) -> list[str]:
    """The bars for which there are figures, as lines of text."""
    lines: Sequence[str] = [line for bar in BARS if bar.needs <= cells.keys() for line in bar.verdicts(cells)]
    return ["bars for work:", *(f"  {line}" for line in lines)] if lines else []
