from __future__ import annotations

from collections.abc import Callable
from errno import EMFILE

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import IPushProducer
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http_headers import Headers
from zope.interface import implementer

from tests.proxy.fakes import Endpoint, Line
from twisted_router.core.effects import Ending, Event, RequestEnd, SessionFinished
from twisted_router.core.fleet import Fleet
from twisted_router.core.policies.session import SessionAffinity
from twisted_router.core.policies.vocabulary import Reason
from twisted_router.core.sessions import Pins
from twisted_router.errors import Overloaded, ReplicaTimedOut, RouterError
from twisted_router.interfaces import IRecorder
from twisted_router.proxy.clients import Clients
from twisted_router.proxy.deadlines import Deadlines
from twisted_router.proxy.exchange import Exchange, Front
from twisted_router.proxy.head import SessionFinder

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Client:
    """The client's side, as an exchange sees it: a journal of what it is told."""

    def __init__(self, proto: bytes = b"HTTP/1.1", body: bytes = b"{}") -> None:
        self.method = b"POST"
        self.uri = b"/v1/x?key=secret"
        self.clientproto = proto
        self.requestHeaders = Headers()
        self.body = body
        self.journal: list[object] = []
        self.written = b""
        self.finished: Deferred[None] = Deferred()

    def take_body(self) -> bytes:
        body, self.body = self.body, b""
        return body

    def forget_head(self) -> None:
        self.requestHeaders = Headers()

    def is_persistent(self) -> bool:
        return self.clientproto == b"HTTP/1.1"

    def registerProducer(self, producer: IPushProducer, streaming: bool) -> None:
        self.journal.append("registered")

    def unregisterProducer(self) -> None:
        self.journal.append("unregistered")

    def notifyFinish(self) -> Deferred[None]:
        return self.finished

    def send(self, data: bytes) -> None:
        self.journal.append("sent")
        self.written += data

    def complete(self) -> None:
        self.journal.append("complete")

    def break_off(self, *, reset: bool) -> None:
        self.journal.append(("broken", reset))

    def fail(self, error: RouterError, session: str) -> None:
        self.journal.append((type(error), session))


@implementer(IRecorder)
class Recorder:
    def __init__(self) -> None:
        self.begun = 0
        self.outcomes: list[RequestEnd] = []

    def started(self) -> None:
        self.begun += 1

    def ended(self, outcome: RequestEnd) -> None:
        self.outcomes.append(outcome)

    def connect_moved(self, from_replica: str, to_replica: str) -> None:
        raise AssertionError("nothing moves here")


class ExchangeTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.endpoint = Endpoint(self.clock)
        self.fleet = Fleet(SessionAffinity(8), Pins(600), veto=0)
        self.fleet.add_static("a", "http://a:1")
        self.recorder = Recorder()
        self.events: list[Event] = []
        self.inside: list[Callable[[], object]] = []
        self.front = Front(
            self.fleet,
            Clients(self.clock, lambda member: self.endpoint, 5.0),
            self.inside.append,
            self.inside.remove,
            self.events.append,
            self.recorder,
            SessionFinder(("x-session-id",)),
            Deadlines(self.clock, 60.0),
            self.clock.seconds,
            lambda: "minted",
        )

    def start(self, client: Client) -> Line:
        Exchange(self.front, client).start()
        return self.endpoint.line

    def outcome(self) -> RequestEnd:
        """The one outcome; the lease is back, nobody is inside, and no deadline is armed."""
        (outcome,) = self.recorder.outcomes
        self.assertEqual((self.inside, self.recorder.begun, len(self.front.deadlines)), ([], 1, 0))
        self.assertEqual([member.outstanding for member in self.fleet.members()], [0])
        return outcome

    def test_outcome(self) -> None:
        """What is told of a request: times from its start, body bytes, a path without its query."""
        client = Client()
        line = self.start(client)
        self.clock.advance(1)
        line.deliver(OK)
        self.clock.advance(2)
        line.deliver(b"o")
        self.clock.advance(4)
        line.deliver(b"k")
        self.assertEqual(
            self.outcome(),
            RequestEnd(Ending.DONE, "a", 200, Reason.NO_SESSION, "minted", "POST", "/v1/x", 7.0, 3.0, 2),
        )
        self.assertEqual(client.journal, ["registered", "sent", "sent", "sent", "unregistered", "complete"])

    def test_forgotten(self) -> None:
        """While an answer goes on nobody holds the request: not its fields, not its body."""
        client = Client(body=b"{}")
        client.requestHeaders.addRawHeader(b"X-Long", b"y" * 1000)
        exchange = Exchange(self.front, client)
        exchange.start()
        self.endpoint.line.deliver(OK)
        held = [client.requestHeaders, exchange._headers.lines, exchange._body]
        self.assertEqual(held, [Headers(), [], b""])

    def test_final_after_all(self) -> None:
        """A conversation that its last request ends is over when that has been answered."""
        client = Client()
        client.requestHeaders.addRawHeader(b"X-Dynamo-Session-Final", b" True")
        line = self.start(client)
        line.deliver(OK)
        self.assertEqual(self.events, [])
        line.deliver(b"ok")
        self.assertEqual(self.events, [SessionFinished("minted")])

    def test_one_write(self) -> None:
        """A head and the body that came with it go out in one write."""
        client = Client()
        self.start(client).deliver(OK + b"ok")
        self.assertEqual(client.journal, ["registered", "sent", "unregistered", "complete"])

    def test_producer(self) -> None:
        """The replica is the client's producer for as long as there is a body, whatever its end."""
        for end in (Line.reset, Line.hang_up):
            self.setUp()
            client = Client()
            line = self.start(client)
            line.deliver(STREAM)
            end(line)
            self.assertEqual(client.journal, ["registered", "sent", "unregistered", ("broken", False)])
            self.assertIs(self.outcome().ending, Ending.CUT)

    def test_reset_where_needed(self) -> None:
        """A cut is shown by a reset where the close would look like the end, and there alone."""
        table = (
            (b"HTTP/1.1", STREAM, False),
            (b"HTTP/1.1", OK, False),
            (b"HTTP/1.0", STREAM, True),
            (b"HTTP/1.0", OK, False),
            (b"HTTP/1.0", b"HTTP/1.1 200 OK\r\n\r\n", True),
        )
        for proto, head, reset in table:
            self.setUp()
            client = Client(proto)
            line = self.start(client)
            line.deliver(head)
            line.reset()
            self.assertEqual(client.journal[-1], ("broken", reset), (proto, head))

    def test_gone_then_everything(self) -> None:
        """After a client has left, neither the replica nor the clock tells it, or anybody, anything."""
        client = Client()
        line = self.start(client)
        client.finished.errback(Failure(ConnectionError()))
        line.hang_up()
        self.clock.advance(100)
        self.assertEqual((client.journal, self.outcome().ending), ([], Ending.CLIENT_GONE))

    def test_done_then_everything(self) -> None:
        """After the end the clock tells nobody, and no timer is left but the idle connection's."""
        client = Client()
        self.start(client).deliver(OK + b"ok")
        before = list(client.journal)
        self.assertIs(self.outcome().ending, Ending.DONE)
        self.clock.advance(100)
        self.assertEqual((client.journal, self.outcome().ending), (before, Ending.DONE))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_fault_after_the_head(self) -> None:
        """A fault of ours once the head was due breaks the answer off, drops the replica and is logged."""

        def broken(producer: object, streaming: bool) -> None:
            raise ZeroDivisionError

        client = Client()
        client.registerProducer = broken  # type: ignore[method-assign]
        line = self.start(client)
        line.deliver(OK)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual((client.journal, line.aborted), ([("broken", True)], True))
        self.assertIs(self.outcome().ending, Ending.CUT)

    def test_no_descriptor(self) -> None:
        """A connection that the router has no descriptor for is its own shortage: 503, not the replica's."""
        self.endpoint.error = ConnectError(osError=EMFILE, string="Too many open files")
        client = Client()
        Exchange(self.front, client).start()
        self.assertEqual(client.journal, [(Overloaded, "minted")])
        self.assertEqual((self.outcome().ending, self.events), (Ending.REJECTED, []))

    def test_late(self) -> None:
        """A time-out tells which replica was late, and by how much."""
        client = Client()
        line = self.start(client)
        self.clock.advance(60)
        self.assertEqual(client.journal, [(ReplicaTimedOut, "minted")])
        self.assertTrue(line.aborted)
        self.assertIs(self.outcome().ending, Ending.TIMED_OUT)
