"""A request's head and body -> the session it belongs to, without a tokenizer and without a full parse."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from twisted.web.http_headers import Headers

from ..core.sessions import usable_id

_BODY = "body."
_STREAM = re.compile(rb'"stream"\s*:\s*true').search


class SessionFinder:
    """Looks for a session id in the configured places, in order.

    :param sources: header names in lower case, and ``body.<path>`` for keys of a JSON body. The body is
        looked at only when no earlier source had an id, and parsed only when a single search finds the key's
        text. A key written with ``\\u`` escapes is therefore not seen.
    """

    def __init__(self, sources: Sequence[str]) -> None:
        self._sources = tuple(
            (tuple(source[len(_BODY) :].split(".")), b"")
            if source.startswith(_BODY)
            else ((), source.encode("ascii"))
            for source in sources
        )

    def find(self, headers: Headers, body: bytes) -> str | None:
        """Return the id the client named, made safe, or None. Never raises, whatever the body is."""
        document: object = self
        for path, header in self._sources:
            if not path:
                values = headers.getRawHeaders(header)
                found = usable_id(values[0]) if values else None
            else:
                if document is self:
                    document = _document(headers, body, path[-1])
                found = _at(document, path)
            if found is not None:
                return found
        return None


def _document(headers: Headers, body: bytes, key: str) -> object:
    """Parse the body if it is JSON that has ``key`` anywhere; None otherwise."""
    if body.find(b'"%b"' % key.encode()) < 0:
        return None
    kinds = headers.getRawHeaders(b"content-type")
    if kinds and kinds[0][:10].lower() == b"multipart/":
        return None
    try:
        parsed: object = json.loads(body)
    except (ValueError, RecursionError):
        # Not JSON, not UTF-8, a number of thousands of digits, nested to exhaustion: the replica's to judge.
        return None
    return parsed


def _at(document: object, path: tuple[str, ...]) -> str | None:
    for key in path:
        if not isinstance(document, dict):
            return None
        document = document.get(key)
    if not isinstance(document, str):
        return None
    return usable_id(document.encode("utf-8", "surrogatepass"))


def asks_for_stream(body: bytes) -> bool:
    """Tell whether a request wants its answer streamed, as far as a look at the raw body can.

    Clients write it behind the messages, so the end is the place to begin.
    """
    last = body.rfind(b'"stream"')
    return last >= 0 and (_STREAM(body, last) is not None or _STREAM(body, 0, last) is not None)
