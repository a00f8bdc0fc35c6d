"""A bit and a note for every replica a policy has met."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from ..prefix import PrefixIndex, Prompt

S = TypeVar("S")


class Placed(Protocol):
    """A note on a replica that knows its bit."""

    bit: int


P = TypeVar("P", bound=Placed)


class Seats(Generic[S]):
    """Gives each instance the lowest free bit and one note made by ``make(bit)``; takes both back."""

    def __init__(self, make: Callable[[int], S]) -> None:
        self._make = make
        self._seats: dict[str, S] = {}
        self._bits: dict[str, int] = {}

    def of(self, instance: str) -> S:
        """The note of one replica, made when it is met first."""
        seat = self._seats.get(instance)
        if seat is None:
            taken = 0
            for bit in self._bits.values():
                taken |= bit
            bit = ~taken & (taken + 1)
            seat = self._seats[instance] = self._make(bit)
            self._bits[instance] = bit
        return seat

    def get(self, instance: str) -> S | None:
        """The note of a replica already met and still there."""
        return self._seats.get(instance)

    def all(self) -> tuple[S, ...]:
        """Every note."""
        return tuple(self._seats.values())

    def leave(self, instance: str) -> int:
        """Forget one replica; return the bit it had, 0 for one never met."""
        self._seats.pop(instance, None)
        return self._bits.pop(instance, 0)


class Noting(Generic[P]):
    """What a policy inherits that notes which replica has which prompt.

    :ivar index: the fingerprints, each with the replicas that have it.
    """

    def __init__(self, make: Callable[[int], P]) -> None:
        self.index: PrefixIndex[None] = PrefixIndex()
        self._seats: Seats[P] = Seats(make)

    def seat(self, instance: str) -> P:
        """The figures of one replica."""
        return self._seats.of(instance)

    def note(self, prompt: Prompt, instance: str) -> None:
        """A replica has computed a prompt; of one that is gone nothing is noted."""
        seat = self._seats.get(instance)
        if seat is not None:
            self.index.write(prompt.chain, seat.bit, None)

    def replica_gone(self, instance: str) -> None:
        """Forget what it had."""
        self.index.forget(self._seats.leave(instance))
