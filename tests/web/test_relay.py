from __future__ import annotations

import json
from http.client import IncompleteRead

from twisted.internet.error import ConnectError, ConnectionRefusedError

from tests.web.scene import END, OK, STREAM, Caller, RouterTestCase, chunk, post
from twisted_router.core.effects import ConnectRefused, Ending, SessionFinished
from twisted_router.core.policies.vocabulary import Reason


class Endings(RouterTestCase):
    """The ways a request can end; ``assert_over`` sees that the replica's load is back at 0 after each."""

    def begin(self) -> tuple[Caller, str]:
        caller = self.router.call(post())
        name = self.router.chosen()
        self.assertEqual(self.router.load()[name], 1)
        return caller, name

    def test_done(self) -> None:
        """Done: the answer came to its end."""
        caller, name = self.begin()
        self.router.reply(name, OK)
        self.assertEqual((caller.answer().status, caller.answer().body), (200, b"ok"))
        outcome = self.assert_over(Ending.DONE, 200)
        self.assertEqual((outcome.replica, outcome.sent, outcome.reason), (name, 2, Reason.NO_SESSION))

    def test_client_gone_before_the_head(self) -> None:
        """Client gone before the head: the replica is dropped at once, so that it stops working."""
        caller, name = self.begin()
        caller.leave()
        self.assertTrue(self.router.replicas[name].line.aborted)
        self.assert_over(Ending.CLIENT_GONE, 499)

    def test_client_gone_while_connecting(self) -> None:
        """Client gone before there is a connection: none is made."""
        for endpoint in self.router.replicas.values():
            endpoint.silent = True
        caller, name = self.begin()
        caller.leave()
        self.assertEqual(self.router.replicas[name].given_up, 1)
        self.assert_over(Ending.CLIENT_GONE, 499)

    def test_client_gone_within_a_stream(self) -> None:
        """Client gone within a stream, silent or not: the replica is dropped at once."""
        for pieces in ((STREAM,), (STREAM, chunk(b"data: 1\n\n"))):
            self.make()
            caller, name = self.begin()
            self.router.reply(name, *pieces)
            caller.leave()
            self.assertTrue(self.router.replicas[name].line.aborted)
            self.assert_over(Ending.CLIENT_GONE, 200)

    def test_client_gone_that_does_not_read(self) -> None:
        """Client gone while the replica is paused for it: the same."""
        caller, name = self.begin()
        self.router.reply(name, STREAM)
        caller.channel.pauseProducing()
        caller.leave()
        self.assertTrue(self.router.replicas[name].line.aborted)
        self.assert_over(Ending.CLIENT_GONE, 200)

    def test_client_closes_in_order(self) -> None:
        """A client that closes in order is as gone as one that resets."""
        caller, name = self.begin()
        caller.line.hang_up()
        self.router.clock.advance(0)
        self.assertTrue(self.router.replicas[name].line.aborted)
        self.assert_over(Ending.CLIENT_GONE, 499)

    def test_replica_cut(self) -> None:
        """Replica cut within the body, in order or not: the client's connection breaks, never a clean end."""
        for head in (STREAM + chunk(b"x"), b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"):
            for in_order in (True, False):
                self.make()
                caller, name = self.begin()
                line = self.router.reply(name, head)
                line.hang_up() if in_order else line.reset()
                self.router.clock.advance(0)
                self.assertTrue(caller.line.gone)
                with self.assertRaises(IncompleteRead):
                    caller.answer()
                self.assert_over(Ending.CUT, 200)

    def test_malformed_body(self) -> None:
        """A body with broken framing is cut at the last whole piece."""
        caller, name = self.begin()
        line = self.router.reply(name, STREAM + chunk(b"x"), b"zz\r\n")
        self.assertTrue(line.aborted)
        with self.assertRaises(IncompleteRead):
            caller.answer()
        self.assert_over(Ending.CUT, 200)

    def test_replica_reset(self) -> None:
        """Replica reset before the head: 502, and the connection serves on."""
        for part in (b"", b"HTTP/1.1 2"):
            self.make()
            caller, name = self.begin()
            line = self.router.reply(name, part) if part else self.router.replicas[name].line
            line.hang_up()
            told = caller.answer()
            self.assertEqual((told.status, json.loads(told.body)["error"]["code"]), (502, "upstream_reset"))
            self.assertIn(f"replica {name}", told.body.decode())
            self.assertFalse(caller.line.disconnecting)
            self.assert_over(Ending.RESET, 502)

    def test_malformed_head(self) -> None:
        """Nonsense before a head, or lengths that contradict one another: 502."""
        for junk in (b"hello", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"):
            self.make()
            caller, name = self.begin()
            line = self.router.reply(name, junk)
            self.assertEqual((caller.answer().status, line.aborted), (502, True))
            self.assert_over(Ending.RESET, 502)

    def test_cut_before_anything_was_written(self) -> None:
        """Framing that breaks together with the head can still be told: 502."""
        caller, name = self.begin()
        self.router.reply(name, STREAM + b"zz\r\n")
        self.assertEqual(caller.answer().status, 502)
        self.assert_over(Ending.RESET, 502)

    def test_unreachable(self) -> None:
        """Unreachable, refusals apart: 502, not tried elsewhere, no miss of the replica."""
        for endpoint in self.router.replicas.values():
            endpoint.error = ConnectError(string="No route to host")
        told = self.router.call(post()).answer()
        self.assertEqual(
            (told.status, json.loads(told.body)["error"]["code"]), (502, "upstream_connect_failed")
        )
        self.assertEqual(sorted(e.attempts for e in self.router.replicas.values()), [0, 1])
        self.assertEqual((self.router.events, self.router.view().ready), ([], 2))
        self.assert_over(Ending.UNREACHABLE, 502)

    def test_connect_timeout(self) -> None:
        """A connect that times out is a 502 after the connect timeout, and is not moved."""
        for endpoint in self.router.replicas.values():
            endpoint.silent = True
        caller, _ = self.begin()
        self.router.clock.advance(4.9)
        self.assertEqual(caller.heard, b"")
        self.router.clock.advance(0.1)
        self.assertEqual(caller.answer().status, 502)
        self.assertEqual(sum(e.attempts for e in self.router.replicas.values()), 1)
        self.assertEqual((self.router.notes.moves, self.router.events), ([], []))
        self.assert_over(Ending.UNREACHABLE, 502)

    def test_timed_out_before_the_head(self) -> None:
        """Timed out before the head: 504, and the replica is dropped."""
        self.make(request_timeout=60.0)
        caller, name = self.begin()
        self.router.clock.advance(59.9)
        self.assertEqual(caller.heard, b"")
        self.router.clock.advance(0.1)
        told = caller.answer()
        self.assertEqual((told.status, json.loads(told.body)["error"]["code"]), (504, "upstream_timeout"))
        self.assertTrue(self.router.replicas[name].line.aborted)
        self.assert_over(Ending.TIMED_OUT, 504)

    def test_timed_out_after_the_head(self) -> None:
        """Timed out after the head: the stream breaks, however lively it was."""
        self.make(request_timeout=60.0)
        caller, name = self.begin()
        self.router.reply(name, STREAM)
        for _ in range(59):
            self.router.reply(name, chunk(b"x"))
            self.router.clock.advance(1)
        self.assertFalse(caller.line.disconnecting)
        self.router.clock.advance(1)
        self.router.clock.advance(0)
        with self.assertRaises(IncompleteRead):
            caller.answer()
        self.assertTrue(self.router.replicas[name].line.aborted)
        self.assert_over(Ending.TIMED_OUT, 200)

    def test_timeout_is_of_one_request(self) -> None:
        """A request that ended leaves no deadline behind for the next one."""
        self.make(request_timeout=60.0)
        caller, name = self.begin()
        self.router.clock.advance(50)
        self.router.reply(name, OK)
        caller.say(post())
        self.router.clock.advance(50)
        self.router.reply(self.router.chosen(), OK)
        self.assertEqual([told.status for told in caller.answers("POST", "POST")], [200, 200])
        self.assert_over(Ending.DONE)

    def test_rejected(self) -> None:
        """Rejected with nothing routable: 503 with Retry-After, and no lease was ever taken."""
        self.make("a")
        for member in self.router.fleet.members():
            for _ in range(2):
                self.router.apply(ConnectRefused(member.instance))
        told = self.router.call(post()).answer()
        self.assertEqual((told.status, told.field("Retry-After")), (503, "1"))
        self.assertEqual(json.loads(told.body)["error"]["code"], "no_replica_available")
        outcome = self.assert_over(Ending.REJECTED, 503)
        self.assertEqual((outcome.replica, self.router.view().rejected), (None, 1))

    def test_rejected_while_stopping(self) -> None:
        """Rejected because the router stops: 503, and what was under way goes on."""
        caller, name = self.begin()
        self.router.traffic.refuse()
        told = self.router.call(post()).answer()
        self.assertEqual((told.status, json.loads(told.body)["error"]["code"]), (503, "shutting_down"))
        self.router.reply(name, OK)
        self.assertEqual(caller.answer().status, 200)
        self.assert_over(Ending.DONE)

    def test_cut_off(self) -> None:
        """Cut off by a router that cannot wait: 503 before the head, a broken stream after it."""
        early, name = self.begin()
        late = self.router.call(post())
        other = "b" if name == "a" else "a"
        self.router.reply(other, STREAM + chunk(b"x"))
        self.assertEqual(self.router.traffic.cut(), 2)
        self.router.clock.advance(0)
        self.assertEqual(early.answer().status, 503)
        with self.assertRaises(IncompleteRead):
            late.answer()
        self.assertTrue(all(endpoint.line.aborted for endpoint in self.router.replicas.values()))
        self.assert_over(Ending.CUT)

    def test_lease_once(self) -> None:
        """Two ends at once, a late answer and a client that left, give one lease back once."""
        caller, name = self.begin()
        other = self.router.call(post(session="second"))
        caller.leave()
        line = self.router.replicas[name].line
        line.hang_up()
        self.router.clock.advance(0)
        self.assertEqual(sum(self.router.load().values()), 1)
        other.leave()
        self.assert_over(Ending.CLIENT_GONE)


class Refusals(RouterTestCase):
    """The one exception to "the router does not retry": a connection refused outright."""

    def refuse(self, *names: str) -> None:
        for name in names:
            self.router.replicas[name].error = ConnectionRefusedError()

    def pin(self, session: str) -> str:
        caller = self.router.call(post(session=session))
        name = self.router.chosen()
        self.router.reply(name, OK)
        self.assertEqual(caller.answer().status, 200)
        return name

    def test_moves_once(self) -> None:
        """It goes to the other replica, is counted, and its replica has a miss and is probed at once."""
        home = self.pin("s")
        other = "b" if home == "a" else "a"
        self.router.replicas[home].line.hang_up()
        self.refuse(home)
        caller = self.router.call(post(b'{"n": 1}', "s"))
        line = self.router.reply(other, OK)
        self.assertEqual(caller.answer().status, 200)
        self.assertTrue(line.value().endswith(b'{"n": 1}'))
        self.assertEqual(self.router.notes.moves, [(home, other)])
        self.assertEqual(self.router.events, [ConnectRefused(home)])
        outcome = self.assert_over(Ending.DONE, 200)
        self.assertEqual((outcome.replica, outcome.reason), (other, Reason.CONNECT_REFUSED))

    def test_pinned_there(self) -> None:
        """The session lives at the other replica from then on, also when the first one is back."""
        home = self.pin("s")
        other = "b" if home == "a" else "a"
        self.router.replicas[home].line.hang_up()
        self.refuse(home)
        self.router.call(post(session="s"))
        self.router.reply(other, OK)
        self.router.replicas[home].error = None
        self.router.call(post(session="s"))
        self.assertEqual(self.router.chosen(), other)

    def test_all_refuse(self) -> None:
        """When the other one refuses too, that is a 502; there is no third attempt."""
        self.make("a", "b", "c")
        self.refuse("a", "b", "c")
        caller = self.router.call(post())
        self.assertEqual(caller.answer().status, 502)
        self.assertEqual(sum(e.attempts for e in self.router.replicas.values()), 2)
        self.assertEqual(len(self.router.events), 2)
        self.assert_over(Ending.UNREACHABLE, 502)

    def test_alone(self) -> None:
        """With no other replica it is a 502 at once."""
        self.make("a")
        self.refuse("a")
        self.assertEqual(self.router.call(post()).answer().status, 502)
        self.assertEqual(self.router.notes.moves, [])
        self.assert_over(Ending.UNREACHABLE, 502)

    def test_two_misses(self) -> None:
        """Two refusals in a row take a replica out, so that it does not attract traffic."""
        self.refuse("a")
        for _ in range(4):
            self.router.call(post())
            self.router.reply("b", OK)
        self.assertEqual(self.router.replicas["a"].attempts, 2)
        self.assertEqual(self.router.view().ready, 1)

    def test_client_gone_after_the_move(self) -> None:
        """A client that leaves after the move releases the replica it was moved to."""
        self.refuse("a")
        self.router.replicas["b"].silent = True
        callers = [self.router.call(post()) for _ in range(2)]
        for caller in callers:
            caller.leave()
        self.assertEqual(self.router.replicas["b"].given_up, 2)
        self.assert_over(Ending.CLIENT_GONE)


class Sessions(RouterTestCase):
    def turn(
        self, session: str | None, answer: bytes = OK, *fields: bytes, body: bytes = b"{}"
    ) -> tuple[str, str]:
        """Have one turn of a conversation; return its replica and the id that came back."""
        caller = self.router.call(post(body, session, *fields))
        name = self.router.chosen()
        self.router.reply(name, answer)
        told = caller.answer()
        return name, told.field("X-Session-Id") or ""

    def test_minted(self) -> None:
        """A first turn without an id gets one; sent back, it leads to the same replica."""
        home, session = self.turn(None)
        self.assertRegex(session, r"\A[0-9a-f]{32}\Z")
        for _ in range(3):
            self.assertEqual(self.turn(session), (home, session))
        self.assertEqual(self.router.view().affinity_hits, 3)

    def test_body(self) -> None:
        """An id in the body leads to the same replica as the same id in the header."""
        home, _ = self.turn("s")
        self.assertEqual(self.turn(None, body=b'{"session_id": "s"}'), (home, "s"))

    def test_header_wins(self) -> None:
        """With both, the header is the id that counts and comes back."""
        self.assertEqual(self.turn("head", body=b'{"session_id": "body"}')[1], "head")

    def test_odd(self) -> None:
        """An odd id comes back as its digest, which leads to the same replica when it is used itself."""
        home, digest = self.turn("a b/c")
        self.assertRegex(digest, r"\A[0-9a-f]{32}\Z")
        self.assertEqual(self.turn(digest), (home, digest))

    def test_once_on_every_answer(self) -> None:
        """The id is on every relayed answer exactly once, whatever the replica's own says."""
        for answer in (
            OK,
            b"HTTP/1.1 200 OK\r\nx-session-id: theirs\r\nX-Session-Id: too\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\n{}",
            b"HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"{}") + END,
            STREAM + chunk(b"x") + END,
            b"HTTP/1.1 204 No\r\n\r\n",
        ):
            self.assertEqual(self.turn("mine", answer)[1], "mine")

    def test_own_errors(self) -> None:
        """The router's own answers to a relayed request carry it too: 502, 503 and 504."""
        self.make("a", request_timeout=60.0)
        late = self.router.call(post(session="late"))
        self.router.clock.advance(60)
        self.router.replicas["a"].error = ConnectionRefusedError()
        callers = [late, *(self.router.call(post(session=name)) for name in ("cut", "out", "none"))]
        self.assertEqual(
            [(told.status, told.field("X-Session-Id")) for told in (caller.answer() for caller in callers)],
            [(504, "late"), (502, "cut"), (502, "out"), (503, "none")],
        )

    def test_final(self) -> None:
        """``X-Dynamo-Session-Final: true`` releases the pin, and only after the answer."""
        self.turn("s")
        caller = self.router.call(post(b"{}", "s", b"X-Dynamo-Session-Final: True"))
        name = self.router.chosen()
        self.router.reply(name, STREAM)
        self.assertEqual((len(self.router.pins), self.router.events), (1, []))
        self.router.reply(name, END)
        self.assertEqual((len(self.router.pins), self.router.events), (0, [SessionFinished("s")]))
        self.assertEqual(caller.answer().status, 200)

    def test_not_final(self) -> None:
        """Any other value of it means nothing."""
        for value in (b"false", b"1", b""):
            self.turn("s", OK, b"X-Dynamo-Session-Final: " + value)
        self.assertEqual((len(self.router.pins), self.router.events), (1, []))

    def test_many_first_turns(self) -> None:
        """Forty first turns with one id, all at once, land on one replica while the slack allows it."""
        self.make("a", "b", slack=40)
        callers = [self.router.call(post(session="s")) for _ in range(40)]
        self.assertEqual(sorted(self.router.load().values()), [0, 40])
        name = self.router.chosen()
        for line in range(40):
            self.router.reply(name, OK, line=line)
        self.assertEqual([caller.answer().field("X-Session-Id") for caller in callers], ["s"] * 40)
        self.assert_over(Ending.DONE)

    def test_slack_boundary(self) -> None:
        """With a slack of 8 the pin holds at 8 more outstanding requests and is lost at 9."""
        self.make("a", "b", slack=8)
        for _ in range(9):
            self.router.call(post(session="s"))
        self.assertEqual(sorted(self.router.load().values()), [0, 9])
        home = self.router.chosen()
        self.router.call(post(session="s"))
        self.assertEqual(self.router.load()[home], 9)

    def test_slack_zero(self) -> None:
        """With a slack of 0 the pin never decides: turns of one conversation take turns."""
        self.make("a", "b", slack=0)
        self.assertEqual({self.turn("s")[0] for _ in range(2)}, {"a", "b"})
        self.assertEqual(self.router.view().affinity_hits, 0)

    def test_ttl(self) -> None:
        """A pin is gone after the TTL without use, counted from the end of the last answer."""
        self.make("a", "b", ttl=600.0)
        home, _ = self.turn("s")
        self.router.clock.advance(600)
        self.assertEqual(self.turn("s")[0], home)
        self.router.clock.advance(600.1)
        self.router.call(post(session="s")).leave()
        self.assertIs(self.router.notes.outcomes[-1].reason, Reason.UNKNOWN_SESSION)

    def test_stream_longer_than_the_ttl(self) -> None:
        """A stream keeps its conversation's pin, and the TTL begins when it ends."""
        self.make("a", "b", ttl=600.0)
        caller = self.router.call(post(session="s"))
        home = self.router.chosen()
        self.router.reply(home, STREAM)
        for _ in range(20):
            self.router.reply(home, chunk(b"x"))
            self.router.clock.advance(100)
            self.router.fleet.sweep(self.router.clock.seconds())
        self.assertEqual(len(self.router.pins), 1)
        self.router.reply(home, END)
        self.assertEqual(caller.answer().body, b"x" * 20)
        self.router.clock.advance(599)
        self.assertEqual(self.turn("s")[0], home)
        self.assertIs(self.router.notes.outcomes[-1].reason, Reason.PINNED)


class Framing(RouterTestCase):
    def relay(self, request: bytes, *pieces: bytes, close: bool = False) -> Caller:
        caller = self.router.call(request)
        name = self.router.chosen()
        line = self.router.reply(name, *pieces)
        if close:
            line.hang_up()
            self.router.clock.advance(0)
        return caller

    def test_verbatim(self) -> None:
        """Target, fields and body reach the replica as they were sent, the hop apart."""
        self.router.call(
            b"PATCH /v1//a%2Fb/%ff?q=[1]|2&%7E HTTP/1.1\r\nHost: router\r\nX-A: 1\r\nx-a: 2\r\n"
            b"Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nAuthorization: Bearer k\r\n"
            b"Content-Length: 3\r\n\r\n\x00\xff\n"
        )
        name = self.router.chosen()
        head, _, body = self.router.replicas[name].line.value().partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        self.assertEqual(first, b"PATCH /v1//a%2Fb/%ff?q=[1]|2&%7E HTTP/1.1")
        self.assertEqual(
            sorted(lines),
            [
                b"Authorization: Bearer k",
                b"Content-Length: 3",
                b"Host: %b:8001" % name.encode(),
                b"X-A: 1",
                b"X-A: 2",
            ],
        )
        self.assertEqual(body, b"\x00\xff\n")

    def test_chunked_upload(self) -> None:
        """An upload in chunks reaches the replica whole, with its length."""
        self.router.call(
            b"POST /v1/x HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n",
            chunk(b"ab"),
            chunk(b"c"),
            END,
        )
        sent = self.router.replicas[self.router.chosen()].line.value()
        self.assertTrue(sent.endswith(b"Content-Length: 3\r\n\r\nabc"), sent)
        self.assertNotIn(b"ransfer", sent)

    def test_get_has_no_length(self) -> None:
        """A request without a body gets no length, one that should have a body gets 0."""
        for method, expected in ((b"GET", False), (b"DELETE", False), (b"POST", True)):
            self.make()
            self.router.call(method + b" /v1/models HTTP/1.1\r\nHost: r\r\n\r\n")
            sent = self.router.replicas[self.router.chosen()].line.value()
            self.assertEqual(b"Content-Length: 0" in sent, expected, method)

    def test_head_with_the_first_byte(self) -> None:
        """The head goes to the client at once, before any byte of the body."""
        caller = self.relay(post(), STREAM)
        self.assertTrue(caller.heard.startswith(b"HTTP/1.1 200 OK\r\n"))
        self.assertTrue(caller.heard.endswith(b"\r\n\r\n"))

    def test_chunks_as_they_come(self) -> None:
        """Each piece of a stream is passed on when it comes, in the replica's own chunks."""
        caller = self.relay(post(), STREAM)
        name = self.router.chosen()
        for number in range(3):
            caller.line.clear()
            piece = chunk(b"data: %d\n\n" % number)
            self.router.reply(name, piece)
            self.assertEqual(caller.heard, piece)

    def test_fields(self) -> None:
        """The replica's fields pass in order and with duplicates; nothing is added but the session."""
        caller = self.relay(
            post(session="s"),
            b"HTTP/1.1 418 I'm odd\r\nserver: x\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\n"
            b"Keep-Alive: 5\r\nContent-Length: 0\r\n\r\n",
        )
        self.assertEqual(
            caller.heard,
            b"HTTP/1.1 418 I'm odd\r\nserver: x\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\n"
            b"Content-Length: 0\r\nX-Session-Id: s\r\n\r\n",
        )

    def test_bodiless(self) -> None:
        """HEAD, 204 and 304 end with their head, and the connection serves the next request."""
        for method, answer, length in (
            ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", "99"),
            ("GET", b"HTTP/1.1 204 No\r\n\r\n", None),
            ("GET", b"HTTP/1.1 304 Same\r\nContent-Length: 99\r\nETag: x\r\n\r\n", "99"),
        ):
            self.make()
            request = method.encode() + b" /v1/models HTTP/1.1\r\nHost: r\r\n\r\n"
            caller = self.relay(request, answer)
            caller.say(request)
            self.router.reply(self.router.chosen(), answer)
            for told in caller.answers(method, method):
                self.assertEqual((told.field("Content-Length"), told.body), (length, b""))
                self.assertIsNone(told.field("Transfer-Encoding"))
            self.assert_over(Ending.DONE)

    def test_until_close(self) -> None:
        """A body that the replica ends by closing gets chunks and an end; the connection lives on."""
        caller = self.relay(post(), b"HTTP/1.0 200 OK\r\n\r\nab", b"c", close=True)
        told = caller.answer()
        self.assertEqual((told.body, told.field("Transfer-Encoding")), (b"abc", "chunked"))
        self.assertFalse(caller.line.disconnecting)
        self.assert_over(Ending.DONE)

    def test_until_reset(self) -> None:
        """The same body ended by a reset is cut."""
        caller = self.router.call(post())
        line = self.router.reply(self.router.chosen(), b"HTTP/1.1 200 OK\r\n\r\nab")
        line.reset()
        self.router.clock.advance(0)
        with self.assertRaises(IncompleteRead):
            caller.answer()
        self.assert_over(Ending.CUT)

    def test_trailers(self) -> None:
        """Trailers pass."""
        caller = self.relay(post(), STREAM + chunk(b"x") + b"0\r\nServer-Timing: a\r\n\r\n")
        self.assertTrue(caller.heard.endswith(b"\r\n\r\n1\r\nx\r\n0\r\nServer-Timing: a\r\n\r\n"))
        self.assert_over(Ending.DONE)

    def test_old_client(self) -> None:
        """An HTTP/1.0 client gets the bare content, without chunks or trailers, and the close as its end."""
        request = b"POST /v1/x HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}"
        for pieces, close in (
            ((STREAM + chunk(b"ab"), chunk(b"c") + b"0\r\nT: x\r\n\r\n"), False),
            ((b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",), False),
            ((b"HTTP/1.0 200 OK\r\n\r\nabc",), True),
        ):
            self.make()
            caller = self.relay(request, *pieces, close=close)
            told = caller.answer()
            self.assertEqual((told.body, told.field("Connection")), (b"abc", "close"))
            self.assertIsNone(told.field("Transfer-Encoding"))
            self.assertTrue(caller.heard.endswith(b"abc"))
            self.assertTrue(caller.line.gone)
            self.assert_over(Ending.DONE)

    def test_old_client_cut(self) -> None:
        """Where the close is the end, only a reset can say that the body is cut."""
        caller = self.relay(
            b"POST /v1/x HTTP/1.0\r\nContent-Length: 0\r\n\r\n", STREAM + chunk(b"ab"), close=True
        )
        self.assertTrue(caller.line.aborted)
        self.assert_over(Ending.CUT)

    def test_close_asked_for(self) -> None:
        """A client that says ``Connection: close`` is told the same and closed after the answer."""
        caller = self.relay(post(b"{}", "s", b"Connection: close"), OK)
        self.assertEqual(caller.answer().field("Connection"), "close")
        self.assertTrue(caller.line.gone)

    def test_replicas_close_is_not_the_clients(self) -> None:
        """A replica that closes after its answer does not cost the client its connection."""
        caller = self.relay(
            post(), b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", close=True
        )
        self.assertIsNone(caller.answer().field("Connection"))
        self.assertFalse(caller.line.disconnecting)

    def test_replica_connection_is_reused(self) -> None:
        """Requests one after another use one connection, whoever sends them."""
        self.make("a")
        for _ in range(3):
            self.relay(post(), OK)
        self.assertEqual(self.router.replicas["a"].attempts, 1)

    def test_pipelined(self) -> None:
        """Requests sent ahead are relayed one at a time and answered in order."""
        self.make("a")
        caller = self.router.call(post(b"1", "one") + post(b"2", "two") + post(b"3", "three"))
        for number in (b"1", b"2", b"3"):
            self.assertEqual(self.router.load(), {"a": 1})
            line = self.router.replicas["a"].line
            self.assertTrue(line.value().endswith(b"\r\n\r\n" + number))
            self.router.reply("a", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" + number)
        told = caller.answers("POST", "POST", "POST")
        self.assertEqual([one.body for one in told], [b"1", b"2", b"3"])
        self.assertEqual([one.field("X-Session-Id") for one in told], ["one", "two", "three"])
        self.assert_over(Ending.DONE)


class BackPressure(RouterTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.caller = self.router.call(post())
        self.name = self.router.chosen()
        self.replica = self.router.reply(self.name, STREAM)

    def test_paused(self) -> None:
        """A client that does not read stops the replica; nothing is collected for it in between."""
        self.caller.channel.pauseProducing()
        self.assertTrue(self.replica.paused)
        before = len(self.caller.heard)
        for _ in range(100):
            self.router.reply(self.name, chunk(b"x" * 65536))
        self.assertEqual(len(self.caller.heard), before)
        self.caller.channel.resumeProducing()
        self.router.clock.advance(0)
        self.assertFalse(self.replica.paused)
        self.router.reply(self.name, END)
        self.assertEqual(len(self.caller.answer().body), 100 * 65536)
        self.assert_over(Ending.DONE)

    def test_paused_from_the_start(self) -> None:
        """A request sent ahead waits until the client has read on: nobody works for one who only asks."""
        self.caller.say(post())  # sent ahead
        self.caller.channel.pauseProducing()
        self.replica.resumeProducing()
        self.router.reply(self.name, END)
        self.assertEqual(sum(self.router.load().values()), 0)
        self.caller.channel.resumeProducing()
        name = self.router.chosen()
        self.router.reply(name, OK)
        self.assertEqual([told.status for told in self.caller.answers("POST", "POST")], [200, 200])
        self.assert_over(Ending.DONE)

    def test_full_when_the_answer_begins(self) -> None:
        """A client whose connection is full when an answer begins has that replica paused at once."""
        self.router.reply(self.name, END)
        self.caller.say(post())
        name = self.router.chosen()
        self.caller.channel.pauseProducing()
        self.router.reply(name, STREAM)
        self.assertTrue(self.router.replicas[name].line.paused)

    def test_broken_off(self) -> None:
        """A client that is paused when its answer breaks off, and does not read on, is cut off in the end."""
        self.caller.line.loseConnection = lambda: None  # type: ignore[method-assign]  # waits for its buffer
        self.caller.channel.pauseProducing()
        self.replica.resumeProducing()
        self.replica.reset()
        self.router.clock.advance(4.9)
        self.assertFalse(self.caller.line.aborted)
        self.router.clock.advance(0.1)
        self.assertTrue(self.caller.line.aborted)
        self.assert_over(Ending.CUT)


class Upload(RouterTestCase):
    def test_forgotten(self) -> None:
        """The body is not kept for as long as a stream lasts."""
        caller = self.router.call(post(b"x" * 1000))
        self.assertEqual(self.router.site.held, 1000)
        self.router.reply(self.router.chosen(), STREAM)
        request = caller.channel.requests[0]
        self.assertEqual(request.take_body(), b"")


class Unknown(RouterTestCase):
    def test_fault(self) -> None:
        """A fault of ours gives 500, is logged, and leaves nothing behind."""

        def broken(_: object) -> object:
            raise ZeroDivisionError

        self.router.clients._endpoint_for = broken  # type: ignore[assignment]
        caller = self.router.call(post())
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(caller.answer().status, 500)
        self.assertNotIn(b"ZeroDivision", caller.heard)
        self.assert_over(Ending.RESET)
