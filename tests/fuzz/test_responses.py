"""Whatever a replica sends: what a client gets is what another parser would have read, or visibly broken."""

from __future__ import annotations

import re
from http.client import HTTPException

import h11
from hypothesis import assume, example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.fuzz.profile import cut, effort, spoilt
from tests.proxy.fakes import Answers
from tests.web.scene import Router, post
from twisted_router.proxy.framing import BadResponse, ChunkedBody, parse_head

_BLANKS = re.compile(rb"(\A|\r\n\r\n)[\r\n]+(?=HTTP/)")

_LINES = st.sampled_from(
    (
        b"Content-Length: 5",
        b"Content-Length: 5",
        b"content-length: 0",
        b"Content-Length: 5, 5",
        b"Content-Length: 6",
        b"Content-Length: +5",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: chunked",
        b"transfer-encoding: CHUNKED",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: identity",
        b"Connection: close",
        b"Connection: keep-alive, x-a",
        b"X-A: b",
        b"X-A: b\r\n folded",
        b"X-A:",
        b"X A: b",
        b"Set-Cookie: a=b",
        b"Set-Cookie: c=d",
        b"X-Session-Id: other",
        b"Trailer: X-T",
    )
)
_BODIES = st.sampled_from(
    (
        b"",
        b"hello",
        b"hello",
        b"hellomore",
        b"5\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\r\n0\r\n\r\n",
        b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        b"5\r\nhello\r\n0\r\nX-T: 1\r\n\r\n",
        b"5;a=b\r\nhello\r\n0\r\n\r\n",
        b"5 \r\nhello\r\n0\r\n\r\n",
        b"005\r\nhello\r\n000\r\n\r\n",
        b"5\r\nhello\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"5\r\nhelloworld\r\n0\r\n\r\n",
        b"ffffffffffffffff\r\nhello",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"0\r\nbad\r\n\r\n",
    )
)
_FIRST = st.sampled_from(
    (
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 200",
        b"HTTP/1.1 404 Not Found",
        b"HTTP/1.1 204 No Content",
        b"HTTP/1.1 304 Not Modified",
        b"HTTP/1.0 200 OK",
        b"HTTP/1.1 099 Low",
        b"HTTP/2 200",
        b"ICY 200 OK",
    )
)
_INTERIM = st.sampled_from(
    (b"", b"", b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", b"\r\n")
)


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """One response, well-formed or nearly."""
    lines = [draw(_FIRST), *draw(st.lists(_LINES, max_size=4))]
    return draw(_INTERIM) + b"\r\n".join((*lines, b"", draw(_BODIES)))


@st.composite
def chunks(draw: st.DrawFn) -> bytes:
    """A chunked body, well-formed or nearly."""
    parts = draw(st.lists(st.binary(min_size=1, max_size=20), max_size=5))
    sizes = st.sampled_from((b"%x", b"%X", b"0%x", b"%x;a=1", b'%x;a="b;c"', b"%x "))
    body = b"".join(draw(sizes) % len(part) + b"\r\n" + part + b"\r\n" for part in parts)
    trailers = draw(st.sampled_from((b"", b"", b"X-T: 1\r\n", b"X-T: 1\r\nX-U: 2\r\n", b"bad\r\n")))
    return body + b"0\r\n" + trailers + b"\r\n" + draw(st.sampled_from((b"", b"", b"rest")))


def heard_by_h11(data: bytes, method: bytes = b"POST") -> tuple[int, bytes, bool] | None:
    """Status, body and whether it is whole, as h11 reads an answer before a close; None: no answer."""
    client = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    headers = [("Host", "a"), ("Content-Length", "0")]
    client.send(h11.Request(method=method, target="/", headers=headers))
    client.send(h11.EndOfMessage())
    status, body = 0, b""
    try:
        client.receive_data(data)
        client.receive_data(b"")
        while True:
            event = client.next_event()
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                return status, body, True
            elif not isinstance(event, h11.InformationalResponse):
                break
    except h11.RemoteProtocolError:
        pass
    return (status, body, False) if status else None


class ResponseFuzz(SynchronousTestCase):
    """Bytes of a replica against the whole data path in memory."""

    @effort(500)
    @given(cut(spoilt(answers())), st.sampled_from((b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0")))
    def test_relayed_or_broken(self, pieces: list[bytes], version: bytes) -> None:
        """A whole answer arrives whole, anything else visibly broken; nobody is served after junk."""
        assume(b"\x0b" not in b"".join(pieces))  # h11 takes it for a blank
        router = Router("a")
        caller = router.call(post().replace(b"HTTP/1.1", version, 1))
        replica = router.replicas["a"].line
        for piece in pieces:
            replica.deliver(piece)
            router.clock.advance(0)
        reused = not replica.aborted and not sum(router.load().values())
        replica.hang_up()
        router.clock.advance(0)
        # Blank lines before a head are skipped, as servers do before a request.
        theirs = heard_by_h11(_BLANKS.sub(rb"\1", b"".join(pieces)))
        ours = heard_by_h11(caller.heard) if caller.heard else None
        broken = ours is None or not ours[2] or ours[0] == 502 or caller.line.aborted
        head = b"".join(pieces).lower()
        if ours is not None and ours[0] in (204, 304):
            pass  # there is no body, whatever the head says of one
        elif theirs is None and b"transfer-encoding" in head and b"content-length" in head:
            pass  # chunks win, the length is dropped, and the connection is not used again
        elif theirs is None or not theirs[2]:
            self.assertTrue(broken, (pieces, ours, theirs))
        elif not broken:
            self.assertEqual(ours, theirs, pieces)
        if reused:
            self.assertFalse(broken, pieces)
        self.assertEqual(self.flushLoggedErrors(), [])
        self.assertEqual(sum(router.load().values()), 0)
        self.assertEqual(len(router.notes.outcomes), 1)

    @effort(700)
    @given(cut(spoilt(chunks())))
    @example([b"1", b"\r", b"\n", b"x", b"\r", b"\n", b"0", b"\r", b"\n", b"\r", b"\n"])
    def test_chunks(self, pieces: list[bytes]) -> None:
        """The follower sees the end of a chunked body where h11 does, and forwards what means the same."""
        data = b"".join(pieces)
        assume(b"\x0b" not in data and not re.search(rb"[ \t];", data))  # stricter there
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        theirs = heard_by_h11(head + data)
        for decode in (False, True):
            follow, out = ChunkedBody(decode), b""
            try:
                for piece in pieces:
                    if follow.done:
                        follow.rest += piece
                    else:
                        out += follow.feed(piece)
            except BadResponse:
                pass
            if decode and follow.done:
                self.assertEqual(theirs, (200, out, True), pieces)
            elif follow.done:
                self.assertEqual(heard_by_h11(head + out), theirs, pieces)
                self.assertEqual(out + follow.rest, data)
            elif not decode:
                told = heard_by_h11(head + out)
                self.assertFalse(told is not None and told[2], pieces)

    @effort(500)
    @given(spoilt(answers()))
    def test_heads(self, data: bytes) -> None:
        """A head that is read means to us what it means to h11."""
        block = data.partition(b"\r\n\r\n")[0]
        try:
            head = parse_head(block)
        except BadResponse:
            return
        if head.status < 200 or b"\n" in block.replace(b"\r\n", b""):
            return
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method="GET", target="/", headers=[("Host", "a")]))
        client.send(h11.EndOfMessage())
        client.receive_data(block + b"\r\n\r\n")
        try:
            told = client.next_event()
        except h11.RemoteProtocolError:
            return
        assert isinstance(told, h11.Response), told
        self.assertEqual((told.status_code, told.reason), (head.status, head.reason), block)
        # h11 makes one of equal lengths.
        names = [name for name, _ in told.headers if name != b"content-length"]
        ours = [field[0].lower() for field in head.fields]
        self.assertEqual(names, [name for name in ours if name != b"content-length"], block)


class AnswersStay(SynchronousTestCase):
    """The reader used above can see a cut."""

    def test_cut_is_seen(self) -> None:
        """A short answer is not taken for a whole one."""
        self.assertEqual(
            heard_by_h11(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"), (200, b"hel", False)
        )
        with self.assertRaises(HTTPException):
            Answers(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel").next().read()
