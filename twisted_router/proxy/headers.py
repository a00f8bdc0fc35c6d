"""Which header fields stop at the router, in both directions (RFC 9110 section 7.6.1)."""

from __future__ import annotations

from collections.abc import Iterable

from twisted.web.http_headers import Headers

from .framing import Head

_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"transfer-encoding",
        b"upgrade",
    )
)
# Host and length are ours to write; the 100 of "Expect" has been given before the body was read.
_REQUEST_DROPS = _HOP_BY_HOP | {b"host", b"content-length", b"expect", b"trailer"}
# Exactly one session id leaves the router, its own; the length goes with the framing.
_RESPONSE_DROPS = _HOP_BY_HOP | {b"content-length", b"x-session-id"}


class VerbatimHeaders(Headers):
    """Request fields that are header lines already, for an agent that writes them as they are.

    :ivar lines: ``Name: value`` without line ends; none of them names Host or a length.
    """

    def __init__(self, lines: list[bytes]) -> None:
        super().__init__()
        self.lines = lines


def _named(connection: Iterable[bytes]) -> frozenset[bytes]:
    return frozenset(name.strip().lower() for value in connection for name in value.split(b","))


def for_replica(headers: Headers) -> VerbatimHeaders:
    """Pick the client's fields that go on to the replica; order and duplicates stay."""
    drops = _REQUEST_DROPS
    connection = headers.getRawHeaders(b"connection")
    if connection is not None:
        drops = drops | _named(connection)
    lines = []
    for name, values in headers.getAllRawHeaders():
        if name.lower() not in drops:
            for value in values:
                lines.append(b"%b: %b" % (name, value))
    return VerbatimHeaders(lines)


def for_client(head: Head) -> list[bytes]:
    """Pick the replica's fields that go on to the client, as lines without line ends."""
    drops = _RESPONSE_DROPS
    connection = head.all(b"connection")
    if connection:
        drops = drops | _named(connection)
    return [field[2] for field in head.fields if field[0] not in drops]
