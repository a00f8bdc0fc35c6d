"""What a routing policy is asked, what it answers, and what it is told about a request's life.

The life of a request, and who is called when (every call is cheap, synchronous and in this order):

1. ``choose(ask, candidates)``: which replica. ``ask.prompt`` is set only where ``wants_prompt`` is true.
2. ``observe(ask, chosen, reason)``: it is being sent there. Returns a ``Trace``, or None when the policy
   does not care what becomes of it.
3. ``trace.first_byte(now)``: the first byte of a 2xx answer's body arrived.
4. ``trace.ended(now, outcome)``: exactly once, however the request ended.

Beside it: ``replica_gone(instance)`` when a life of a replica is over, and ``session_ended(session)`` when
a client said that a conversation is finished. A new replica needs no call: it is in ``candidates``.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from attrs import frozen

from ..prefix import Prompt


class Affinity(Enum):
    """What became of a conversation's wish to return to its replica; also a metric label."""

    HIT = "hit"
    MISS = "miss"
    MOVED = "moved"
    NONE = "none"


class Reason(Enum):
    """Which rule chose the replica: metric label, log field and the tests' assertion."""

    PINNED = "pinned"
    NO_SESSION = "no-session"
    UNKNOWN_SESSION = "unknown-session"
    OVER_SLACK = "over-slack"
    HOME_GONE = "home-unroutable"
    CONNECT_REFUSED = "connect-refused"
    AFFINITY_OFF = "affinity-off"
    LEAST_LOADED = "least-loaded"
    IN_TURN = "in-turn"
    HASHED = "hashed"
    IMBALANCED = "imbalanced"
    WARM_PREFIX = "warm-prefix"
    COLD_PREFIX = "cold-prefix"
    CHEAPER_ELSEWHERE = "cheaper-elsewhere"

    @property
    def affinity(self) -> Affinity:
        """The coarse outcome this reason belongs to."""
        return _AFFINITY[self]


_AFFINITY = {
    Reason.PINNED: Affinity.HIT,
    Reason.NO_SESSION: Affinity.NONE,
    Reason.UNKNOWN_SESSION: Affinity.MISS,
    Reason.OVER_SLACK: Affinity.MOVED,
    Reason.HOME_GONE: Affinity.MOVED,
    Reason.CONNECT_REFUSED: Affinity.MOVED,
    Reason.AFFINITY_OFF: Affinity.NONE,
    Reason.LEAST_LOADED: Affinity.NONE,
    Reason.IN_TURN: Affinity.NONE,
    Reason.HASHED: Affinity.HIT,
    Reason.IMBALANCED: Affinity.MOVED,
    Reason.WARM_PREFIX: Affinity.HIT,
    Reason.COLD_PREFIX: Affinity.MISS,
    Reason.CHEAPER_ELSEWHERE: Affinity.MOVED,
}


class Candidate(Protocol):
    """A routable replica, as a policy sees it."""

    @property
    def instance(self) -> str:
        """Names one life of one replica."""

    @property
    def outstanding(self) -> int:
        """Requests dispatched there and not yet finished."""


@frozen
class Ask:
    """One request looking for a replica.

    :ivar session: the conversation's id, or None when the client named none.
    :ivar home: the instance the conversation is pinned to, routable or not, or None.
    :ivar now: seconds on the monotonic clock.
    :ivar prompt: what is known of its text; None unless the policy ``wants_prompt``.
    :ivar streams: whether it asked for a stream. Where it did not, the first byte of the answer comes with
        the last and says nothing about its prefill.
    """

    session: str | None
    home: str | None
    now: float
    prompt: Prompt | None = None
    streams: bool = True


@frozen
class Outcome:
    """How a request ended, as far as anybody said.

    :ivar served: whether a replica answered it with a 2xx and to the end.
    :ivar prompt_tokens: ``usage.prompt_tokens``, or None.
    :ivar cached_tokens: ``usage.prompt_tokens_details.cached_tokens``, or None.
    :ivar completion_tokens: ``usage.completion_tokens``, or None.
    """

    served: bool
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None


class Trace(Protocol):
    """A policy's note on one request it sent somewhere."""

    def first_byte(self, now: float) -> None:
        """The replica began to answer: the prompt is computed."""

    def ended(self, now: float, outcome: Outcome) -> None:
        """The request is over; called exactly once."""


class Policy(Protocol):
    """Chooses among routable candidates; keeps whatever memory it needs by itself."""

    @property
    def wants_prompt(self) -> bool:
        """Whether an ask has to carry fingerprints of the body; they cost time, so only where used."""

    def choose(self, ask: Ask, candidates: Sequence[Candidate]) -> tuple[int, Reason]:
        """Return the position of the chosen candidate (there is at least one) and the rule that chose it.

        ``candidates`` does not change while it lives: the same object has the same replicas in the same
        places, so a policy may remember where they are.
        """

    def observe(self, ask: Ask, chosen: Candidate, reason: Reason) -> Trace | None:
        """Learn that the choice was taken, by ``choose`` or over its head."""

    def replica_gone(self, instance: str) -> None:
        """Forget a replica that will not come back under this name."""

    def session_ended(self, session: str) -> None:
        """Forget a conversation its client called finished."""


class Forgetful:
    """What a policy inherits that only looks at the moment."""

    wants_prompt = False

    def observe(self, ask: Ask, chosen: Candidate, reason: Reason) -> Trace | None:
        """Nothing to learn."""
        return None

    def replica_gone(self, instance: str) -> None:
        """Nothing to forget."""

    def session_ended(self, session: str) -> None:
        """Nothing to forget."""
