"""``consistent_hash``: the session id alone decides, by rendezvous hashing."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from .least_conn import LeastOutstanding
from .vocabulary import Ask, Candidate, Forgetful, Reason


def rendezvous(key: str, instance: str) -> int:
    """How strongly a key wants a replica; the strongest wish wins.

    Each replica is wished for independently of the others, so losing one moves only its own keys, each to
    its own second choice, and adding one takes an equal share from all.
    """
    digest = blake2b(instance.encode(), key=key.encode()[:64], digest_size=8).digest()
    return int.from_bytes(digest, "little")


class ConsistentHash(Forgetful):
    """Keeps no memory, so several routers agree; never looks at the load.

    Requests without a session id go to the least loaded replica: a constant key would send all of them to
    one.
    """

    def __init__(self) -> None:
        self._least = LeastOutstanding()

    def choose(self, ask: Ask, candidates: Sequence[Candidate]) -> tuple[int, Reason]:
        """Follow the hash, or the load when there is nothing to hash."""
        session = ask.session
        if session is None:
            position = self._least.find(candidates)
            self._least.advance(position)
            return position, Reason.NO_SESSION
        wishes = [rendezvous(session, candidate.instance) for candidate in candidates]
        return wishes.index(max(wishes)), Reason.HASHED
