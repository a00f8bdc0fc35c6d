"""Follows one publisher's numbered messages: what to believe, what to ask for again, when it began anew."""

from __future__ import annotations

from collections import deque

from attrs import frozen

#: Messages worth asking for again. The publisher repeats them from the thread that sends the live ones.
REPLAY_MOST = 1000

#: Seconds between two requests to repeat.
REPLAY_PAUSE = 10.0

#: Live messages kept while older ones are awaited.
HELD_MOST = 10_000


@frozen
class Apply:
    """The next message; its payload is to be believed."""

    payload: bytes


@frozen
class Ask:
    """Ask the publisher to repeat everything from ``start`` on."""

    start: int


@frozen
class Missed:
    """``count`` messages are lost for good."""

    count: int


@frozen
class Restarted:
    """The publisher counts from the beginning again: it is another process, with an empty cache."""


Step = Apply | Ask | Missed | Restarted


class Following:
    """One publisher, whose live messages are numbered from 0.

    Once an ``Ask`` was returned, ``replayed`` and in the end ``replay_over`` are to be called; live messages
    are held until then, so that everything is applied in its order.

    :param can_ask: whether the publisher repeats at all.
    """

    def __init__(self, can_ask: bool) -> None:
        self._can_ask = can_ask
        self._live = -1
        self._next = 0
        self._asked: float | None = None
        self._held: deque[tuple[int, bytes]] | None = None

    def heard(self, sequence: int, payload: bytes, now: float) -> tuple[Step, ...]:
        """A live message came in; ``now`` is in monotonic seconds."""
        again: tuple[Step, ...] = ()
        if sequence <= self._live:
            self._next = 0
            self._held = None
            again = (Restarted(),)
        self._live = sequence
        if self._held is not None:
            self._held.append((sequence, payload))
            return self.replay_over() if len(self._held) > HELD_MOST else ()
        missing = sequence - self._next
        rested = self._asked is None or now - self._asked >= REPLAY_PAUSE
        if 0 < missing <= REPLAY_MOST and self._can_ask and rested:
            self._asked = now
            self._held = deque([(sequence, payload)])
            return (*again, Ask(self._next))
        return (*again, *self._take(sequence, payload))

    def replayed(self, sequence: int, payload: bytes) -> tuple[Step, ...]:
        """A repeated message came in."""
        return () if self._held is None else self._take(sequence, payload)

    def replay_over(self) -> tuple[Step, ...]:
        """Nothing more will be repeated: all of it was, or nobody answers."""
        held, self._held = self._held or (), None
        return tuple(step for sequence, payload in held for step in self._take(sequence, payload))

    def _take(self, sequence: int, payload: bytes) -> tuple[Step, ...]:
        missing = sequence - self._next
        if missing < 0:  # repeated before it was heard
            return ()
        self._next = sequence + 1
        return (Missed(missing), Apply(payload)) if missing else (Apply(payload),)
