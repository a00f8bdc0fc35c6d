"""``least_conn``: the fewest requests in flight, ties in turn; what nginx does by that name."""

from __future__ import annotations

from collections.abc import Sequence

from .vocabulary import Ask, Candidate, Forgetful, Reason


class LeastOutstanding:
    """Finds the candidate with the fewest requests in flight, ties in turn.

    Ties rotate because replicas are usually all idle when a conversation starts: "the first minimum" would
    send every one of them to the same place for life.
    """

    def __init__(self) -> None:
        self._turn = 0

    def find(self, candidates: Sequence[Candidate]) -> int:
        """Return the position of the least loaded candidate, the first one from the turn on."""
        turn = self._turn % len(candidates)
        best = turn
        least = candidates[turn].outstanding
        if least:
            for position in (*range(turn + 1, len(candidates)), *range(turn)):
                load = candidates[position].outstanding
                if load < least:
                    best, least = position, load
                    if not load:
                        break
        return best

    def advance(self, position: int) -> None:
        """Let the next tie go to the candidate after ``position``."""
        self._turn = position + 1


class LeastConn(Forgetful):
    """Looks at the load and nothing else: right for single-turn work, wrong for conversations."""

    def __init__(self) -> None:
        self._least = LeastOutstanding()

    def choose(self, ask: Ask, candidates: Sequence[Candidate]) -> tuple[int, Reason]:
        """Take the least loaded."""
        position = self._least.find(candidates)
        self._least.advance(position)
        return position, Reason.LEAST_LOADED
