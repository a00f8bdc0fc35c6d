"""``session``: the manual's rule, pins with slack and least outstanding otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from .least_conn import LeastOutstanding
from .vocabulary import Ask, Candidate, Forgetful, Reason


class SessionAffinity(Forgetful):
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
