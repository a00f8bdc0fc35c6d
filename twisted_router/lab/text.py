"""Prompt text that is never written out: only which leading parts of two prompts are equal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from ..core.prefix import CHUNK, Prompt
from .engine import BLOCK

#: Bytes one token stands for. Not the four a router assumes before it has learned better.
BYTES_PER_TOKEN = 3.7

_PART = 1 << 24


class Texts:
    """Makes texts whose parts have names that no other text of the same run has."""

    def __init__(self) -> None:
        self._names: Iterator[int] = count(1)

    def empty(self) -> Text:
        """A text of no tokens."""
        return Text(self._names)


class Text:
    """A growing prompt.

    A block or chunk is named after the part it ends in and where; parts have one predecessor each, so equal
    names mean equal text from the start.
    """

    __slots__ = ("_names", "blocks", "chunks", "messages", "tokens")

    def __init__(self, names: Iterator[int]) -> None:
        self._names = names
        self.tokens = 0
        self.messages = 0
        self.blocks: list[int] = []
        self.chunks: list[int] = []

    def grow(self, tokens: int, messages: int = 1) -> Text:
        """Append a part nobody else has; return self."""
        part = next(self._names) * _PART
        self.tokens += tokens
        self.messages += messages
        for position in range(len(self.blocks), self.tokens // BLOCK):
            self.blocks.append(part + position)
        for position in range(len(self.chunks), int(self.tokens * BYTES_PER_TOKEN) // CHUNK):
            self.chunks.append(part + position)
        return self

    def fork(self) -> Text:
        """Another text that is equal so far."""
        twin = Text(self._names)
        twin.tokens = self.tokens
        twin.messages = self.messages
        twin.blocks = list(self.blocks)
        twin.chunks = list(self.chunks)
        return twin

    def prompt(self) -> Prompt:
        """What a router would read from a request with this text."""
        return Prompt(int(self.tokens * BYTES_PER_TOKEN), tuple(self.chunks), self.messages)
