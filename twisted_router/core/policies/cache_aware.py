"""``cache_aware``: the session id's replica, unless the fleet is out of balance."""

from __future__ import annotations

from collections.abc import Sequence

from .conversations import Conversation, Conversations
from .least_conn import LeastOutstanding
from .vocabulary import Ask, Candidate, Forgetful, Outcome, Reason, Trace


class Turn:
    """Follows one request of a conversation until it ends."""

    __slots__ = ("_conversation",)

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation

    def first_byte(self, now: float) -> None:
        """Of no interest."""

    def ended(self, now: float, outcome: Outcome) -> None:
        """The conversation is idle from now on."""
        self._conversation.inflight -= 1
        self._conversation.last = now


class CacheAware(Forgetful):
    """Ids are compared whole, so structured ones do not follow each other, and ties rotate.

    :param balance_abs: the fleet counts as unbalanced when the busiest replica has more than this many
        requests more than the idlest ...
    :param balance_rel: ... and more than this many times as many; then the load alone decides.
    :param ttl: seconds of idleness after which a conversation is forgotten.
    """

    def __init__(self, balance_abs: int = 64, balance_rel: float = 1.5, ttl: float = 3600.0) -> None:
        self._abs = balance_abs
        self._rel = balance_rel
        self._least = LeastOutstanding()
        self._conversations = Conversations(ttl)

    def choose(self, ask: Ask, candidates: Sequence[Candidate]) -> tuple[int, Reason]:
        """Follow the id in a balanced fleet, else the load."""
        least = self._least.find(candidates)
        low = candidates[least].outstanding
        high = max(candidate.outstanding for candidate in candidates)
        if high - low > self._abs and high > low * self._rel:
            reason = Reason.IMBALANCED
        elif ask.session is None:
            reason = Reason.NO_SESSION
        else:
            known = self._conversations.find(ask.session, ask.now)
            if known is None:
                reason = Reason.UNKNOWN_SESSION
            else:
                for position, candidate in enumerate(candidates):
                    if candidate.instance == known.home:
                        return position, Reason.PINNED
                reason = Reason.HOME_GONE
        self._least.advance(least)
        return least, reason

    def observe(self, ask: Ask, chosen: Candidate, reason: Reason) -> Trace | None:
        """Remember where the conversation went."""
        if ask.session is None:
            return None
        known = self._conversations.find_or_begin(ask.session, ask.now)
        known.turn(None, chosen.instance, ask.now)
        return Turn(known)

    def replica_gone(self, instance: str) -> None:
        """Its conversations are placed anew at their next turn."""
        self._conversations.leave(instance)

    def session_ended(self, session: str) -> None:
        """Forget it."""
        self._conversations.end(session)
