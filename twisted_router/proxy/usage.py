"""What an answer says of its tokens, read from the end of what was relayed anyway."""

from __future__ import annotations

import re

from ..core.effects import Usage

#: Bytes of an answer's end that are looked at: ``usage`` comes last, in a stream as in a single document.
TAIL = 4096

_PROMPT = re.compile(rb'"prompt_tokens"\s*:\s*(\d{1,9})')
_CACHED = re.compile(rb'"cached_tokens"\s*:\s*(\d{1,9})')
_COMPLETION = re.compile(rb'"completion_tokens"\s*:\s*(\d{1,9})')


class UsageReader:
    """Keeps the end of an answer as it passes; delays and alters nothing."""

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = b""

    def add(self, data: bytes) -> None:
        """Take a piece of the answer."""
        self._tail = data[-TAIL:] if len(data) >= TAIL else (self._tail + data)[-TAIL:]

    def read(self) -> Usage:
        """Return what the end says; compressed answers, and engines that tell nothing, give nothing."""
        return Usage(self._last(_PROMPT), self._last(_CACHED), self._last(_COMPLETION))

    def _last(self, pattern: re.Pattern[bytes]) -> int | None:
        found = pattern.findall(self._tail)
        return int(found[-1]) if found else None
