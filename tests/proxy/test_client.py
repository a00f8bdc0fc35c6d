from __future__ import annotations

from io import BytesIO

from twisted.internet.defer import CancelledError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http_headers import Headers

from tests.proxy.fakes import Endpoint
from twisted_router.core.members import Member
from twisted_router.errors import ReplicaCut, ReplicaReset
from twisted_router.proxy.client import RelayResponse, ReplicaClient
from twisted_router.proxy.clients import Clients
from twisted_router.proxy.headers import VerbatimHeaders

NOTHING = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def member(name: str = "a", url: str = "http://[::1]:8001", instance: str = "") -> Member:
    return Member(name, instance or name, url, ready=True)


class ClientTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.endpoint = Endpoint(self.clock)
        self.clients = Clients(self.clock, lambda member: self.endpoint, 5.0)
        self.client: ReplicaClient = self.clients(member())

    def sent(self, method: bytes, target: bytes, answer: bytes = NOTHING, **more: object) -> bytes:
        """Send a request and have it answered; return its bytes."""
        asked = self.client.request(method, target, **more)  # type: ignore[arg-type]
        line = self.endpoint.line
        line.deliver(answer)
        self.response: RelayResponse = self.successResultOf(asked)
        self.over = self.response.discard()
        self.clock.advance(0)
        written = line.value()
        line.clear()
        return written


class Requests(ClientTestCase):
    def test_target(self) -> None:
        """The target goes out byte for byte, with or without the replica's own address before it."""
        for target in (
            b"/v1/a%2Fb//c/../d;x?q=[1]|{2}&%7e=\xc3\xa9#f",
            b"/",
            b"/v1/%zz",
            b"/v1/\xff\xfe",
            b"*",
        ):
            for url in (target, b"http://[::1]:8001" + target):
                self.assertEqual(
                    self.sent(b"GET", url), b"GET " + target + b" HTTP/1.1\r\nHost: [::1]:8001\r\n\r\n"
                )

    def test_nothing_added(self) -> None:
        """Nothing but Host, and the length of a body, is added: no compression, no agent, no accepting."""
        self.assertEqual(
            self.sent(b"POST", b"/", headers=VerbatimHeaders([b"x-B: 1", b"A: 2", b"x-B: 3"]), data=b"abc"),
            b"POST / HTTP/1.1\r\nHost: [::1]:8001\r\n"
            b"x-B: 1\r\nA: 2\r\nx-B: 3\r\nContent-Length: 3\r\n\r\nabc",
        )

    def test_no_fields(self) -> None:
        """A request without a field of its own has no blank line too early, which would free its body."""
        for headers in (None, Headers(), VerbatimHeaders([])):
            self.assertEqual(
                self.sent(b"POST", b"/", headers=headers, data=b"GET /evil HTTP/1.1\r\n\r\n"),
                b"POST / HTTP/1.1\r\nHost: [::1]:8001\r\n"
                b"Content-Length: 22\r\n\r\nGET /evil HTTP/1.1\r\n\r\n",
            )

    def test_empty_body(self) -> None:
        """An empty body has the length 0, no body has none."""
        self.assertIn(b"Content-Length: 0\r\n\r\n", self.sent(b"POST", b"/", data=b""))
        self.assertNotIn(b"Content-Length", self.sent(b"POST", b"/"))

    def test_plain_headers(self) -> None:
        """Twisted's own headers are written with all their values."""
        self.assertIn(
            b"\r\nX-A: 1\r\nX-A: 2\r\n", self.sent(b"GET", b"/", headers=Headers({"x-a": ["1", "2"]}))
        )

    def test_other_producers(self) -> None:
        """A body that is not in memory is refused, not half sent."""
        agent = self.client._agent
        with self.assertRaises(TypeError):
            agent.request(b"POST", b"/", None, BytesIO())  # type: ignore[arg-type]


class Answers(ClientTestCase):
    def test_no_cookies(self) -> None:
        """A cookie that a replica sets for one client is never sent with another's request."""
        cookie = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 0\r\n\r\n"
        self.sent(b"GET", b"/", cookie)
        self.assertEqual(self.response.original.head.all(b"set-cookie"), [b"a=b; Path=/"])
        self.assertNotIn(b"ookie", self.sent(b"GET", b"/"))
        self.assertEqual(self.endpoint.attempts, 1)

    def test_no_redirect(self) -> None:
        """A redirect is an answer like another: nothing follows it."""
        redirect = b"HTTP/1.1 302 Found\r\nLocation: http://other/\r\nContent-Length: 0\r\n\r\n"
        self.sent(b"GET", b"/", redirect)
        self.assertEqual((self.response.code, self.endpoint.line.value()), (302, b""))

    def test_compressed(self) -> None:
        """A compressed body is not decoded, and its fields stay."""
        gzip = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x00\x01"
        asked = self.client.request(b"GET", b"/")
        self.endpoint.line.deliver(gzip)
        content = self.successResultOf(asked).content()
        self.clock.advance(0)
        self.assertEqual(self.successResultOf(content), b"\x1f\x8b\x00\x01")

    def test_discard(self) -> None:
        """A body that nobody wants is read to its end, so that the connection is used again."""
        self.sent(b"GET", b"/", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab")
        self.assertNoResult(self.over)
        self.endpoint.line.deliver(b"cde")
        self.assertIsNone(self.successResultOf(self.over))
        self.sent(b"GET", b"/")
        self.assertEqual(self.endpoint.attempts, 1)

    def test_discard_given_up(self) -> None:
        """Giving up on the rest of a body drops the connection, so that it cannot go on for ever."""
        self.sent(b"GET", b"/", b"HTTP/1.1 200 OK\r\n\r\nab")
        self.over.cancel()
        self.failureResultOf(self.over, CancelledError)
        self.assertTrue(self.endpoint.line.aborted)

    def test_discard_cut(self) -> None:
        """A body that breaks off is a failure."""
        self.sent(b"GET", b"/", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab")
        self.endpoint.line.hang_up()
        self.failureResultOf(self.over, ReplicaCut)

    def test_discard_nothing(self) -> None:
        """An answer without a body, which a replica's health often is, frees its connection as well."""
        for nothing in (NOTHING, b"HTTP/1.1 204 No Content\r\n\r\n"):
            self.sent(b"GET", b"/health", nothing)
            self.assertIsNone(self.successResultOf(self.over))
        self.sent(b"GET", b"/health")
        self.assertEqual(self.endpoint.attempts, 1)

    def test_content_nothing(self) -> None:
        """Asking such an answer for its content frees its connection too."""
        asked = self.client.request(b"GET", b"/metrics")
        self.endpoint.line.deliver(NOTHING)
        self.assertEqual(self.successResultOf(self.successResultOf(asked).content()), b"")
        self.clock.advance(0)
        self.sent(b"GET", b"/")
        self.assertEqual(self.endpoint.attempts, 1)

    def test_content_given_up(self) -> None:
        """Giving up on the content drops the connection, so that it cannot go on for ever."""
        asked = self.client.request(b"GET", b"/metrics")
        self.endpoint.line.deliver(b"HTTP/1.1 200 OK\r\n\r\nab")
        content = self.successResultOf(asked).content()
        content.cancel()
        self.failureResultOf(content, CancelledError)
        self.assertTrue(self.endpoint.line.aborted)


class Once(ClientTestCase):
    def test_never_twice(self) -> None:
        """A request whose connection breaks is not sent again, not even on a connection used before."""
        self.sent(b"GET", b"/")
        asked = self.client.request(b"GET", b"/again")
        self.endpoint.line.reset()
        self.failureResultOf(asked, ReplicaReset)
        self.assertEqual(self.endpoint.attempts, 1)

    def test_cancel_while_connecting(self) -> None:
        """Giving up during the connect gives the attempt up; nothing is sent."""
        self.endpoint.silent = True
        asked = self.client.request(b"GET", b"/")
        asked.cancel()
        self.failureResultOf(asked, CancelledError)
        self.assertEqual((self.endpoint.given_up, self.endpoint.lines), (1, []))

    def test_cancel_before_the_head(self) -> None:
        """Giving up before the head drops the connection, new or used."""
        for _ in range(2):
            asked = self.client.request(b"GET", b"/")
            asked.cancel()
            self.failureResultOf(asked, CancelledError)
            self.assertTrue(self.endpoint.line.aborted)
            self.clock.advance(0)
            self.sent(b"GET", b"/")


class ClientsTests(ClientTestCase):
    def test_one_each(self) -> None:
        """An instance has one client; another life of the same slot has another."""
        self.assertIs(self.clients(member()), self.client)
        self.assertIsNot(self.clients(member(instance="later")), self.client)

    def test_forget(self) -> None:
        """An instance that is over loses its connections; one that is not known is nothing to forget."""
        self.sent(b"GET", b"/")
        self.clients.forget("a")
        self.clients.forget("a")
        self.clock.advance(0)
        self.assertTrue(self.endpoint.line.gone)
        self.assertIsNot(self.clients(member()), self.client)

    def test_close(self) -> None:
        """Closing fires once the connections to every replica are gone."""
        self.sent(b"GET", b"/")
        self.client = self.clients(member("b"))
        self.sent(b"GET", b"/")
        closing = self.clients.close()
        self.assertNoResult(closing)
        self.clock.advance(0)
        self.successResultOf(closing)
        self.assertEqual([line.gone for line in self.endpoint.lines], [True, True])
