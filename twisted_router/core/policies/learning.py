"""What a router can learn about its replicas from answers alone."""

from __future__ import annotations

from collections import OrderedDict, deque

from .conversations import Conversation

#: Tokens a second a replica is believed to prefill before it has shown otherwise.
PRIOR_RATE = 4000.0

#: Answers to prompts with less to compute say more about the network than about the replica.
SAMPLE_TOKENS = 512.0

#: Weight of one answer in the running average of tokens per byte.
DENSITY_STEP = 0.05


class PrefillRate:
    """Tokens a second, from the time to first byte: the upper quartile of the last samples.

    Waiting for a batch slot only ever makes a sample slower, so the better ones are nearer the truth.
    """

    __slots__ = ("_samples", "value")

    LEAST = 8
    MOST = 64

    def __init__(self, value: float = PRIOR_RATE) -> None:
        self.value = value
        self._samples: deque[float] = deque(maxlen=self.MOST)

    def sample(self, tokens: float, seconds: float) -> None:
        """``tokens`` queued and own took ``seconds`` to compute."""
        if tokens < SAMPLE_TOKENS or seconds <= 0.0:
            return
        self._samples.append(tokens / seconds)
        count = len(self._samples)
        if count >= self.LEAST:
            self.value = sorted(self._samples)[3 * count // 4]

    @property
    def is_learned(self) -> bool:
        """Whether it rests on samples."""
        return len(self._samples) >= self.LEAST


class Density:
    """Tokens per byte of prompt text."""

    __slots__ = ("value",)

    def __init__(self, value: float = 0.25) -> None:
        self.value = value

    def sample(self, tokens: int, size: int) -> None:
        """A prompt of ``size`` bytes had ``tokens`` tokens."""
        if size > 0 and tokens > 0:
            self.value += DENSITY_STEP * (tokens / size - self.value)


class FollowUps:
    """The chance that a conversation without an id comes back for another turn."""

    __slots__ = ("value",)

    def __init__(self, value: float = 0.5) -> None:
        self.value = value

    def began(self) -> None:
        """A new one appeared."""
        self.value -= 0.01 * self.value

    def returned(self) -> None:
        """One came back for its second turn."""
        self.value += 0.02 * (1.0 - self.value)


class Capacity:
    """How many tokens a replica's cache holds, from which follow-up turns found their prefix still there.

    Between two turns of a conversation other conversations touch the cache. If those and the conversation
    itself fit, the turn hits; if not, it misses. The capacity lies between the distances of hits and misses.
    """

    WINDOW = 96
    MISSES = 4
    WALK = 512

    def __init__(self, home: str) -> None:
        self._home = home
        self._tokens: OrderedDict[Conversation, float] = OrderedDict()
        self._hits: deque[float] = deque(maxlen=self.WINDOW)
        self._misses: deque[float] = deque(maxlen=self.WINDOW)
        self.value: float | None = None

    def touch(self, conversation: Conversation, tokens: float) -> None:
        """A conversation's turn puts ``tokens`` into the cache."""
        self._tokens[conversation] = tokens
        self._tokens.move_to_end(conversation)
        if len(self._tokens) > self.WALK:
            self._tokens.popitem(last=False)

    def distance(self, conversation: Conversation) -> float | None:
        """Tokens that came into the cache since this conversation's last turn, its own included.

        Turns in flight hold their room and count wherever they began. None for one not seen here lately.
        """
        if conversation not in self._tokens:
            return None
        total = 0.0
        since = True
        for other, tokens in reversed(self._tokens.items()):
            if since or (other.inflight and other.home == self._home):
                total += tokens
            since = since and other is not conversation
        return total

    def sample(self, distance: float, hit: bool) -> None:
        """A follow-up turn at this distance found its prefix, or did not."""
        (self._hits if hit else self._misses).append(distance)
        if len(self._misses) < self.MISSES:
            return
        estimate = self._border()
        self.value = estimate if self.value is None else self.value + 0.3 * (estimate - self.value)

    def _border(self) -> float:
        """The smallest distance that tells most hits from most misses."""
        points = sorted([(at, 1) for at in self._hits] + [(at, -1) for at in self._misses])
        best = score = 0
        border = points[0][0]
        for at, worth in points:
            score += worth
            if score > best:
                best, border = score, at
        return border
