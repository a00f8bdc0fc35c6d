"""Many who wait for one outcome, each with a Deferred of its own."""

from __future__ import annotations

from typing import Generic, TypeVar

from twisted.internet.defer import Deferred

T = TypeVar("T")


class Waiters(Generic[T]):
    """Who waits for what; cancelling a waiter takes only that one away."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Deferred[T]]] = {}

    def join(self, key: str) -> Deferred[T]:
        """Make one more waiter."""
        waiter: Deferred[T] = Deferred()
        self._waiting.setdefault(key, []).append(waiter)
        return waiter

    def tell(self, key: str, outcome: T) -> None:
        """Give everybody who waits for ``key`` its outcome."""
        for waiter in self._waiting.pop(key, ()):
            waiter.callback(outcome)

    def fail(self, key: str, error: Exception) -> None:
        """Give everybody who waits for ``key`` this failure."""
        for waiter in self._waiting.pop(key, ()):
            waiter.errback(error)

    def dismiss(self, error: Exception) -> None:
        """Give everybody this failure."""
        for key in tuple(self._waiting):
            self.fail(key, error)
