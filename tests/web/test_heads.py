"""Heads read in one pass: the plain ones, and only those."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.fuzz.profile import effort
from tests.web.scene import OK, RouterTestCase
from twisted_router.web.heads import read_plain_head

PLAIN = b"POST /v1/x?y=%2F HTTP/1.1\r\nhost: r\r\nX-A:  1 \t\r\nx-a: 2\r\nEmpty:\r\n\r\n"


class PlainHeadTests(SynchronousTestCase):
    """What is taken and what is left."""

    def test_taken(self) -> None:
        """Names are canonical, values without blanks around, duplicates in order; what follows is left."""
        head = read_plain_head(PLAIN + b"rest", 1000)
        assert head is not None
        self.assertEqual((head.method, head.target, head.size), (b"POST", b"/v1/x?y=%2F", len(PLAIN)))
        self.assertEqual(head.fields, {b"Host": [b"r"], b"X-A": [b"1", b"2"], b"Empty": [b""]})

    def test_left(self) -> None:
        """What is incomplete, unusual or wrong is read line by line, where every rule is."""
        for head in (
            b"",
            PLAIN[:-1],
            b"\r\n" + PLAIN,
            b"get /v1/x HTTP/1.1\r\nHost: r\r\n\r\n",
            b"GET http://r/v1/x HTTP/1.1\r\nHost: r\r\n\r\n",
            b"GET /v1/\xff HTTP/1.1\r\nHost: r\r\n\r\n",
            b"GET /v1/x y HTTP/1.1\r\nHost: r\r\n\r\n",
            b"GET /v1/x HTTP/1.0\r\nHost: r\r\n\r\n",
            b"GET /v1/x HTTP/1.1\r\nHost: r\r\nA: b\r\n c\r\n\r\n",
            b"GET /v1/x HTTP/1.1\r\nHost: r\r\nA : b\r\n\r\n",
            b"GET /v1/x HTTP/1.1\r\nHost: r\r\nA: \0\r\n\r\n",
            b"GET /v1/x HTTP/1.1\r\nHost: r\r\nA: b\rC: d\r\n\r\n",
            b"GET /v1/x HTTP/1.1\r\nHost: r\nA: b\r\n\r\n",
            b"GET /v1/x HTTP/1.1\r\nHost: r\r\ntransfer-encoding: chunked\r\n\r\n",
            b"GET /v1/x HTTP/1.1\r\nHost: r\r\nUpgrade: websocket\r\n\r\n",
            b"GET /v1/x HTTP/1.1\r\nHost: r\r\n" + b"A: b\r\n" * 100 + b"\r\n",
        ):
            self.assertIsNone(read_plain_head(head, 2000), head)

    def test_limit(self) -> None:
        """A head beyond the limit is left too."""
        self.assertIsNotNone(read_plain_head(PLAIN, len(PLAIN)))
        self.assertIsNone(read_plain_head(PLAIN, len(PLAIN) - 1))


FIELDS = st.lists(
    st.tuples(
        st.sampled_from((b"X-A", b"x-a", b"Accept", b"Content-Type", b"Connection", b"TE", b"X-Session-Id")),
        st.binary(max_size=8).map(lambda value: value.translate(None, b"\0\r\n")),
    ),
    max_size=6,
)


class SameTests(RouterTestCase):
    """A request is the same to a replica whether its head came whole or byte by byte."""

    @effort(60)
    @given(FIELDS, st.binary(max_size=20), st.sampled_from((b"GET", b"POST", b"DELETE")))
    def test_upstream(self, fields: list[tuple[bytes, bytes]], body: bytes, method: bytes) -> None:
        """The bytes that reach the replica are equal."""
        lines = [method + b" /v1/x HTTP/1.1", b"Host: r", b"Content-Length: %d" % len(body)]
        request = b"\r\n".join((*lines, *(b": ".join(field) for field in fields), b"", body))
        seen = []
        for pieces in ((request,), tuple(request[at : at + 1] for at in range(len(request)))):
            self.make("a")
            caller = self.router.call(*pieces)
            lines_open = self.router.replicas["a"].lines
            if lines_open:
                self.router.reply("a", OK)
            seen.append(([line.value() for line in lines_open], caller.heard[:12]))
        self.assertEqual(seen[0], seen[1])
