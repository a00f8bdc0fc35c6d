"""``round_robin``: one after the other, whatever they carry."""

from __future__ import annotations

from collections.abc import Sequence

from .vocabulary import Ask, Candidate, Forgetful, Reason


class RoundRobin(Forgetful):
    """Counts requests modulo the routable replicas."""

    def __init__(self) -> None:
        self._turn = 0

    def choose(self, ask: Ask, candidates: Sequence[Candidate]) -> tuple[int, Reason]:
        """Take the next one."""
        position = self._turn % len(candidates)
        self._turn += 1
        return position, Reason.IN_TURN
