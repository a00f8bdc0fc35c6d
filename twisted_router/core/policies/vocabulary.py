"""What a routing policy is asked and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from attrs import frozen


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
    """

    session: str | None
    home: str | None
    now: float


class Policy(Protocol):
    """Chooses among routable candidates; keeps whatever memory it needs by itself."""

    def choose(self, ask: Ask, candidates: Sequence[Candidate]) -> tuple[int, Reason]:
        """Return the position of the chosen candidate (there is at least one) and the rule that chose it."""

    def observe(self, ask: Ask, chosen: Candidate, reason: Reason) -> None:
        """Learn that the choice was taken, by ``choose`` or over its head."""
