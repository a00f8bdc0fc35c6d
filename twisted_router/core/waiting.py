"""Who waits for a replica, in which order and for how long. No Deferreds: the caller holds what is queued."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from enum import Enum
from itertools import islice
from typing import Generic, TypeVar

from attrs import define

T = TypeVar("T")

#: How many of those at the front are asked whether they can go before giving up; the rest is behind them.
LOOK = 32


class Hold(Enum):
    """Why a request waits; what happens at its deadline depends on it."""

    #: Nothing is routable, or every routable replica is at its limit. At the deadline: refused.
    COLD = "cold"
    #: Its conversation would push others out of a cache. At the deadline: sent anyway.
    WORKING_SET = "working-set"


@define(eq=False)
class Waiter(Generic[T]):
    """One request that waits.

    :ivar what: the caller's own.
    :ivar rank: smaller ones go first; equal ones in order of arrival.
    :ivar deadline: seconds (monotonic) after which it waits no longer.
    """

    what: T
    why: Hold
    rank: int
    deadline: float
    serial: int


class WaitingRoom(Generic[T]):
    """A bounded queue that can be left from anywhere at no cost.

    :param size: how many may wait at once; 0 lets nobody in.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._serial = 0
        self._ranks: dict[int, dict[int, Waiter[T]]] = {}
        self._count = 0
        self._deadlines: list[tuple[float, int, Waiter[T]]] = []

    def __len__(self) -> int:
        return self._count

    def enter(self, what: T, why: Hold, now: float, patience: float, rank: int = 0) -> Waiter[T] | None:
        """Queue a request for at most ``patience`` seconds; None when the room is full."""
        if self._count >= self._size:
            return None
        self._serial += 1
        waiter = Waiter(what, why, rank, now + patience, self._serial)
        self._ranks.setdefault(rank, {})[waiter.serial] = waiter
        self._count += 1
        heapq.heappush(self._deadlines, (waiter.deadline, waiter.serial, waiter))
        return waiter

    def leave(self, waiter: Waiter[T]) -> bool:
        """Take a request out, whatever the reason; tell whether it was still waiting."""
        row = self._ranks.get(waiter.rank)
        if row is None or row.pop(waiter.serial, None) is None:
            return False
        if not row:
            del self._ranks[waiter.rank]
        self._count -= 1
        self._compact()
        return True

    def take(self, admits: Callable[[T], bool]) -> Waiter[T] | None:
        """Take out the first that is admitted, looking at some at the front only; None when none is.

        Send it on before taking the next: each one changes what there is room for.
        """
        for waiter in self._front():
            if admits(waiter.what):
                self.leave(waiter)
                return waiter
        return None

    def expire(self, now: float) -> list[Waiter[T]]:
        """Take out everyone whose deadline has come, earliest first."""
        late = []
        while self._deadlines and self._deadlines[0][0] <= now:
            waiter = heapq.heappop(self._deadlines)[2]
            if self.leave(waiter):
                late.append(waiter)
        return late

    def next_deadline(self) -> float | None:
        """Seconds (monotonic) of the earliest deadline, or None when nobody waits."""
        while self._deadlines and not self._is_waiting(self._deadlines[0][2]):
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _front(self) -> list[Waiter[T]]:
        front: list[Waiter[T]] = []
        for rank in sorted(self._ranks):
            front += islice(self._ranks[rank].values(), LOOK - len(front))
            if len(front) >= LOOK:
                break
        return front

    def _is_waiting(self, waiter: Waiter[T]) -> bool:
        return waiter.serial in self._ranks.get(waiter.rank, ())

    def _compact(self) -> None:
        """Drop the deadlines of those who left once they are the larger part."""
        if len(self._deadlines) > 2 * self._count + 64:
            self._deadlines = [entry for entry in self._deadlines if self._is_waiting(entry[2])]
            heapq.heapify(self._deadlines)
