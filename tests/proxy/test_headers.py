from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http_headers import Headers

from twisted_router.proxy.framing import parse_head
from twisted_router.proxy.headers import for_client, for_replica


def sent_on(*fields: tuple[bytes, bytes]) -> list[bytes]:
    headers = Headers()
    for name, value in fields:
        headers.addRawHeader(name, value)
    return for_replica(headers).lines


def handed_back(*lines: bytes) -> list[bytes]:
    return for_client(parse_head(b"\r\n".join((b"HTTP/1.1 200 OK", *lines))))


HOP_BY_HOP = (
    b"Connection",
    b"Keep-Alive",
    b"Proxy-Authenticate",
    b"Proxy-Authorization",
    b"Proxy-Connection",
    b"TE",
    b"Transfer-Encoding",
    b"Upgrade",
)


class ToReplica(SynchronousTestCase):
    def test_hop_by_hop(self) -> None:
        """Fields of the connection, and those the router writes itself, stop here; the rest goes on."""
        dropped = (*HOP_BY_HOP, b"Host", b"Content-Length", b"Expect", b"Trailer")
        fields = [(name, b"x") for name in dropped if name != b"Connection"]
        kept = (b"Authorization", b"Bearer k")
        self.assertEqual(sent_on(*fields, (b"Connection", b"x-none"), kept), [b"Authorization: Bearer k"])

    def test_named_by_connection(self) -> None:
        """Fields that ``Connection`` names are of the connection too, whatever their case."""
        self.assertEqual(
            sent_on(
                (b"Connection", b"close, X-Hop"),
                (b"Connection", b" x-leg "),
                (b"x-hop", b"1"),
                (b"X-Leg", b"1"),
            ),
            [],
        )

    def test_duplicates(self) -> None:
        """Values of one field keep their number and order."""
        self.assertEqual(
            sent_on((b"X-A", b"1"), (b"X-A", b"2"), (b"X-A", b"1")), [b"X-A: 1", b"X-A: 2", b"X-A: 1"]
        )

    def test_nothing_added(self) -> None:
        """A client that asked for no compression and named no agent gets neither."""
        self.assertEqual(sent_on(), [])

    def test_any_bytes(self) -> None:
        """Values that are not ASCII pass as they are."""
        self.assertEqual(sent_on((b"X-A", b"caf\xc3\xa9 \xff")), [b"X-A: caf\xc3\xa9 \xff"])

    def test_session(self) -> None:
        """The client's own session id travels on."""
        self.assertEqual(sent_on((b"X-Session-Id", b"s")), [b"X-Session-Id: s"])


class ToClient(SynchronousTestCase):
    def test_hop_by_hop(self) -> None:
        """Fields of the connection and the length stop here; the framing is written anew."""
        dropped = [name + b": x" for name in (*HOP_BY_HOP, b"Content-Length") if name != b"Connection"]
        self.assertEqual(handed_back(*dropped, b"Connection: close", b"Server: vllm"), [b"Server: vllm"])

    def test_named_by_connection(self) -> None:
        """Fields that the replica's ``Connection`` names stop here."""
        self.assertEqual(handed_back(b"Connection: X-Hop", b"x-hop: 1", b"X-B: 2"), [b"X-B: 2"])

    def test_verbatim(self) -> None:
        """Order, case and duplicates stay; two cookies are not made one."""
        lines = [b"set-cookie: a=1", b"X-b: 2", b"Set-Cookie: b=2", b"Trailer: X-T", b"Content-Encoding: br"]
        self.assertEqual(handed_back(*lines), lines)

    def test_session(self) -> None:
        """A replica's own session id does not reach the client beside the router's."""
        self.assertEqual(handed_back(b"X-Session-ID: theirs", b"x-session-id: again"), [])
