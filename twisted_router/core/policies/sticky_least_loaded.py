"""``sticky_least_loaded``: a conversation stays for life where the fewest conversations lived."""

from __future__ import annotations

from collections.abc import Sequence

from .conversations import Conversation, Conversations, Presence
from .vocabulary import Ask, Candidate, Outcome, Reason, Trace


class StickyLeastLoaded:
    """Counts conversations, never requests or tokens, and never moves one.

    :param ttl: seconds of idleness after which a conversation no longer counts.
    """

    wants_prompt = False

    def __init__(self, ttl: float = 7200.0) -> None:
        self._conversations = Conversations(ttl)
        self._live = Presence(ttl)
        self._turn = 0

    def choose(self, ask: Ask, candidates: Sequence[Candidate]) -> tuple[int, Reason]:
        """Return home, or settle where the fewest live."""
        self._live.expire(ask.now)
        reason = Reason.NO_SESSION
        if ask.session is not None:
            known = self._conversations.find(ask.session, ask.now)
            reason = Reason.UNKNOWN_SESSION if known is None else Reason.HOME_GONE
            for position, candidate in enumerate(candidates):
                if known is not None and candidate.instance == known.home:
                    return position, Reason.PINNED
        count = len(candidates)
        position = min(
            range(count),
            key=lambda at: (
                self._live.at(candidates[at].instance),
                candidates[at].outstanding,
                (at - self._turn) % count,
            ),
        )
        self._turn = position + 1
        return position, reason

    def observe(self, ask: Ask, chosen: Candidate, reason: Reason) -> Trace | None:
        """Count the conversation at its home."""
        if ask.session is None:
            return None
        known = self._conversations.find_or_begin(ask.session, ask.now)
        known.turn(None, chosen.instance, ask.now)
        self._live.set(known, chosen.instance, 1.0)
        return _Stay(known, self._live)

    def replica_gone(self, instance: str) -> None:
        """Its conversations settle anew at their next turn."""
        self._conversations.leave(instance)

    def session_ended(self, session: str) -> None:
        """It no longer counts."""
        known = self._conversations.end(session)
        if known is not None:
            self._live.remove(known)


class _Stay:
    __slots__ = ("_conversation", "_live")

    def __init__(self, conversation: Conversation, live: Presence) -> None:
        self._conversation = conversation
        self._live = live

    def first_byte(self, now: float) -> None:
        """Of no interest."""

    def ended(self, now: float, outcome: Outcome) -> None:
        """The conversation is idle from now on."""
        self._conversation.inflight -= 1
        self._conversation.last = now
        self._live.rest(self._conversation, now)
