"""A bounded map that forgets what has not been used for long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Keeps at most ``cap`` entries in two generations.

    Entries in use move to the young generation; when that holds half the cap, the old one is thrown away
    whole and the young one takes its place. So at least the ``cap / 2`` most recently used entries are
    always there, every operation costs the same, and there is no list of links to pay memory for.
    """

    def __init__(self, cap: int) -> None:
        self._half = max(1, cap // 2)
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def values(self) -> Iterator[V]:
        """Every entry, in no useful order."""
        yield from self._young.values()
        yield from self._old.values()

    def peek(self, key: K) -> V | None:
        """Return an entry without counting this as a use."""
        value = self._young.get(key)
        return self._old.get(key) if value is None else value

    def get(self, key: K) -> V | None:
        """Return an entry and count this as a use."""
        value = self._young.get(key)
        if value is None:
            value = self._old.pop(key, None)
            if value is not None:
                self._add(key, value)
        return value

    def put(self, key: K, value: V) -> None:
        """Add or replace an entry."""
        if key in self._young:
            self._young[key] = value
            return
        self._old.pop(key, None)
        self._add(key, value)

    def discard(self, key: K) -> V | None:
        """Remove an entry if it is there, and return it."""
        value = self._young.pop(key, None)
        return self._old.pop(key, None) if value is None else value

    def _add(self, key: K, value: V) -> None:
        if len(self._young) >= self._half:
            self._old, self._young = self._young, {}
        self._young[key] = value
