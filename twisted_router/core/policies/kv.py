"""``kv`` and ``kv_session_affinity``: prefill still to do plus context held, as Dynamo adds them up."""

from __future__ import annotations

from collections.abc import Sequence

from ..prefix import CHUNK, NO_PROMPT, Prompt
from .conversations import Conversation, Conversations
from .seats import Noting
from .vocabulary import Ask, Candidate, Outcome, Reason

#: Bytes of text in one 16-token block, at four bytes a token.
BLOCK_BYTES = 64.0


class _Seat:
    __slots__ = ("bit", "held", "prefill")

    def __init__(self, bit: int) -> None:
        self.bit = bit
        self.prefill = 0.0
        self.held = 0.0


class Kv(Noting[_Seat]):
    """Takes the replica with the fewest blocks to compute and to hold, both counted alike.

    A fingerprint counts as cached from the first byte of an answer on, when an engine would report it.

    :param session_ttl: seconds a conversation stays bound to its replica while idle; None binds nothing,
        which is ``kv``.
    """

    wants_prompt = True

    def __init__(self, session_ttl: float | None = None) -> None:
        super().__init__(_Seat)
        self._bound = None if session_ttl is None else Conversations(session_ttl, cap=65_536)
        self._turn = 0

    def choose(self, ask: Ask, candidates: Sequence[Candidate]) -> tuple[int, Reason]:
        """Keep a bound conversation where it is, else take the lowest cost."""
        reason = None
        known = self.find(ask)
        if known is not None:
            for position, candidate in enumerate(candidates):
                if candidate.instance == known.home:
                    return position, Reason.PINNED
            reason = Reason.HOME_GONE
        prompt = ask.prompt or NO_PROMPT
        match = self.index.look(prompt.chain)
        seats = [self._seats.of(candidate.instance) for candidate in candidates]
        count = len(seats)
        size = prompt.size / BLOCK_BYTES
        chunk = CHUNK / BLOCK_BYTES
        best = min(
            range(count),
            key=lambda at: (
                max(seats[at].prefill + size - match.on(seats[at].bit) * chunk, 0.0) + seats[at].held + size,
                (at - self._turn) % count,
            ),
        )
        self._turn = best + 1
        if reason is None:
            reason = Reason.WARM_PREFIX if match.on(seats[best].bit) else Reason.COLD_PREFIX
        return best, reason

    def observe(self, ask: Ask, chosen: Candidate, reason: Reason) -> _Sent:
        """Count its blocks there: to compute until the first byte, to hold until the end."""
        conversation = None
        if self._bound is not None and ask.session is not None:
            conversation = self._bound.find_or_begin(ask.session, ask.now)
            conversation.turn(None, chosen.instance, ask.now, self.tokens(ask))
        prompt = ask.prompt or NO_PROMPT
        match = self.index.look(prompt.chain)
        return _Sent(
            self, chosen.instance, prompt, match.on(self._seats.of(chosen.instance).bit), conversation
        )

    def find(self, ask: Ask) -> Conversation | None:
        """The bound conversation a request belongs to, or None."""
        if self._bound is None or ask.session is None:
            return None
        return self._bound.find(ask.session, ask.now)

    def tokens(self, ask: Ask) -> float:
        """Estimated prompt tokens of a request."""
        return (ask.prompt or NO_PROMPT).size / BLOCK_BYTES * 16.0

    def is_bulk(self, ask: Ask) -> bool:
        """Without an id there is nothing to come back to."""
        return ask.session is None

    def replica_gone(self, instance: str) -> None:
        """Forget what it had and who was bound to it."""
        super().replica_gone(instance)
        if self._bound is not None:
            self._bound.leave(instance)

    def session_ended(self, session: str) -> None:
        """Release its binding."""
        if self._bound is not None:
            self._bound.end(session)


class _Sent:
    __slots__ = ("_held", "_instance", "_policy", "_prefill", "_prompt", "_seat", "conversation")

    def __init__(
        self, policy: Kv, instance: str, prompt: Prompt, matched: int, conversation: Conversation | None
    ) -> None:
        self._policy = policy
        self._instance = instance
        self._prompt = prompt
        self.conversation = conversation
        self._seat = policy.seat(instance)
        self._held = prompt.size / BLOCK_BYTES
        self._prefill = max(prompt.size - matched * CHUNK, 0) / BLOCK_BYTES
        self._seat.held += self._held
        self._seat.prefill += self._prefill

    def first_byte(self, now: float) -> None:
        """The prompt is computed and cached."""
        self._computed()

    def ended(self, now: float, outcome: Outcome) -> None:
        """Give everything back."""
        if outcome.served:
            self._computed()
        self._seat.prefill -= self._prefill
        self._prefill = 0.0
        self._seat.held -= self._held
        if self.conversation is not None:
            self.conversation.inflight -= 1
            self.conversation.last = now
            if outcome.prompt_tokens is not None:
                self.conversation.tokens = float(outcome.prompt_tokens)

    def _computed(self) -> None:
        if self._prefill:
            self._policy.note(self._prompt, self._instance)
            self._seat.prefill -= self._prefill
            self._prefill = 0.0
