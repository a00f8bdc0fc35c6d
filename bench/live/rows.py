"""Which of the laboratory's rows are played, how fast, and what the results are held against."""

from __future__ import annotations

from attrs import frozen


@frozen
class LiveRow:
    """One workload.

    :ivar scale: simulated seconds in a second: such that half of two processors stays idle, and a burst of
        requests is read in a time that does not matter.
    :ivar also: other rows of the laboratory that the same run measures.
    :ivar conversations: whether clients come back, so that a perfect pin is the yardstick, not nginx.
    """

    name: str
    scale: float
    conversations: bool = True
    also: tuple[str, ...] = ()


ROWS = {
    row.name: row
    for row in (
        LiveRow("tbench", 100),
        LiveRow("gaps", 150),
        LiveRow("steady", 90),
        LiveRow("short", 24),
        LiveRow("mixed", 40, also=("bulk",)),
        LiveRow("grpo", 22, False),
        LiveRow("pass16", 30, False),
        LiveRow("fewshot", 10, False),
    )
}
