"""``prefix`` and ``load``: warm chunks against load, as ramjet weighs them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum

from ..prefix import CHUNK, NO_PROMPT, Match, Prompt
from .seats import Noting
from .vocabulary import Ask, Candidate, Outcome, Reason

#: Chunks beyond which more overlap earns nothing, about 16,000 tokens.
OVERLAP_CAP = 32

#: Uncached bytes that make one unit of load, and the most one request may weigh.
LOAD_UNIT = 32768
LOAD_CAP = 8


class Basis(Enum):
    """What warm chunks are worth: their number, what they exceed the others by, what is missing."""

    ABSOLUTE = "absolute"
    MARGINAL = "marginal"
    RELATIVE = "relative"


class _Seat:
    __slots__ = ("bit", "load")

    def __init__(self, bit: int) -> None:
        self.bit = bit
        self.load = 0


class PrefixLoad(Noting[_Seat]):
    """Scores ``affinity - alpha * load``; needs no ids.

    :param basis: how warm chunks count; None leaves them out, which is the ``load`` policy.
    :param alpha: chunks one unit of load outweighs.
    """

    wants_prompt = True

    def __init__(self, basis: Basis | None = Basis.ABSOLUTE, alpha: float = 4.0) -> None:
        self._basis = basis
        self._alpha = alpha
        super().__init__(_Seat)
        self._turn = 0

    def choose(self, ask: Ask, candidates: Sequence[Candidate]) -> tuple[int, Reason]:
        """Take the best score, then the larger overlap, then the next in turn."""
        prompt = ask.prompt or NO_PROMPT
        match = self.index.look(prompt.chain)
        seats = [self._seats.of(candidate.instance) for candidate in candidates]
        overlaps = [match.on(seat.bit) for seat in seats]
        worth = self._worth(overlaps)
        count = len(candidates)
        best = max(
            range(count),
            key=lambda at: (
                worth[at] - self._alpha * seats[at].load,
                overlaps[at],
                -((at - self._turn) % count),
            ),
        )
        self._turn = best + 1
        if self._basis is None:
            return best, Reason.LEAST_LOADED
        return best, Reason.WARM_PREFIX if overlaps[best] else Reason.COLD_PREFIX

    def _worth(self, overlaps: list[int]) -> list[int]:
        match self._basis:
            case None:
                return [0] * len(overlaps)
            case Basis.ABSOLUTE:
                return [min(overlap, OVERLAP_CAP) for overlap in overlaps]
            case Basis.MARGINAL:
                return [
                    min(own - min([*overlaps[:at], *overlaps[at + 1 :]], default=0), OVERLAP_CAP)
                    for at, own in enumerate(overlaps)
                ]
            case Basis.RELATIVE:
                most = max(overlaps)
                return [min(most, OVERLAP_CAP) - min(most - own, OVERLAP_CAP) for own in overlaps]

    def observe(self, ask: Ask, chosen: Candidate, reason: Reason) -> _Sent:
        """Count the uncached part as load there until the request ends."""
        prompt = ask.prompt or NO_PROMPT
        seat = self._seats.of(chosen.instance)
        match: Match[None] = self.index.look(prompt.chain)
        missing = prompt.size - match.on(seat.bit) * CHUNK
        weight = max(1, min(math.ceil(missing / LOAD_UNIT), LOAD_CAP))
        seat.load += weight
        return _Sent(self, chosen.instance, seat, weight, prompt)

    def session_ended(self, session: str) -> None:
        """Conversations are not known here."""


class _Sent:
    __slots__ = ("_instance", "_policy", "_prompt", "_seat", "_weight")

    def __init__(self, policy: PrefixLoad, instance: str, seat: _Seat, weight: int, prompt: Prompt) -> None:
        self._policy = policy
        self._instance = instance
        self._seat = seat
        self._weight = weight
        self._prompt = prompt

    def first_byte(self, now: float) -> None:
        """Of no interest: fingerprints count once the answer is whole."""

    def ended(self, now: float, outcome: Outcome) -> None:
        """Give the load back; remember the prompt if it was answered."""
        self._seat.load -= self._weight
        if outcome.served:
            self._policy.note(self._prompt, self._instance)
