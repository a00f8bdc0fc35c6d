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
        self._known: Sequence[Candidate] = ()
        self._positions: dict[str, int] = {}

    def choose(self, ask: Ask, candidates: Sequence[Candidate]) -> tuple[int, Reason]:
        """Follow the pin where the slack allows, else take the least loaded."""
        home = ask.home
        if home is None:
            reason = Reason.NO_SESSION if ask.session is None else Reason.UNKNOWN_SESSION
        elif not self._slack:
            reason = Reason.AFFINITY_OFF
        else:
            position = self._position(home, candidates)
            if position is not None and self._is_within_slack(candidates[position], candidates):
                return position, Reason.PINNED
            reason = Reason.HOME_GONE if position is None else Reason.OVER_SLACK
        least = self._least.find(candidates)
        self._least.advance(least)
        return least, reason

    def _is_within_slack(self, home: Candidate, candidates: Sequence[Candidate]) -> bool:
        """Look for the idlest only where it matters: none has fewer than no requests."""
        load = home.outstanding - self._slack
        return load <= 0 or load <= candidates[self._least.find(candidates)].outstanding

    def _position(self, home: str, candidates: Sequence[Candidate]) -> int | None:
        """Find a replica among the candidates, who are the same ones from request to request."""
        if candidates is not self._known:
            self._known = candidates
            self._positions = {one.instance: position for position, one in enumerate(candidates)}
        return self._positions.get(home)
