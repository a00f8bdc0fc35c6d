"""HTTP/1 response heads and body framing, bytes in and bytes out (RFC 9112 sections 4 to 7).

Followers track a body only as far as needed to see its end. Their output is what goes to the client: the
framed bytes as they came, or the bare content for a client that cannot take the framing.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

from attrs import define, frozen

#: Bytes a response head may have; engines put whole configurations into headers.
HEAD_LIMIT = 256 * 1024
#: Bytes a chunk's size line, or the trailer section, may have.
LINE_LIMIT = 16 * 1024

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: ([^\x00\r\n]*))?\Z").match
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\x00\r\n]*)\Z").match
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})\r\n").match
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}\Z").match
_LINE_END = re.compile(rb"[\x00\r\n]").search
_FOLD = re.compile(rb"[ \t]*\r\n[ \t]+")

_OVERRUN = "a chunk does not end where its size says"


class BadResponse(Exception):
    """The replica sent something that is not an HTTP/1 response."""


class Field(NamedTuple):
    """One header field: its name in lower case, its value without blanks around, and its line as it came."""

    name: bytes
    value: bytes
    line: bytes


@frozen
class Head:
    """A parsed response head.

    :ivar minor: 0 or 1, from ``HTTP/1.x``.
    :ivar fields: in the order they came.
    """

    minor: int
    status: int
    reason: bytes
    fields: tuple[Field, ...]

    def all(self, name: bytes) -> list[bytes]:
        """Every value of a field; ``name`` in lower case."""
        return [field[1] for field in self.fields if field[0] == name]


def parse_head(block: bytes) -> Head:
    """Read a response head, status line first, without its closing blank line.

    :raises BadResponse: it is none.
    """
    if b"\r\n " in block or b"\r\n\t" in block:
        start = block.find(b"\r\n") + 2
        if block[start : start + 1] in (b" ", b"\t"):
            raise BadResponse("its first header line begins with a blank")
        block = _FOLD.sub(b" ", block)
    first, *lines = block.split(b"\r\n")
    status = _STATUS(first)
    if status is None:
        raise BadResponse("its status line is not HTTP/1")
    fields = []
    for line in lines:
        field = _FIELD(line)
        if field is None:
            raise BadResponse("one of its header lines is malformed")
        name, value = field.groups()
        fields.append(Field(name.lower(), value.rstrip(b" \t"), line))
    minor, code, reason = status.groups()
    return Head(int(minor), int(code), reason or b"", tuple(fields))


class Follower(Protocol):
    """Follows one response body to its end.

    :ivar done: the end was seen.
    :ivar rest: bytes that came after the end; anything there makes the connection unfit for reuse.
    """

    done: bool
    rest: bytes

    def feed(self, data: bytes) -> bytes:
        """Take what arrived, return what may go to the client now."""

    def closed(self) -> bytes | None:
        """Return what completes the body when the replica closes in order here, None when that cuts it."""


@define
class NoBody:
    """HEAD, 204 and 304 answers: the head is all."""

    rest: bytes = b""
    done: bool = True

    def feed(self, data: bytes) -> bytes:
        """Nothing belongs to the body."""
        self.rest += data
        return b""

    def closed(self) -> bytes | None:
        """Complete from the start."""
        return b""


@define
class LengthBody:
    """A body of ``left`` more bytes, as Content-Length announced."""

    left: int
    rest: bytes = b""
    done: bool = False

    def __attrs_post_init__(self) -> None:
        self.done = not self.left

    def feed(self, data: bytes) -> bytes:
        """Count."""
        self.left -= len(data)
        if self.left > 0:
            return data
        self.done = True
        if self.left:
            data, self.rest = data[: self.left], data[self.left :]
            self.left = 0
        return data

    def closed(self) -> bytes | None:
        """Only once every byte has come."""
        return b"" if self.done else None


@define
class CloseBody:
    """A body that lasts until the replica closes, as in HTTP/1.0; ``frame`` cuts it into chunks."""

    frame: bool
    rest: bytes = b""
    done: bool = False

    def feed(self, data: bytes) -> bytes:
        """Pass on, in a chunk of its own when the client's connection is to survive."""
        return b"%x\r\n%b\r\n" % (len(data), data) if self.frame else data

    def closed(self) -> bytes | None:
        """The close is the end."""
        return b"0\r\n\r\n" if self.frame else b""


class ChunkedBody:
    """A chunked body, forwarded as it came or, with ``decode``, as bare content.

    Whole chunks go out at once, however many one read brought. An unfinished size line is held back, so that
    a broken end can never look like a whole chunk.
    """

    __slots__ = ("_decode", "_held", "_skip", "done", "rest")

    def __init__(self, decode: bool) -> None:
        self._decode = decode
        self._skip = 0  # bytes to come of the present chunk, its closing CRLF included
        self._held = b""
        self.done = False
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        """Walk over the chunks in ``data``.

        :raises BadResponse: the framing is broken.
        """
        if self._held:
            data, self._held = self._held + data, b""
        size = len(data)
        skip = self._skip
        out = [data[: max(0, skip - 2)]] if self._decode and skip else []
        at = 0
        while True:
            at += skip
            if at >= size:
                self._skip = at - size
                self._check_end(data, at)
                break
            if skip and data[at - 2 if at > 1 else 0 : at] != b"\r\n"[-at:]:
                raise BadResponse(_OVERRUN)
            plain = _CHUNK(data, at)
            if plain is not None:
                start = plain.end()
                length = int(plain[1], 16)
            else:
                line_end = data.find(b"\r\n", at)
                if line_end < 0:
                    self._hold(data, at)
                    break
                start = line_end + 2
                length = self._size(data[at:line_end])
            if not length:
                return self._finish(data, at, start - 2, out)
            skip = start - at + length + 2
            if self._decode:
                out.append(data[start : start + length])
        if self._decode:
            return b"".join(out)
        return data[: size - len(self._held)] if self._held else data

    def closed(self) -> bytes | None:
        """Only after the last chunk."""
        return b"" if self.done else None

    def _check_end(self, data: bytes, at: int) -> None:
        """Verify as much of the chunk's closing CRLF as has come."""
        missing = at - len(data)
        if missing < 2 and data:
            have = b"\r\n"[: 2 - missing]
            tail = data[-len(have) :]
            if not have.endswith(tail):
                raise BadResponse(_OVERRUN)

    def _hold(self, data: bytes, at: int) -> None:
        self._held = data[at:]
        self._skip = 0
        if len(self._held) > LINE_LIMIT:
            raise BadResponse("a chunk's size line is too long")

    def _size(self, line: bytes) -> int:
        digits, _, extension = line.partition(b";")
        if _LINE_END(extension):
            raise BadResponse("a chunk's extension holds half a line end")
        if not _SIZE(digits.rstrip(b" \t")):
            raise BadResponse("a chunk's size is not a hexadecimal number")
        return int(digits, 16)

    def _finish(self, data: bytes, at: int, line_end: int, out: list[bytes]) -> bytes:
        """The last chunk has come: take the trailer section, if it is complete."""
        end = data.find(b"\r\n\r\n", line_end)
        if end < 0:
            self._hold(data, at)
            return b"".join(out) if self._decode else data[:at]
        for line in data[line_end + 2 : end].split(b"\r\n") if end > line_end else ():
            if not _FIELD(line):
                raise BadResponse("a trailer line is malformed")
        self.done = True
        self.rest = data[end + 4 :]
        return b"".join(out) if self._decode else data[: end + 4]


def follower(head: Head, method: bytes, *, http11: bool) -> tuple[Follower, tuple[bytes, ...]]:
    """Choose how a body is followed, and the header lines that frame it towards the client.

    :param http11: the client speaks HTTP/1.1 and so understands chunks.
    :raises BadResponse: the replica contradicts itself about the body's length.
    """
    codings = head.all(b"transfer-encoding")
    lengths = set(head.all(b"content-length"))
    if method == b"HEAD" or head.status in (204, 304):
        legal = head.status != 204 and not codings and len(lengths) == 1
        return NoBody(), (b"Content-Length: " + lengths.pop(),) if legal else ()
    if codings:
        if len(codings) > 1 or codings[0].lower() != b"chunked" or not head.minor:
            raise BadResponse("its Transfer-Encoding is not plain chunked")
        return ChunkedBody(decode=not http11), (b"Transfer-Encoding: chunked",) if http11 else ()
    if lengths:
        length = lengths.pop()
        if lengths or not length.isdigit() or len(length) > 18:
            raise BadResponse("its Content-Length is contradictory or no number")
        return LengthBody(int(length)), (b"Content-Length: " + length,)
    return CloseBody(frame=http11), (b"Transfer-Encoding: chunked",) if http11 else ()
