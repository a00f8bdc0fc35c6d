"""Conversations as policies know them: by the id a client gave, or by the text they continue."""

from __future__ import annotations

from collections import deque

from ..prefix import Match, Prompt
from ..recent import Recent
from ..sessions import PIN_CAP

#: Part of the previous turn's text that has to come back for a request to be its next turn.
CONTINUED = 0.85

#: A conversation without messages (a bare prompt) has to grow by this many bytes to count as continued.
GROWTH = 256


class Conversation:
    """One conversation.

    :ivar key: the client's id, or None for one recognised by its text.
    :ivar home: the instance its last turn went to, or None before the first.
    :ivar tokens: estimated or reported prompt tokens of its last turn.
    :ivar before: the same of the turn before that, 0 in the first.
    :ivar shared: tokens of its beginning that its replica had from others when it came there.
    :ivar last: seconds (monotonic) its last turn was sent or ended.
    :ivar turns: requests sent so far.
    :ivar inflight: requests that have not ended.
    """

    __slots__ = (
        "before",
        "chunks",
        "home",
        "inflight",
        "key",
        "last",
        "messages",
        "shared",
        "size",
        "tokens",
        "turns",
    )

    def __init__(self, key: str | None, now: float) -> None:
        self.key = key
        self.home: str | None = None
        self.tokens = 0.0
        self.before = 0.0
        self.shared = 0.0
        self.last = now
        self.turns = 0
        self.inflight = 0
        self.chunks = 0
        self.messages = 0
        self.size = 0

    def is_continued_by(self, prompt: Prompt, depth: int) -> bool:
        """Tell whether a prompt that shares ``depth`` chunks with this conversation is its next turn.

        A next turn repeats nearly all of the text and adds messages. Samples of one prompt and questions
        after the same examples repeat it too, but add none. The last whole chunk of a turn may hold what
        follows the messages in the body, so it is not asked for.
        """
        if self.inflight or not self.chunks or depth < CONTINUED * (self.chunks - 1):
            return False
        if prompt.messages:
            return prompt.messages > self.messages
        return prompt.size >= self.size + GROWTH

    def turn(
        self, prompt: Prompt | None, home: str, now: float, tokens: float = 0.0, known: float = 0.0
    ) -> None:
        """A turn was sent to ``home``.

        :param tokens: about how many prompt tokens it has.
        :param known: how many of them the replica has seen before, from whomever.
        """
        if home != self.home:
            self.shared = known
        self.before = self.tokens
        self.tokens = tokens
        self.home = home
        self.last = now
        self.turns += 1
        self.inflight += 1
        if prompt is not None:
            self.chunks = len(prompt.chain)
            self.messages = prompt.messages
            self.size = prompt.size


class Conversations:
    """Named conversations, bounded; forgotten strictly after ``ttl`` seconds of idleness."""

    def __init__(self, ttl: float, cap: int = PIN_CAP) -> None:
        self._ttl = ttl
        self._named: Recent[str, Conversation] = Recent(cap)

    def __len__(self) -> int:
        return len(self._named)

    def is_alive(self, conversation: Conversation, now: float) -> bool:
        """Tell whether it is in use or was lately."""
        return conversation.inflight > 0 or now - conversation.last <= self._ttl

    def find(self, key: str, now: float) -> Conversation | None:
        """Return the conversation of this id unless it is unknown or too long idle."""
        found = self._named.get(key)
        return found if found is not None and self.is_alive(found, now) else None

    def find_or_begin(self, key: str, now: float) -> Conversation:
        """Return the conversation of this id, a new one unless it is known and alive."""
        return self.find(key, now) or self.begin(key, now)

    def continued(self, prompt: Prompt, match: Match[Conversation], now: float) -> Conversation | None:
        """Return the nameless conversation this prompt continues, if any."""
        owner = match.owner
        if owner is None or owner.key is not None or not self.is_alive(owner, now):
            return None
        return owner if owner.is_continued_by(prompt, match.depth) else None

    def begin(self, key: str | None, now: float) -> Conversation:
        """Start a conversation; only named ones are kept here, the index keeps the others."""
        conversation = Conversation(key, now)
        if key is not None:
            self._named.put(key, conversation)
        return conversation

    def end(self, key: str) -> Conversation | None:
        """Forget a named conversation and return it."""
        return self._named.discard(key)

    def leave(self, home: str) -> None:
        """Unpin every named conversation from a replica that is gone."""
        for conversation in self._named.values():
            if conversation.home == home:
                conversation.home = None


#: The sum of a replica where nobody lives, and how many do.
_NOTHING = (0.0, 0)


class Presence:
    """Adds something up over the conversations that are in flight or idle for at most ``window`` seconds.

    What is added is up to the caller: one each gives the live conversations of a replica, tokens each its
    working set. Costs O(1) a change, however many conversations there are.
    """

    def __init__(self, window: float) -> None:
        self._window = window
        self._held: dict[Conversation, tuple[str, float]] = {}
        self._sums: dict[str, tuple[float, int]] = {}
        self._idle: deque[tuple[float, Conversation]] = deque()

    def at(self, home: str) -> float:
        """The sum of one replica."""
        return self._sums.get(home, _NOTHING)[0]

    def share(self, conversation: Conversation, home: str) -> float:
        """What one conversation adds to the sum of ``home``."""
        held = self._held.get(conversation)
        return held[1] if held is not None and held[0] == home else 0.0

    def set(self, conversation: Conversation, home: str, amount: float) -> None:
        """A conversation lives at ``home`` and counts ``amount``, wherever it was before."""
        self.remove(conversation)
        self._held[conversation] = (home, amount)
        total, count = self._sums.get(home, _NOTHING)
        self._sums[home] = (total + amount, count + 1)

    def rest(self, conversation: Conversation, now: float) -> None:
        """A conversation's last request ended; it counts until the window is over."""
        self._idle.append((now, conversation))

    def remove(self, conversation: Conversation) -> None:
        """A conversation no longer counts."""
        held = self._held.pop(conversation, None)
        if held is not None:
            total, count = self._sums[held[0]]
            if count > 1:
                self._sums[held[0]] = (max(0.0, total - held[1]), count - 1)
            else:  # nothing is left but what rounding left
                del self._sums[held[0]]

    def expire(self, now: float) -> None:
        """Let go of those idle for longer than the window."""
        idle = self._idle
        while idle and now - idle[0][0] > self._window:
            since, conversation = idle.popleft()
            if not conversation.inflight and conversation.last <= since:
                self.remove(conversation)

    def clear(self, home: str) -> None:
        """Nobody lives at ``home`` any more."""
        for conversation in [held for held, (place, _) in self._held.items() if place == home]:
            self.remove(conversation)

    def idle(self, home: str) -> list[Conversation]:
        """Conversations of one replica that wait for their client."""
        return [held for held, (place, _) in self._held.items() if place == home and not held.inflight]
