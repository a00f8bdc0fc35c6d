from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.fuzz.profile import effort
from twisted_router.proxy.framing import (
    LINE_LIMIT,
    BadResponse,
    ChunkedBody,
    CloseBody,
    Follower,
    Head,
    LengthBody,
    NoBody,
    follower,
    parse_head,
)


def head(*lines: bytes, status: bytes = b"HTTP/1.1 200 OK") -> Head:
    return parse_head(b"\r\n".join((status, *lines)))


def fed(body: Follower, *reads: bytes) -> bytes:
    return b"".join(body.feed(read) for read in reads)


class Heads(SynchronousTestCase):
    def test_status_lines(self) -> None:
        """Version, status and reason are read; a reason may be odd, empty or missing."""
        table = {
            b"HTTP/1.1 200 OK": (1, 200, b"OK"),
            b"HTTP/1.0 404 Not Found": (0, 404, b"Not Found"),
            b"HTTP/1.1 200": (1, 200, b""),
            b"HTTP/1.1 200 ": (1, 200, b""),
            b"HTTP/1.1 599 \xe9\t:;()": (1, 599, b"\xe9\t:;()"),
            b"HTTP/1.1 100 Continue": (1, 100, b"Continue"),
        }
        for line, (minor, status, reason) in table.items():
            self.assertEqual(parse_head(line), Head(minor, status, reason, ()), line)

    def test_bad_status_lines(self) -> None:
        """What is not exactly an HTTP/1 status line is refused."""
        for line in (
            b"",
            b"HTTP/2 200 OK",
            b"HTTP/1.2 200 OK",
            b"http/1.1 200 OK",
            b"HTTP/1.1  200 OK",
            b"HTTP/1.1 200OK",
            b"HTTP/1.1 20 OK",
            b"HTTP/1.1 2000 OK",
            b"HTTP/1.1 600 OK",
            b"HTTP/1.1 099 OK",
            b"HTTP/1.1 -20 OK",
            b"HTTP/1.1 \xb2\xb2\xb2 OK",
            b" HTTP/1.1 200 OK",
            b"HTTP/1.1 200 O\x00K",
            b"HTTP/1.1 200 O\nK",
            b"HTTP/1.1 200 O\rK",
            b"HTTP/1.1\t200 OK",
            b"ICY 200 OK",
        ):
            with self.assertRaises(BadResponse, msg=line):
                parse_head(line)

    def test_fields(self) -> None:
        """Fields keep their order, duplicates and lines; values are read without blanks around."""
        found = head(b"X-Dup: 1", b"x-dup:2", b"A:\t b c \t", b"E:", b"U: \xff\x80", b"!#$%&'*+-.^_`|~9: x")
        self.assertEqual(
            found.fields,
            (
                (b"x-dup", b"1", b"X-Dup: 1"),
                (b"x-dup", b"2", b"x-dup:2"),
                (b"a", b"b c", b"A:\t b c \t"),
                (b"e", b"", b"E:"),
                (b"u", b"\xff\x80", b"U: \xff\x80"),
                (b"!#$%&'*+-.^_`|~9", b"x", b"!#$%&'*+-.^_`|~9: x"),
            ),
        )
        self.assertEqual(found.all(b"x-dup"), [b"1", b"2"])

    def test_fold(self) -> None:
        """A folded value becomes one line, joined by a single blank."""
        found = head(b"A: one \t", b"   two", b"\tthree", b"B: x")
        self.assertEqual(found.fields, ((b"a", b"one two three", b"A: one two three"), (b"b", b"x", b"B: x")))

    def test_bad_fields(self) -> None:
        """A header line that could be read in two ways is refused."""
        for line in (
            b"no colon",
            b": no name",
            b"A : blank before the colon",
            b"A\t: x",
            b"A b: x",
            b"A(b): x",
            b"\xe4: x",
            b"A: \x00",
            b"A: b\rC: d",
            b"A: b\nContent-Length: 5",
            b"A\n: b",
            b"",
        ):
            with self.assertRaises(BadResponse, msg=line):
                head(line)

    @given(st.binary(max_size=200))
    @effort(100)
    def test_anything(self, block: bytes) -> None:
        """Any bytes give a head or ``BadResponse``, never another exception."""
        for text in (block, b"HTTP/1.1 200 OK\r\n" + block):
            try:
                found = parse_head(text)
            except BadResponse:
                continue
            for field in found.fields:
                self.assertFalse(set(field.line) & set(b"\x00\r\n"))


class Choosing(SynchronousTestCase):
    def chosen(
        self, *lines: bytes, method: bytes = b"GET", http11: bool = True, status: bytes = b""
    ) -> object:
        found, framing = follower(head(*lines, status=status or b"HTTP/1.1 200 OK"), method, http11=http11)
        return type(found), framing

    def test_length(self) -> None:
        """One length, or the same one several times, counts the body and is passed on."""
        for lines in ((b"Content-Length: 5",), (b"Content-Length: 5", b"content-length: 5")):
            self.assertEqual(self.chosen(*lines), (LengthBody, (b"Content-Length: 5",)))

    def test_bad_lengths(self) -> None:
        """Lengths that contradict one another or are no plain number are refused."""
        for lines in (
            (b"Content-Length: 5", b"Content-Length: 6"),
            (b"Content-Length: 5, 5",),
            (b"Content-Length: +5",),
            (b"Content-Length: -5",),
            (b"Content-Length: 0x5",),
            (b"Content-Length: 5 5",),
            (b"Content-Length:",),
            (b"Content-Length: \xb2",),
            (b"Content-Length: " + b"9" * 19,),
        ):
            with self.assertRaises(BadResponse, msg=lines):
                self.chosen(*lines)

    def test_chunked(self) -> None:
        """A chunked body stays chunked for HTTP/1.1 and loses its framing for HTTP/1.0."""
        for value in (b"chunked", b"Chunked"):
            line = b"Transfer-Encoding: " + value
            self.assertEqual(self.chosen(line), (ChunkedBody, (b"Transfer-Encoding: chunked",)))
            self.assertEqual(self.chosen(line, http11=False), (ChunkedBody, ()))

    def test_chunked_wins_over_length(self) -> None:
        """With both, the chunks are the framing and the length is dropped (RFC 9112 section 6.3)."""
        both = (b"Content-Length: 5", b"Transfer-Encoding: chunked")
        self.assertEqual(self.chosen(*both), (ChunkedBody, (b"Transfer-Encoding: chunked",)))

    def test_bad_codings(self) -> None:
        """Any transfer coding but plain chunked, or one from HTTP/1.0, is refused."""
        for lines in (
            (b"Transfer-Encoding: gzip, chunked",),
            (b"Transfer-Encoding: chunked, chunked",),
            (b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
            (b"Transfer-Encoding: identity",),
            (b"Transfer-Encoding: xchunked",),
            (b"Transfer-Encoding:",),
        ):
            with self.assertRaises(BadResponse, msg=lines):
                self.chosen(*lines)
        with self.assertRaises(BadResponse):
            self.chosen(b"Transfer-Encoding: chunked", status=b"HTTP/1.0 200 OK")

    def test_bodiless(self) -> None:
        """HEAD and 304 keep the length they announce, 204 has none; a body follows none of them."""
        length = b"Content-Length: 5"
        self.assertEqual(self.chosen(length, method=b"HEAD"), (NoBody, (length,)))
        self.assertEqual(self.chosen(length, status=b"HTTP/1.1 304 X"), (NoBody, (length,)))
        self.assertEqual(self.chosen(length, status=b"HTTP/1.1 204 X"), (NoBody, ()))
        self.assertEqual(self.chosen(method=b"HEAD"), (NoBody, ()))
        self.assertEqual(self.chosen(b"Transfer-Encoding: chunked", method=b"HEAD"), (NoBody, ()))

    def test_by_close(self) -> None:
        """Without any framing the close ends the body, which HTTP/1.1 clients get in chunks."""
        self.assertEqual(self.chosen(), (CloseBody, (b"Transfer-Encoding: chunked",)))
        self.assertEqual(self.chosen(http11=False), (CloseBody, ()))


class Lengths(SynchronousTestCase):
    @given(st.binary(max_size=60), st.binary(max_size=20), st.lists(st.integers(0, 80), max_size=6))
    @effort(100)
    def test_any_reads(self, content: bytes, more: bytes, cuts: list[int]) -> None:
        """However it is cut, exactly the announced bytes come out and what follows is the rest."""
        body = LengthBody(len(content))
        out = rest = b""
        for read in cut(content + more, cuts):
            if body.done:
                rest += read
            else:
                out += body.feed(read)
        self.assertEqual((out, body.done, body.rest + rest), (content, True, more))

    def test_close(self) -> None:
        """A close completes it only when every byte has come."""
        body = LengthBody(3)
        fed(body, b"ab")
        self.assertIsNone(body.closed())
        fed(body, b"c")
        self.assertEqual(body.closed(), b"")

    def test_empty(self) -> None:
        """A length of 0 is done from the start."""
        self.assertTrue(LengthBody(0).done)


class Nothing(SynchronousTestCase):
    def test_surplus(self) -> None:
        """Whatever comes after a head without a body is surplus, never body."""
        body = NoBody()
        self.assertEqual((body.feed(b"xy"), body.rest, body.done, body.closed()), (b"", b"xy", True, b""))


class ByClose(SynchronousTestCase):
    def test_bare(self) -> None:
        """For a client whose connection ends with it, the body passes as it is."""
        body = CloseBody(frame=False)
        self.assertEqual((fed(body, b"ab", b"c"), body.done, body.closed()), (b"abc", False, b""))

    def test_framed(self) -> None:
        """For an HTTP/1.1 client each read becomes a chunk, and the close the last one."""
        body = CloseBody(frame=True)
        out = fed(body, b"ab", b"c" * 17)
        self.assertEqual(out, b"2\r\nab\r\n11\r\n" + b"c" * 17 + b"\r\n")
        self.assertEqual(body.closed(), b"0\r\n\r\n")


def cut(data: bytes, at: list[int]) -> list[bytes]:
    places = sorted({min(place, len(data)) for place in at} | {0, len(data)})
    return [data[one:two] for one, two in pairwise(places)]


def reference(data: bytes) -> tuple[bytes, bytes] | None:
    """A second, plain decoder: content and rest of a complete chunked body, None when it is incomplete."""
    content = b""
    while True:
        line, found, data = data.partition(b"\r\n")
        if not found:
            return None
        size = int(line.partition(b";")[0], 16)
        if not size:
            break
        if data[size : size + 2] != b"\r\n":
            return None
        content, data = content + data[:size], data[size + 2 :]
    while True:
        line, found, data = data.partition(b"\r\n")
        if not found:
            return None
        if not line:
            return content, data


TEXT = st.text('abc =-"', max_size=8).map(str.encode)
EXTENSION = st.just(b"") | TEXT.map(lambda text: b";" + text)
CHUNK = st.tuples(st.binary(min_size=1, max_size=40), EXTENSION, st.sampled_from((b"%x", b"%X", b"00%x")))
TRAILER = st.tuples(st.sampled_from((b"X-A", b"Server-Timing")), TEXT)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A whole chunked body and its content."""
    wire = content = b""
    for data, extension, form in draw(st.lists(CHUNK, max_size=6)):
        wire += form % len(data) + extension + b"\r\n" + data + b"\r\n"
        content += data
    wire += b"0" + draw(EXTENSION) + b"\r\n"
    for name, value in draw(st.lists(TRAILER, max_size=2)):
        wire += name + b": " + value + b"\r\n"
    return wire + b"\r\n", content


CUTS = st.lists(st.integers(0, 300), max_size=12)


class Chunks(SynchronousTestCase):
    @given(bodies(), st.binary(max_size=10), CUTS)
    @effort(200)
    def test_any_reads(self, body: tuple[bytes, bytes], more: bytes, cuts: list[int]) -> None:
        """However it is cut: raw output is the input, decoded output the content, the rest what follows."""
        wire, content = body
        for decode, expected in ((False, wire), (True, content)):
            follow = ChunkedBody(decode)
            out = rest = b""
            for read in cut(wire + more, cuts):
                if follow.done:
                    rest += read
                else:
                    out += follow.feed(read)
            self.assertTrue(follow.done)
            self.assertEqual((out, follow.rest + rest, follow.closed()), (expected, more, b""))

    @given(bodies(), CUTS, st.data())
    @effort(200)
    def test_any_cut(self, body: tuple[bytes, bytes], cuts: list[int], data: st.DataObject) -> None:
        """A body that breaks off anywhere is no whole one, neither for us nor for who gets our output."""
        wire, _ = body
        part = wire[: data.draw(st.integers(0, len(wire) - 1))]
        follow = ChunkedBody(decode=False)
        out = fed(follow, *cut(part, cuts))
        self.assertFalse(follow.done)
        self.assertIsNone(follow.closed())
        self.assertIsNone(reference(out))
        self.assertTrue(part.startswith(out))

    @given(bodies(), st.integers(0, 300), st.binary(max_size=5), CUTS, st.booleans())
    @effort(200)
    def test_garbage(
        self, body: tuple[bytes, bytes], at: int, junk: bytes, cuts: list[int], decode: bool
    ) -> None:
        """Broken framing is ``BadResponse`` or an unfinished body, never another exception."""
        wire = body[0][:at] + junk + body[0][at + len(junk) :]
        follow = ChunkedBody(decode)
        try:
            for read in cut(wire, cuts):
                if not follow.done:
                    follow.feed(read)
        except BadResponse:
            self.assertIsNone(follow.closed())

    def test_byte_by_byte(self) -> None:
        """Single bytes are enough of a read."""
        wire = b"5;x=1\r\nhello\r\n0\r\nT: v\r\n\r\n"
        for decode, expected in ((False, wire), (True, b"hello")):
            follow = ChunkedBody(decode)
            self.assertEqual(fed(follow, *(bytes((one,)) for one in wire)), expected)
            self.assertTrue(follow.done)

    def test_early(self) -> None:
        """Bytes of an unfinished chunk go out as they come; only size lines and trailers are held back."""
        follow = ChunkedBody(decode=False)
        self.assertEqual(follow.feed(b"5\r\nhe"), b"5\r\nhe")
        self.assertEqual(follow.feed(b"llo\r\n1"), b"llo\r\n")
        self.assertEqual(follow.feed(b"\r\nx\r\n0\r\n"), b"1\r\nx\r\n")
        self.assertEqual(follow.feed(b"\r\n"), b"0\r\n\r\n")

    def test_bad(self) -> None:
        """Sizes, ends and trailers that are no such thing are refused, in one read or in many."""
        for wire in (
            b"\r\n",
            b"x\r\n",
            b"-1\r\n",
            b"+1\r\n",
            b"0x1\r\n",
            b"1_0\r\n",
            b" 1\r\n",
            b"1" * 16 + b"\r\n",
            b";x\r\n",
            b"1\r\nab\r\n",
            b"1\r\na\r\r\n",
            b"1\r\na\n\n",
            b"1\r\naX0\r\n\r\n",
            b"5\r\nhello0\r\n\r\n",
            b"0\r\nno colon\r\n\r\n",
            b"0\r\nA : b\r\n\r\n",
            b"0\r\nA: b\nc\r\n\r\n",
            b"1;a\nb\r\nx\r\n",
            b"1;a\rb\r\nx\r\n",
            b"1;a\x00b\r\nx\r\n",
        ):
            for reads in ((wire,), tuple(bytes((one,)) for one in wire)):
                with self.assertRaises(BadResponse, msg=(wire, len(reads))):
                    fed(ChunkedBody(decode=False), *reads)

    def test_endless_size_line(self) -> None:
        """A size line without an end is not collected for ever."""
        follow = ChunkedBody(decode=False)
        with self.assertRaises(BadResponse):
            fed(follow, b"1;", *[b"x" * 1024] * (LINE_LIMIT // 1024 + 1))

    def test_endless_trailer(self) -> None:
        """Nor is a trailer section."""
        follow = ChunkedBody(decode=True)
        with self.assertRaises(BadResponse):
            fed(follow, b"0\r\n", *[b"A: b\r\n" * 200] * (LINE_LIMIT // 1200 + 1))
