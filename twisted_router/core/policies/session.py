"""``session``: the manual's rule, pins with slack and least outstanding otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from .vocabulary import Ask, Candidate, Reason


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


class SessionAffinity:
    """Keeps a conversation where it is while that replica is at most ``slack`` requests behind the idlest.

    With a slack of 8 a pin holds at 8 more outstanding requests and is lost at 9; 0 disables affinity, the
    pin never decides (manual: Tuning).
    """

    def __init__(self, slack: int) -> None:
        self._slack = slack
        self._least = LeastOutstanding()

    def choose(self, ask: Ask, candidates: Sequence[Candidate]) -> tuple[int, Reason]:
        """Follow the pin where the slack allows, else take the least loaded."""
        least = self._least.find(candidates)
        home = ask.home
        if home is None:
            reason = Reason.NO_SESSION if ask.session is None else Reason.UNKNOWN_SESSION
        elif not self._slack:
            reason = Reason.AFFINITY_OFF
        else:
            reason = Reason.HOME_GONE
            for position, candidate in enumerate(candidates):
                if candidate.instance == home:
                    if candidate.outstanding <= candidates[least].outstanding + self._slack:
                        return position, Reason.PINNED
                    reason = Reason.OVER_SLACK
                    break
        self._least.advance(least)
        return least, reason

    def observe(self, ask: Ask, chosen: Candidate, reason: Reason) -> None:
        """Nothing to learn: the load is all this policy looks at."""
