from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.error import ConnectionLost
from twisted.internet.protocol import ClientCreator, Factory, Protocol
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase, TestCase
from twisted.web.client import ResponseDone
from twisted.web.iweb import UNKNOWN_LENGTH

from tests.fuzz.profile import effort
from tests.proxy.fakes import Line
from tests.proxy.test_writing import Quiet
from twisted_router.errors import ReplicaCut, ReplicaReset, RouterError
from twisted_router.proxy.framing import HEAD_LIMIT
from twisted_router.proxy.wire import Wire, WireResponse
from twisted_router.proxy.writing import PIECE

REQUEST = b"GET / HTTP/1.1\r\nHost: r\r\n\r\n"
SHORT = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
UNFRAMED = b"HTTP/1.1 200 OK\r\n\r\n"


class Taker:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.body = b""
        self.ended: RouterError | str | None = None

    def body_data(self, data: bytes) -> None:
        assert self.ended is None, "data after the end"
        self.body += data

    def body_done(self) -> None:
        assert self.ended is None, "two ends"
        self.ended = "done"

    def body_cut(self, error: RouterError) -> None:
        assert self.ended is None, "two ends"
        self.ended = error


class WireTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.idle: list[Wire] = []
        self.lost: list[Wire] = []
        self.line = Line(self.clock)
        self.wire = Wire(self.idle.append, self.lost.append)
        self.line.carry(self.wire)

    def ask(self, method: bytes = b"GET") -> Deferred[WireResponse]:
        return self.wire.send(method, REQUEST, b"")

    def answer(self, data: bytes, *, method: bytes = b"GET") -> WireResponse:
        asked = self.ask(method)
        self.line.deliver(data)
        return self.successResultOf(asked)

    def take(self, response: WireResponse, *, http11: bool = True) -> Taker:
        taker = Taker()
        follow, _ = response.framing(http11=http11)
        response.relay(taker, follow)
        self.clock.advance(0)
        return taker

    def assert_reset(self, asked: Deferred[WireResponse], words: str) -> None:
        self.assertIn(words, str(self.failureResultOf(asked, ReplicaReset).value))
        self.clock.advance(0)
        self.assertEqual((self.lost, self.idle), ([self.wire], []))


class Heads(WireTestCase):
    def test_sent(self) -> None:
        """A request goes out as it is, its body behind it, small or large."""
        for body in (b"", b"x", b"y" * 100_000):
            self.setUp()
            self.wire.send(b"POST", REQUEST, body)
            self.assertEqual(self.line.value(), REQUEST + body)

    def test_large(self) -> None:
        """A large body is handed to the transport in pieces, the next one when the last has been sent."""
        body = bytes(range(256)) * (PIECE // 64)
        for rest in (b"", b"x"):
            self.setUp()
            self.wire.send(b"POST", REQUEST, body + rest)
            sizes = [len(self.line.value())]
            while self.line.drain():
                sizes.append(len(self.line.value()) - sum(sizes))
            self.assertEqual(self.line.value(), REQUEST + body + rest)
            self.assertEqual(sizes, [len(REQUEST) + 2 * PIECE, PIECE, PIECE, *([1] if rest else [])])

    def test_unsent(self) -> None:
        """Where there is no socket to look at, nobody is asked again and again for nothing."""
        self.line.dataBuffer = b"unsent"  # type: ignore[attr-defined]
        self.wire.send(b"POST", REQUEST, b"small")
        self.assertIsNone(self.line.producer)

    def test_answered_before_the_end(self) -> None:
        """A connection whose replica answers before it has the whole body is closed, not used again."""
        for sent in (False, True):
            self.setUp()
            asked = self.wire.send(b"POST", REQUEST, b"y" * 3 * PIECE)
            while sent and self.line.drain():
                pass
            self.line.deliver(SHORT + b"ok")
            self.take(self.successResultOf(asked))
            self.assertEqual(self.idle, [self.wire] if sent else [])
            self.assertEqual(self.line.aborted, not sent)
            self.clock.advance(0)
            self.assertFalse(self.line.drain())

    def test_upload_given_up(self) -> None:
        """Nothing more is sent for a request that was given up, and its body is not kept."""
        asked = self.wire.send(b"POST", REQUEST, b"y" * 3 * PIECE)
        asked.addErrback(lambda _: None).cancel()
        self.line.drain()
        self.assertEqual(len(self.line.value()), len(REQUEST) + 2 * PIECE)
        self.clock.advance(0)
        self.assertIsNone(self.wire._upload)

    def test_in_pieces(self) -> None:
        """A head may come byte by byte; the response is there with its last byte, not before."""
        asked = self.ask()
        head = b"HTTP/1.1 201 Made\r\nA: b\r\n\r\n"
        for byte in head[:-1]:
            self.line.deliver(bytes((byte,)))
            self.assertNoResult(asked)
        self.line.deliver(head[-1:])
        response = self.successResultOf(asked)
        self.assertEqual((response.code, response.phrase, response.version), (201, b"Made", (b"HTTP", 1, 1)))
        self.assertEqual(list(response.headers.getAllRawHeaders()), [(b"A", [b"b"])])

    def test_interim(self) -> None:
        """Interim answers are skipped, however many and however they are cut."""
        interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
        for size in (1, 7, 1000):
            self.setUp()
            asked = self.ask()
            data = interim + SHORT
            for at in range(0, len(data), size):
                self.line.deliver(data[at : at + size])
            self.assertEqual(self.successResultOf(asked).code, 200)

    def test_endless_interim(self) -> None:
        """A replica that sends interim answers, or blank lines, and nothing else is given up."""
        for nothing in (b"HTTP/1.1 103 Early Hints\r\n\r\n", b"\r\n"):
            self.setUp()
            asked = self.ask()
            for _ in range(HEAD_LIMIT // 16384 + 1):
                self.line.deliver(nothing * (16384 // len(nothing) + 1))
            self.assert_reset(asked, "no answer has come")

    def test_interim_each_time(self) -> None:
        """Each answer on a connection may have interim ones before it; they do not add up."""
        for _ in range(3):
            asked = self.ask()
            self.line.deliver(b"HTTP/1.1 103 Early Hints\r\n\r\n" * (HEAD_LIMIT // 56) + SHORT + b"ok")
            response = self.successResultOf(asked)
            response.relay(Taker(), response.framing(http11=True)[0])

    def test_switched(self) -> None:
        """101, which nobody asked for, is no answer."""
        asked = self.ask()
        self.line.deliver(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        self.assert_reset(asked, "switched protocols")

    def test_junk(self) -> None:
        """What cannot become a head is refused as soon as that is clear."""
        for junk in (
            b"x",
            b"SSH-2.0-x\r\n",
            b"HTTQ",
            b"HTTP/3 200 OK\r\n\r\n",
            b"\x16\x03\x01",
            b"HTTP/1.1 200 OK\r\nx\r\n\r\n",
        ):
            self.setUp()
            asked = self.ask()
            self.line.deliver(junk)
            self.assert_reset(asked, "malformed")
            self.assertTrue(self.line.aborted)

    def test_blank_lines_before(self) -> None:
        """Blank lines before a head are forgiven."""
        asked = self.ask()
        self.line.deliver(b"\r\n\r\n")
        self.line.deliver(b"\r\n" + SHORT)
        self.assertEqual(self.successResultOf(asked).code, 200)

    def test_head_limit(self) -> None:
        """A head may be as large as the limit and not larger, whole or in pieces."""
        start = b"HTTP/1.1 200 OK\r\nA: "
        for size, pieces in product((HEAD_LIMIT, HEAD_LIMIT + 1), (1, 3)):
            self.setUp()
            asked = self.ask()
            data = start + b"x" * (size - len(start)) + b"\r\n\r\n"
            step = -(-len(data) // pieces)
            for at in range(0, len(data), step):
                self.line.deliver(data[at : at + step])
            if size <= HEAD_LIMIT:
                self.assertEqual(self.successResultOf(asked).code, 200)
            else:
                self.assert_reset(asked, "larger than")

    def test_endless_head(self) -> None:
        """A head without an end is given up at the limit."""
        asked = self.ask()
        self.line.deliver(b"HTTP/1.1 200 OK\r\n")
        for _ in range(HEAD_LIMIT // 16384 + 1):
            self.line.deliver(b"A: b\r\n" * 2731)
        self.assert_reset(asked, "larger than")

    def test_closed_before(self) -> None:
        """A close or a reset before the head, or within it, is no answer."""
        for part in (b"", b"HTTP/1.1 2", SHORT[:-1]):
            for error in (None, ConnectionLost()):
                self.setUp()
                asked = self.ask()
                if part:
                    self.line.deliver(part)
                self.line.hang_up(error)
                self.assert_reset(asked, "before it answered")

    def test_cancel(self) -> None:
        """Giving up before the head drops the connection, so that the replica stops working."""
        asked = self.ask()
        asked.cancel()
        self.assertTrue(self.line.aborted)
        self.failureResultOf(asked, CancelledError)
        self.clock.advance(0)
        self.assertEqual((self.lost, self.idle), ([self.wire], []))

    @given(st.binary(max_size=80))
    @effort(100)
    def test_anything(self, data: bytes) -> None:
        """Any bytes are an answer, no answer or not yet one; nothing else."""
        self.setUp()
        asked = self.ask()
        self.line.deliver(data)
        asked.addErrback(lambda failure: failure.trap(ReplicaReset))


class Reuse(WireTestCase):
    def test_again(self) -> None:
        """After a complete answer the connection serves the next request."""
        for number in range(3):
            taker = self.take(self.answer(SHORT + b"ok"))
            self.assertEqual((taker.body, taker.ended), (b"ok", "done"))
            self.assertEqual(self.idle, [self.wire] * (number + 1))
            self.assertTrue(self.wire.is_fresh())

    def test_keep_or_close(self) -> None:
        """Whether it does follows from version, ``Connection`` and framing."""
        kept = {
            b"HTTP/1.1 200 OK\r\nContent-Length: 2": True,
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive": True,
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close": False,
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: X-A, Close": False,
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: x\r\nConnection: close": False,
            b"HTTP/1.0 200 OK\r\nContent-Length: 2": False,
            b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive": False,
        }
        for head, expected in kept.items():
            self.setUp()
            taker = self.take(self.answer(head + b"\r\n\r\nok"))
            self.assertEqual((taker.body, taker.ended), (b"ok", "done"))
            self.assertEqual((bool(self.idle), self.line.aborted), (expected, not expected), head)

    def test_both_framings(self) -> None:
        """An answer with a length and chunks may be a smuggler's: its connection is not used again."""
        both = (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
        )
        taker = self.take(self.answer(both))
        self.assertEqual((taker.ended, self.idle, self.line.aborted), ("done", [], True))

    def test_surplus(self) -> None:
        """Bytes behind the end of an answer make the connection unfit, with every framing."""
        for head, method in (
            (SHORT + b"ok", b"GET"),
            (CHUNKED + b"2\r\nok\r\n0\r\n\r\n", b"GET"),
            (SHORT, b"HEAD"),
            (b"HTTP/1.1 204 No\r\n\r\n", b"GET"),
        ):
            self.setUp()
            taker = self.take(self.answer(head + b"HTTP/1.1 200 OK\r\n", method=method))
            self.assertEqual((taker.ended, self.idle, self.line.aborted), ("done", [], True), head)
            self.assertNotIn(b"HTTP", taker.body)

    def test_unsolicited(self) -> None:
        """What comes while nobody asks is never taken for the next answer."""
        self.take(self.answer(SHORT + b"ok"))
        self.line.deliver(SHORT + b"no")
        self.assertTrue(self.line.aborted)
        self.assertFalse(self.wire.is_fresh())
        self.clock.advance(0)
        self.assertEqual(self.lost, [self.wire])

    def test_lost_while_idle(self) -> None:
        """A connection that is lost while idle is not fresh, and not stale either."""
        self.take(self.answer(SHORT + b"ok"))
        self.line.hang_up()
        self.assertEqual((self.wire.is_fresh(), self.wire.stale, self.lost), (False, False, [self.wire]))

    def test_stale(self) -> None:
        """Lost on its second use before a byte of an answer: stale. Otherwise not."""
        asked = self.ask()
        self.line.hang_up()
        self.failureResultOf(asked, ReplicaReset)
        self.assertFalse(self.wire.stale)
        for part, stale in ((b"", True), (b"HT", False)):
            self.setUp()
            self.take(self.answer(SHORT + b"ok"))
            asked = self.ask()
            if part:
                self.line.deliver(part)
            self.line.hang_up()
            self.failureResultOf(asked, ReplicaReset)
            self.assertEqual(self.wire.stale, stale)


class Bodies(WireTestCase):
    def test_paused_until_attached(self) -> None:
        """Nothing more is read until somebody takes the body; what had come is not lost."""
        response = self.answer(SHORT + b"o")
        self.assertTrue(self.line.paused)
        self.line.deliver(b"k")
        taker = self.take(response)
        self.assertFalse(self.line.paused)
        self.assertEqual((taker.body, taker.ended), (b"ok", "done"))

    def test_pause(self) -> None:
        """A taker that does not keep up stops the reading, and starts it again."""
        response = self.answer(CHUNKED)
        taker = self.take(response)
        response.producer.pauseProducing()
        self.line.deliver(b"1\r\na\r\n")
        self.assertEqual((self.line.paused, taker.body), (True, b""))
        response.producer.resumeProducing()
        self.clock.advance(0)
        self.assertEqual((self.line.paused, taker.body), (False, b"1\r\na\r\n"))

    def test_paused_from_the_start(self) -> None:
        """A taker that does not keep up before it takes, or while it is given what had come, stays paused."""
        response = self.answer(SHORT + b"o")
        response.producer.pauseProducing()
        taker = self.take(response)
        self.assertEqual((self.line.paused, taker.body), (True, b"o"))
        self.setUp()
        response = self.answer(SHORT + b"o")
        taker = Taker()
        taker.body_data = lambda data: response.producer.pauseProducing()  # type: ignore[method-assign]
        response.relay(taker, response.framing(http11=True)[0])
        self.assertTrue(self.line.paused)
        response.producer.resumeProducing()
        self.assertFalse(self.line.paused)

    def test_resumed_before_taken(self) -> None:
        """Nobody but a taker makes an untaken body be read."""
        response = self.answer(SHORT)
        response.producer.pauseProducing()
        response.producer.resumeProducing()
        self.assertTrue(self.line.paused)
        self.take(response)
        self.assertFalse(self.line.paused)

    def test_reading_again_after_a_pause(self) -> None:
        """An answer that ends while paused leaves a connection that is read from again."""
        response = self.answer(SHORT)
        self.take(response)
        response.producer.pauseProducing()
        self.wire.dataReceived(b"ok")  # had been read before the pause took hold
        self.assertEqual((self.line.paused, self.idle), (False, [self.wire]))

    def test_stop(self) -> None:
        """A taker that goes drops the connection; later calls find nothing to do."""
        response = self.answer(CHUNKED)
        taker = self.take(response)
        for _ in range(2):
            response.producer.stopProducing()
        response.producer.pauseProducing()
        response.producer.resumeProducing()
        self.assertTrue(self.line.aborted)
        self.clock.advance(0)
        self.assertEqual((taker.ended, self.lost), (None, [self.wire]))

    def test_how_a_close_ends(self) -> None:
        """A close completes only a body that lasts until the close; a reset completes none."""
        chunk = b"2\r\nok\r\n"
        table = (
            (SHORT + b"o", False, b"o"),
            (CHUNKED + chunk, False, chunk),
            (CHUNKED + chunk + b"0\r\n", False, chunk),
            (UNFRAMED + b"ok", True, chunk + b"0\r\n\r\n"),
            (UNFRAMED, True, b"0\r\n\r\n"),
        )
        for data, whole, body in table:
            self.setUp()
            taker = self.take(self.answer(data))
            self.line.hang_up()
            self.assertEqual(taker.ended == "done", whole, data)
            self.assertEqual(taker.body, body)
            self.setUp()
            taker = self.take(self.answer(data))
            self.line.reset()
            self.assertIsInstance(taker.ended, ReplicaCut, data)
            self.assertNotIn(b"0\r\n\r\n", taker.body)
            self.assertEqual((self.lost, self.idle), ([self.wire], []))

    def test_bad_chunk(self) -> None:
        """Broken framing within a body cuts it and drops the connection, at once or later."""
        for early in (True, False):
            self.setUp()
            bad = b"1\r\na\r\nzz\r\n"
            response = self.answer(CHUNKED + (bad if early else b""))
            taker = self.take(response)
            if not early:
                self.line.deliver(bad)
            self.assertIsInstance(taker.ended, ReplicaCut)
            self.assertIn("malformed", str(taker.ended))
            self.assertTrue(self.line.aborted)
            self.clock.advance(0)

    def test_bodiless(self) -> None:
        """An answer without a body is done at once."""
        for head, method in (
            (SHORT, b"HEAD"),
            (b"HTTP/1.1 204 No\r\n\r\n", b"POST"),
            (b"HTTP/1.1 304 X\r\n\r\n", b"GET"),
        ):
            self.setUp()
            taker = self.take(self.answer(head, method=method))
            self.assertEqual((taker.body, taker.ended, self.idle), (b"", "done", [self.wire]))

    def test_length(self) -> None:
        """The announced length is known as Twisted's own client tells it."""
        self.assertEqual(self.answer(SHORT).length, 2)
        self.setUp()
        self.assertEqual(self.answer(CHUNKED).length, UNKNOWN_LENGTH)

    def test_lost_before_attached(self) -> None:
        """A body whose connection was lost before anybody took it is cut, or done if all had come."""
        for data, ended in ((b"ok", "done"), (b"o", "cut")):
            self.setUp()
            response = self.answer(SHORT + data)
            self.wire.connectionLost(Failure(ConnectionLost()))
            taker = self.take(response)
            self.assertEqual(taker.body, data)
            self.assertEqual(taker.ended if isinstance(taker.ended, str) else "cut", ended)


class Collector(Protocol):
    def __init__(self) -> None:
        self.data = b""
        self.over: Failure | None = None

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        self.over = reason


class Delivered(WireTestCase):
    def test_content(self) -> None:
        """A protocol gets the bare content and the end that Twisted's own client gives."""
        collector = Collector()
        self.answer(CHUNKED + b"2;x\r\nok\r\n").deliverBody(collector)
        self.line.deliver(b"0\r\n\r\n")
        self.clock.advance(0)
        self.line.deliver(b"")
        assert collector.over is not None
        self.assertEqual(collector.data, b"ok")
        collector.over.trap(ResponseDone)

    def test_cut(self) -> None:
        """A cut body ends with the cut."""
        collector = Collector()
        self.answer(SHORT + b"o").deliverBody(collector)
        self.clock.advance(0)
        self.line.hang_up()
        assert collector.over is not None
        collector.over.trap(ReplicaCut)

    def test_bad_framing(self) -> None:
        """Contradicting lengths end it before it begins."""
        collector = Collector()
        self.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n").deliverBody(
            collector
        )
        assert collector.over is not None
        collector.over.trap(ReplicaReset)
        self.assertTrue(self.line.aborted)

    def test_given_up(self) -> None:
        """A protocol that gives up drops the connection."""
        collector = Collector()
        self.answer(CHUNKED).deliverBody(collector)
        collector.transport.abortConnection()  # type: ignore[union-attr]
        self.assertTrue(self.line.aborted)


class Sockets(TestCase):
    """A wire on a real connection."""

    timeout = 20

    async def test_unread_close(self) -> None:
        """An idle connection whose close has arrived, unread by the reactor, is not fresh; an open one is."""
        factory = Factory.forProtocol(Quiet)
        factory.accepted = Deferred()  # type: ignore[attr-defined]
        port = reactor.listenTCP(0, factory, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        lost: Deferred[Wire] = Deferred()
        wire = await ClientCreator(reactor, Wire, lambda wire: None, lost.callback).connectTCP(
            "127.0.0.1", port.getHost().port
        )
        far = await factory.accepted  # type: ignore[attr-defined]
        self.assertTrue(wire.is_fresh())
        wire.transport.pauseProducing()  # the reactor has not looked yet
        far.transport.loseConnection()
        await far.over
        self.assertFalse(wire.is_fresh())
        wire.abort()
        await lost

    async def test_nobody_between(self) -> None:
        """What an endpoint puts between a connection and its wire is gone once they are together."""
        factory = Factory.forProtocol(Quiet)
        factory.accepted = Deferred()  # type: ignore[attr-defined]
        port = reactor.listenTCP(0, factory, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        lost: Deferred[Wire] = Deferred()
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", port.getHost().port)
        wire = await endpoint.connect(Factory.forProtocol(lambda: Wire(lambda wire: None, lost.callback)))
        self.assertIs(wire.transport.protocol, wire)
        far = await factory.accepted  # type: ignore[attr-defined]
        far.transport.loseConnection()
        await lost
        await far.over
