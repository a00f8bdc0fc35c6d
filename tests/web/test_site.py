from __future__ import annotations

import json

from tests.web.scene import END, OK, STREAM, Caller, RouterTestCase, Told, chunk, post
from twisted_router.core.effects import Ending
from twisted_router.web.site import Limits

GET = b"GET /v1/models HTTP/1.1\r\nHost: r\r\n"
SMALL = Limits(body=100, bodies=250)


def announce(length: int) -> bytes:
    return b"POST /v1/x HTTP/1.1\r\nHost: r\r\nContent-Length: %d\r\n\r\n" % length


class SiteTestCase(RouterTestCase):
    limits = SMALL

    def setUp(self) -> None:
        self.make("a", limits=self.limits)

    def assert_refused(self, caller: Caller, status: int, code: str) -> Told:
        """The client has a whole JSON error, our side is closed, and no replica has heard of it."""
        told = caller.answer()
        self.assertEqual((told.status, json.loads(told.body)["error"]["code"]), (status, code))
        self.assertEqual(
            (told.field("Content-Type"), told.field("Connection")), ("application/json", "close")
        )
        self.assertTrue(caller.line.half_closed)
        self.assertEqual(self.router.notes.begun, 0)
        return told

    def assert_served(self, *pieces: bytes) -> Caller:
        """A well-behaved client is served all the same."""
        caller = self.router.call(*pieces)
        self.router.reply("a", OK)
        self.assertEqual(caller.answer().status, 200)
        return caller


class Bodies(SiteTestCase):
    def test_declared_too_large(self) -> None:
        """A body announced as too large is refused with the head, before a byte of it."""
        self.assert_refused(self.router.call(announce(101)), 413, "body_too_large")
        self.assertEqual(self.router.site.held, 0)

    def test_limit(self) -> None:
        """A body of just the limit is taken, with a length or in chunks."""
        self.assert_served(announce(100), b"x" * 100)
        head = b"POST /v1/x HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.assert_served(head, chunk(b"x" * 60), chunk(b"x" * 40), END)

    def test_chunked_too_large(self) -> None:
        """A body of unknown length is refused as soon as it has grown too large."""
        caller = self.router.call(b"POST /v1/x HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n")
        caller.say(chunk(b"x" * 60), chunk(b"x" * 40))
        self.assertEqual(caller.heard, b"")
        caller.say(chunk(b"x"))
        self.assert_refused(caller, 413, "body_too_large")
        caller.say(chunk(b"x" * 50), END)
        caller.leave()
        self.assertEqual(self.router.site.held, 0)

    def test_total(self) -> None:
        """Bodies that together would exceed the total are refused with 503, until there is room again."""
        held = [self.router.call(announce(100)) for _ in range(2)]
        self.assertEqual(self.router.site.held, 200)
        caller = self.router.call(announce(51))
        self.assertEqual(self.assert_refused(caller, 503, "overloaded").field("Retry-After"), "1")
        self.assert_served(announce(50), b"x" * 50)
        held[0].leave()
        self.assert_served(announce(51), b"x" * 51)

    def test_total_chunked(self) -> None:
        """The total counts bodies of unknown length as they grow."""
        for _ in range(2):
            self.router.call(announce(100))
        caller = self.router.call(b"POST /v1/x HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n")
        caller.say(chunk(b"x" * 50))
        self.assertEqual(caller.heard, b"")
        caller.say(chunk(b"x"))
        self.assert_refused(caller, 503, "overloaded")

    def test_released(self) -> None:
        """Whatever becomes of a request, its body is counted no longer."""

        def answered(caller: Caller) -> None:
            self.router.reply("a", OK)

        def cut(caller: Caller) -> None:
            self.router.reply("a", STREAM).reset()

        def nonsense(caller: Caller) -> None:
            self.router.reply("a", b"hello")

        for end in (answered, cut, nonsense, Caller.leave):
            self.setUp()
            caller = self.router.call(announce(100), b"x" * 100)
            self.assertEqual(self.router.site.held, 100)
            end(caller)
            self.router.clock.advance(0)
            self.assertEqual(self.router.site.held, 0, end)

    def test_released_unfinished(self) -> None:
        """A client that leaves within its upload gives the room back, and no request was begun."""
        caller = self.router.call(announce(100), b"x" * 50)
        caller.leave()
        self.assertEqual((self.router.site.held, self.router.notes.begun), (0, 0))

    def test_released_elsewhere(self) -> None:
        """A body sent to one of the router's own routes is counted and released as well."""
        caller = self.router.call(b"GET /health HTTP/1.1\r\nHost: r\r\nContent-Length: 9\r\n\r\n")
        self.assertEqual(self.router.site.held, 9)
        caller.say(b"x" * 9)
        self.assertEqual((caller.answer().status, self.router.site.held), (200, 0))


class Continue(SiteTestCase):
    def test_given(self) -> None:
        """A client that asks first is told to go on, and the replica is not asked that again."""
        caller = self.router.call(announce(2)[:-2] + b"Expect: 100-continue\r\n\r\n")
        self.assertEqual(caller.heard, b"HTTP/1.1 100 Continue\r\n\r\n")
        caller.say(b"{}")
        sent = self.router.replicas["a"].line.value()
        self.assertNotIn(b"xpect", sent)
        self.assertTrue(sent.endswith(b"\r\n\r\n{}"))

    def test_not_after_a_refusal(self) -> None:
        """A client whose body is refused is not told to send it."""
        caller = self.router.call(announce(101)[:-2] + b"Expect: 100-continue\r\n\r\n")
        self.assertNotIn(b"100 Continue", caller.heard)
        self.assert_refused(caller, 413, "body_too_large")


class Heads(SiteTestCase):
    def test_malformed(self) -> None:
        """What could be read in two ways is a 400 with a JSON body, and the connection is closed."""
        body = b"Content-Length: 2\r\n\r\n{}"
        for request in (
            b"hello\r\n\r\n",
            b"GET /v1/x\r\n\r\n",
            b"GET  /v1/x HTTP/1.1\r\nHost: r\r\n\r\n",
            b"GET /v1/x HTTP/2.0\r\nHost: r\r\n\r\n",
            b"G(T /v1/x HTTP/1.1\r\nHost: r\r\n\r\n",
            b"GET /v1/\xff HTTP/1.1\r\nHost: r\r\n\r\n",
            b"GET /v1/x y HTTP/1.1\r\nHost: r\r\n\r\n",
            GET + b"no colon\r\n\r\n",
            GET + b"A : b\r\n\r\n",
            GET + b"A: b\x00c\r\n\r\n",
            GET + b"A: b\rc\r\n\r\n",
            GET + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
            GET + b"Content-Length: 2\r\n" + body,
            GET + b"Content-Length: +2\r\n\r\n{}",
            GET + b"Content-Length: 2, 2\r\n\r\n{}",
            GET + b"Transfer-Encoding: chunked\r\n" + body,
            GET + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            GET + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
            GET + b"Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n",
            GET + b"Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
        ):
            self.setUp()
            self.assert_refused(self.router.call(request), 400, "bad_request")
            self.assertEqual(self.router.replicas["a"].attempts, 0, request)

    def test_nothing_behind_a_refusal(self) -> None:
        """Whatever a refused client sends behind is not read as a request."""
        caller = self.router.call(b"hello\r\n\r\n" + post(), post())
        self.assert_refused(caller, 400, "bad_request")

    def test_host(self) -> None:
        """HTTP/1.1 needs exactly one Host, HTTP/1.0 at most one."""
        for head in (
            b"GET /v1/x HTTP/1.1\r\n\r\n",
            b"GET /v1/x HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            b"GET /v1/x HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
        ):
            self.setUp()
            self.assert_refused(self.router.call(head), 400, "bad_request")
        for head in (b"GET /v1/x HTTP/1.0\r\n\r\n", b"GET /v1/x HTTP/1.1\r\nHost:\r\n\r\n"):
            self.setUp()
            self.assert_served(head)

    def test_too_large(self) -> None:
        """A head that is too large is answered with 431: by one line, or by many."""
        for head in (
            b"GET /" + b"x" * 70_000,
            GET + b"A: " + b"x" * 70_000,
            GET + (b"A: " + b"x" * 20_000 + b"\r\n") * 8,
        ):
            self.setUp()
            self.assert_refused(self.router.call(head), 431, "head_too_large")

    def test_large_enough(self) -> None:
        """Cookies and tokens of some size, which others refuse, are no problem."""
        self.assert_served(GET + (b"A: " + b"x" * 20_000 + b"\r\n") * 5 + b"\r\n")

    def test_in_pieces(self) -> None:
        """A request may come byte by byte."""
        self.assert_served(*(bytes((byte,)) for byte in post(b"{}", "s")))


class Targets(SiteTestCase):
    def sent(self, target: bytes, method: bytes = b"GET") -> bytes:
        self.setUp()
        self.router.call(method + b" " + target + b" HTTP/1.1\r\nHost: r\r\n\r\n")
        first: bytes = self.router.replicas["a"].line.value().split(b"\r\n")[0]
        return first.split(b" ")[1]

    def test_verbatim(self) -> None:
        """Below ``/v1/`` the target reaches the replica byte for byte."""
        for target in (
            b"/v1/", b"/v1//", b"/v1/a//b", b"/v1/a%2Fb", b"/v1/../x", b"/v1/%ff%fe", b"/v1/%zz", b"/v1/%00",
            b"/v1/x?", b"/v1/x??a=%20&&b", b"/v1/x;p=1", b"/v1/[x]|{y}", b"/v1/a\\b", b'/v1/"x"', b"/v1/x#f",
        ):  # fmt: skip
            self.assertEqual(self.sent(target), target)

    def test_absolute(self) -> None:
        """A target in absolute form loses its scheme and authority, nothing else."""
        for prefix in (b"http://router:8000", b"https://r", b"HTTP://user@[::1]:80"):
            self.assertEqual(self.sent(prefix + b"/v1//x?y=http://z/"), b"/v1//x?y=http://z/")

    def test_absolute_without_path(self) -> None:
        """One without a path means the root."""
        for target in (b"http://r", b"http://r?x=1"):
            told = self.router.call(b"GET " + target + b" HTTP/1.1\r\nHost: r\r\n\r\n").answer()
            self.assertEqual(told.status, 404)
            self.assertIn("nothing is served at /;", json.loads(told.body)["message"])

    def test_no_path(self) -> None:
        """A target that is neither a path nor absolute is refused."""
        for request in (b"GET v1/x", b"GET host:443", b"GET *", b"GET ?x", b"POST mailto:x"):
            self.setUp()
            self.assert_refused(
                self.router.call(request + b" HTTP/1.1\r\nHost: r\r\n\r\n"), 400, "bad_request"
            )

    def test_control_characters(self) -> None:
        """Control characters, of which a header injection is made, are refused."""
        for character in (b"\x00", b"\x01", b"\t", b"\x0b", b"\x1f", b"\x7f", b"\r"):
            self.setUp()
            self.assert_refused(
                self.router.call(b"GET /v1/" + character + b" HTTP/1.1\r\nHost: r\r\n\r\n"),
                400,
                "bad_request",
            )

    def test_any_method(self) -> None:
        """Every method below ``/v1/`` is the replica's to judge."""
        for method in (b"GET", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"HEAD", b"QUERY", b"TRACE"):
            self.assertEqual(self.sent(b"/v1/x", method), b"/v1/x")

    def test_websocket(self) -> None:
        """A WebSocket is refused with 501 instead of being relayed into silence."""
        caller = self.router.call(GET + b"Connection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n")
        self.assert_refused(caller, 501, "not_implemented")

    def test_other_upgrade(self) -> None:
        """Any other upgrade is simply not taken up."""
        self.assert_served(GET + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
        self.assertNotIn(b"pgrade", self.router.replicas["a"].line.value())


class Deadlines(SiteTestCase):
    def pass_(self, seconds: float, caller: Caller | None = None, piece: bytes = b"") -> None:
        """Let time pass in steps of a second, in each of which the client sends a piece."""
        for _ in range(int(seconds)):
            self.router.clock.advance(1)
            if caller is not None and not caller.line.half_closed:
                caller.say(piece)

    def test_slow_head(self) -> None:
        """A head has 30 seconds in all, however steadily it trickles; then 408."""
        caller = self.router.call(GET)
        self.pass_(29, caller, b"A")
        self.assertEqual(caller.heard, b"")
        self.pass_(1)
        self.assert_refused(caller, 408, "request_timeout")

    def test_stalled_body(self) -> None:
        """A body that does not come any further is given up after 30 seconds."""
        caller = self.router.call(announce(100), b"x")
        self.pass_(29)
        self.assertEqual(caller.heard, b"")
        self.pass_(1)
        self.assert_refused(caller, 408, "request_timeout")
        self.pass_(6)
        self.assertEqual((caller.line.gone, self.router.site.held), (True, 0))

    def test_trickling_body(self) -> None:
        """Single bytes are no progress."""
        caller = self.router.call(announce(100))
        self.pass_(30, caller, b"x")
        self.assert_refused(caller, 408, "request_timeout")

    def test_slow_body(self) -> None:
        """A slow body that makes progress is waited for, however long it takes."""
        self.make("a", limits=Limits(body=1 << 20, bodies=1 << 20))
        size = 600 * 90
        caller = self.router.call(announce(size))
        self.pass_(90, caller, b"x" * 600)
        self.router.reply("a", OK)
        self.assertEqual(caller.answer().status, 200)

    def test_idle(self) -> None:
        """A connection that is not used for two minutes is closed, before and between requests."""
        for connect in (lambda: self.router.call(), lambda: self.assert_served(post())):
            self.setUp()
            caller = connect()
            self.pass_(119)
            self.assertFalse(caller.line.disconnecting)
            self.pass_(1)
            self.assertTrue(caller.line.gone)

    def test_answer_takes_its_time(self) -> None:
        """None of these limits concerns a client that waits for its answer."""
        caller = self.router.call(post())
        self.pass_(600)
        self.router.reply("a", STREAM)
        self.pass_(600)
        self.router.reply("a", END)
        self.assertEqual(caller.answer().status, 200)
        self.assert_over(Ending.DONE)

    def test_linger(self) -> None:
        """A refused client that goes on sending is cut off after five seconds, not before."""
        caller = self.router.call(announce(101))
        self.router.clock.advance(4.9)
        caller.say(b"x" * 50)
        self.assertFalse(caller.line.disconnecting)
        self.router.clock.advance(0.1)
        self.assertTrue(caller.line.aborted)

    def test_linger_seen(self) -> None:
        """One that has seen it and closes needs no cutting off."""
        caller = self.router.call(announce(101))
        caller.line.hang_up()
        self.router.clock.advance(10)
        self.assertFalse(caller.line.aborted)

    def test_stop(self) -> None:
        """A stopped site leaves no timer."""
        self.router.call(GET)
        self.router.call(announce(10))
        self.router.call()
        self.router.site.stopFactory()
        self.assertEqual(self.router.clock.getDelayedCalls(), [])
