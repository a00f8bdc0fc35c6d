"""What twisted.web lets through and the router does not."""

from __future__ import annotations

import json

from tests.web.scene import OK, RouterTestCase, post


class Framing(RouterTestCase):
    """Framing that another server could read differently is refused, and nothing of it reaches a replica."""

    def assert_refused(self, request: bytes, status: int = 400) -> None:
        self.make()
        caller = self.router.call(request)
        told = caller.answer()
        self.assertEqual((told.status, told.field("Connection")), (status, "close"), request)
        self.assertEqual(json.loads(told.body)["object"], "error")
        self.assertEqual(sum(endpoint.attempts for endpoint in self.router.replicas.values()), 0, request)

    def test_transfer_encoding(self) -> None:
        """Plain ``chunked``, once, in HTTP/1.1, is the only Transfer-Encoding."""
        chunks = b"2\r\n{}\r\n0\r\n\r\n"
        for fields in (
            b"Transfer-Encoding: identity",
            b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
            b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
            b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            b"Transfer-Encoding: identity\r\nContent-Length: 2",
            b"Transfer-Encoding: gzip, chunked",
            b"Transfer-Encoding: chunked, chunked",
            b"Transfer-Encoding:",
        ):
            self.assert_refused(b"POST /v1/x HTTP/1.1\r\nHost: a\r\n" + fields + b"\r\n\r\n" + chunks)
        old = b"POST /v1/x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.assert_refused(old + chunks)

    def test_huge_length(self) -> None:
        """A length of thousands of digits is a bad request, not a failure of ours."""
        for digits in (19, 5000):
            length = b"Content-Length: " + b"0" * digits
            self.assert_refused(b"POST /v1/x HTTP/1.1\r\nHost: a\r\n" + length + b"\r\n\r\n")

    def test_fold(self) -> None:
        """A folded header line is refused, wherever it stands."""
        for fields in (b" Host: a", b"Host: a\r\n b", b"Host: a\r\nX-A: b\r\n\tc", b"Host: a\r\n \r\nX: y"):
            self.assert_refused(b"POST /v1/x HTTP/1.1\r\n" + fields + b"\r\nContent-Length: 0\r\n\r\n")

    def test_host(self) -> None:
        """A Host that could not be one is refused; one with a port, or none in it, is fine."""
        for host in (b"a b", b"a/b", b"user@a", b"\xff", b"a,b\x7f"):
            self.assert_refused(b"GET /v1/x HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
        for host in (b"", b"a:8000", b"[::1]:8000", b"a.example."):
            self.make()
            self.router.call(b"GET /v1/x HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
            self.assertEqual(sum(endpoint.attempts for endpoint in self.router.replicas.values()), 1, host)

    def test_target(self) -> None:
        """A target has the characters a URL can have."""
        for target in (b"/v1/\x80", b"/v1/\xc3\xa9", b"/v1/\x7f"):
            self.assert_refused(b"GET " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n")

    def test_many_fields(self) -> None:
        """Hundreds of header fields are taken, more are too large a head."""
        fields = b"".join(b"X-%d: y\r\n" % number for number in range(500))
        self.assert_refused(b"GET /v1/x HTTP/1.1\r\nHost: a\r\n" + fields + b"\r\n", 431)
        self.make()
        few = fields.replace(b"X-0: y\r\n", b"")
        self.router.call(b"GET /v1/x HTTP/1.1\r\nHost: a\r\n" + few + b"\r\n")
        self.assertEqual(sum(endpoint.attempts for endpoint in self.router.replicas.values()), 1)

    def test_connect(self) -> None:
        """A tunnel is asked for in vain, whatever its target looks like."""
        self.assert_refused(b"CONNECT /v1/x HTTP/1.1\r\nHost: a\r\n\r\n", 501)
        self.assert_refused(b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n", 501)


class Persistence(RouterTestCase):
    """When the client's connection ends with the answer."""

    def test_close_in_a_list(self) -> None:
        """``close`` counts wherever it stands in Connection, and in whatever letters."""
        for value in (
            b"close",
            b"keep-alive, close",
            b"close,x-a",
            b"Close, TE",
            b"x-a\r\nConnection: CLOSE",
        ):
            self.make()
            caller = self.router.call(post(b"{}", None, b"Connection: " + value))
            self.router.reply(self.router.chosen(), OK)
            self.assertEqual(caller.answer().field("Connection"), "close", value)
            self.assertTrue(caller.line.gone, value)

    def test_not_close(self) -> None:
        """A name that only resembles ``close`` does not end it."""
        caller = self.router.call(post(b"{}", None, b"Connection: closed, keep-alive"))
        self.router.reply(self.router.chosen(), OK)
        self.assertIsNone(caller.answer().field("Connection"))
        self.assertFalse(caller.line.disconnecting)


class OwnPages(RouterTestCase):
    """Paths that are no text, and Hosts that are no name."""

    def test_any_host(self) -> None:
        """Whatever name the client uses for the router, the pages are the same."""
        for host in (b"a" * 64, b"..", b"a..b", b"xn--a", b"[::1", b"a:b:c", b""):
            self.make()
            told = self.router.call(b"GET /liveness HTTP/1.1\r\nHost: " + host + b"\r\n\r\n").answer()
            self.assertEqual(told.status, 200, host)

    def test_not_utf8(self) -> None:
        """They are not found, and the log hears nothing of them."""
        for target in (b"/%ff", b"/sessions/%80", b"/%c3%28/x"):
            self.make()
            told = self.router.call(b"GET " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n").answer()
            self.assertEqual(told.status, 404, target)
        self.assertEqual(self.flushLoggedErrors(), [])
