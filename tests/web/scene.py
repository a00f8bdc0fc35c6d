"""The whole router in memory: real site, exchange, wire and pool between lines that a test plays."""

from __future__ import annotations

from collections import Counter
from http.client import HTTPResponse
from itertools import count

from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests.proxy.fakes import Answers, Endpoint, Line
from twisted_router.config.model import SESSION_SOURCES
from twisted_router.core.effects import Effect, Event, Launch, RequestEnd, Retired
from twisted_router.core.fleet import Fleet
from twisted_router.core.members import Member
from twisted_router.core.policies.session import SessionAffinity
from twisted_router.core.policies.vocabulary import Policy
from twisted_router.core.sessions import Pins
from twisted_router.core.snapshot import FleetView
from twisted_router.interfaces import IRecorder
from twisted_router.proxy.clients import Clients
from twisted_router.proxy.deadlines import Deadlines
from twisted_router.proxy.exchange import Front
from twisted_router.proxy.head import SessionFinder
from twisted_router.proxy.holding import Holding
from twisted_router.services.traffic import Traffic
from twisted_router.web.app import RouterApp
from twisted_router.web.auth import Guard
from twisted_router.web.fleet import FleetCalls
from twisted_router.web.limits import Doors, Limits
from twisted_router.web.openai import RelayResource
from twisted_router.web.site import RouterSite

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def post(
    body: bytes = b"{}", session: str | None = None, *fields: bytes, path: bytes = b"/v1/chat/completions"
) -> bytes:
    """Write a request."""
    lines = [b"POST " + path + b" HTTP/1.1", b"Host: router", b"Content-Length: %d" % len(body), *fields]
    if session is not None:
        lines.append(b"X-Session-Id: " + session.encode())
    return b"\r\n".join((*lines, b"", body))


@implementer(IRecorder)
class Notes:
    """A recorder that keeps everything."""

    def __init__(self) -> None:
        self.begun = 0
        self.outcomes: list[RequestEnd] = []
        self.moves: list[tuple[str, str]] = []

    def started(self) -> None:
        self.begun += 1

    def ended(self, outcome: RequestEnd) -> None:
        self.outcomes.append(outcome)

    def connect_moved(self, from_replica: str, to_replica: str) -> None:
        self.moves.append((from_replica, to_replica))


class Steward:
    """The behaviour behind administrative calls, settled by the test; cancelling gives up one waiter."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.growing: Deferred[Launch] = Deferred()
        self.retiring: list[Deferred[Retired]] = []
        self.releasing: Deferred[None] = Deferred()
        self.left = 0

    def grow(self, slot: str | None = None) -> Deferred[Launch]:
        self.asked.append(("grow", slot))
        return self.growing

    def retire(self, name: str) -> Deferred[Retired]:
        self.asked.append(("retire", name))
        waiter: Deferred[Retired] = Deferred(self._gone)
        self.retiring.append(waiter)
        return waiter

    def release(self, slot: str, instance: str, force: bool = False) -> Deferred[None]:
        self.asked.append(("release", slot, instance, force))
        return self.releasing

    def end_session(self, session: str) -> None:
        self.asked.append(("end", session))

    def _gone(self, _: object) -> None:
        self.left += 1


@define
class Told:
    """One whole answer."""

    status: int
    fields: list[tuple[str, str]]
    body: bytes

    def field(self, name: str) -> str | None:
        """Return the only value of a field, None when it has none."""
        values = [value for field, value in self.fields if field.lower() == name.lower()]
        assert len(values) < 2, (name, values)
        return values[0] if values else None


class Caller:
    """A client on a connection of its own."""

    def __init__(self, router: Router, peer: str = "127.0.0.1") -> None:
        self.line = Line(router.clock, peer)
        channel = router.site.buildProtocol(self.line.getPeer())
        assert channel is not None
        self.channel = channel
        self.line.carry(channel)
        self._clock = router.clock

    def say(self, *pieces: bytes) -> None:
        """Send; each piece is one read."""
        for piece in pieces:
            self.line.deliver(piece)
        self._clock.advance(0)

    def leave(self) -> None:
        """Go without a word."""
        self.line.reset()
        self._clock.advance(0)

    @property
    def heard(self) -> bytes:
        """Everything so far."""
        return self.line.value()

    def answer(self, method: str = "GET") -> Told:
        """Read the only answer so far, whole; nothing may follow it."""
        (told,) = self.answers(method)
        return told

    def answers(self, *methods: str) -> list[Told]:
        """Read whole answers, one for each method."""
        answers = Answers(self.heard)
        told = [_told(answers.next(method)) for method in methods]
        rest = answers.rest()
        assert not rest, rest
        return told


def _told(answer: HTTPResponse) -> Told:
    return Told(answer.status, answer.getheaders(), answer.read())


class Router:
    """Everything of the router but its sockets.

    :ivar replicas: where each replica listens.
    :ivar events: what the data path told the fleet.
    """

    def __init__(
        self,
        *names: str,
        slack: int = 8,
        ttl: float = 600.0,
        request_timeout: float = 3600.0,
        limits: Limits | None = None,
        doors: Doors | None = None,
        guard: Guard | None = None,
        policy: Policy | None = None,
        receipts: bool = False,
        queue_size: int = 0,
        max_outstanding: int | None = None,
    ) -> None:
        self.clock = clock = Clock()
        self.pins = Pins(ttl)
        self.fleet = Fleet(
            policy or SessionAffinity(slack), self.pins, veto=10.0, max_outstanding=max_outstanding
        )
        self.holding = Holding(
            self.fleet,
            clock,
            clock.seconds,
            size=queue_size,
            timeout=30.0,
            max_hold=60.0,
            eta=lambda: None,
        )
        self.replicas = {name: Endpoint(clock) for name in names or ("a", "b")}
        for name in self.replicas:
            self.fleet.add_static(name, f"http://{name}:8001")
        self.notes = Notes()
        self.events: list[Event] = []
        self.effects: list[Effect] = []
        self.traffic = Traffic()
        self.steward = Steward()
        self.clients = Clients(clock, self._endpoint, 5.0)
        minted = count()
        front = Front(
            self.fleet,
            self.clients,
            self.traffic.enter,
            self.traffic.leave,
            self.apply,
            self.notes,
            SessionFinder(SESSION_SOURCES),
            Deadlines(clock, request_timeout),
            clock.seconds,
            lambda: f"{next(minted):032x}",
            receipts,
            self.holding,
        )
        relay = RelayResource(front)
        calls = FleetCalls(self.steward, self.view, guard or Guard(None, is_open=True))
        app = RouterApp(relay, self.view, self._metrics, calls, lambda: self.traffic.closing)
        limits, doors = limits or Limits(1 << 20, 4 << 20), doors or Doors.of(None, 1 << 20, 0)
        self.site = RouterSite(app.resource(), relay, limits, doors, clock)
        self.metrics: tuple[str, bytes] = ("text/plain", b"metrics")
        self.accepted: list[str] = []

    def apply(self, event: Event) -> None:
        self.events.append(event)
        self.effects.extend(self.fleet.apply(event, self.clock.seconds()))

    def view(self) -> FleetView:
        return self.fleet.snapshot(self.clock.seconds())

    def _endpoint(self, member: Member) -> Endpoint:
        return self.replicas[member.name]

    def _metrics(self, accept: str) -> tuple[str, bytes]:
        self.accepted.append(accept)
        return self.metrics

    def call(self, *pieces: bytes, peer: str = "127.0.0.1") -> Caller:
        """Let a new client connect and send."""
        caller = Caller(self, peer)
        caller.say(*pieces)
        return caller

    def reply(self, name: str, *pieces: bytes, line: int = -1) -> Line:
        """Let a replica send on a connection, the newest unless told."""
        connection = self.replicas[name].lines[line]
        for piece in pieces:
            connection.deliver(piece)
        self.clock.advance(0)
        return connection

    def chosen(self) -> str:
        """Say which replica has the request that is under way."""
        (name,) = (name for name, load in self.load().items() if load)
        return name

    def load(self) -> dict[str, int]:
        """Outstanding requests by replica."""
        return {member.name: member.outstanding for member in self.fleet.members()}

    def routed(self) -> dict[str, int]:
        """Requests so far by replica."""
        return dict(Counter(outcome.replica or "" for outcome in self.notes.outcomes))


class RouterTestCase(SynchronousTestCase):
    """A router with replicas ``a`` and ``b``, and what has to hold at the end of every test of it."""

    def setUp(self) -> None:
        self.router = Router()

    def make(self, *names: str, **more: object) -> Router:
        """Replace the router by another."""
        self.router = Router(*names, **more)  # type: ignore[arg-type]
        return self.router

    def assert_over(self, ending: object, status: int | None = None) -> RequestEnd:
        """Every request has ended, once, the last like this; nothing of it is left anywhere."""
        router = self.router
        router.clock.advance(0)
        self.assertEqual(set(router.load().values()), {0})
        self.assertEqual((len(router.traffic), router.site.held), (0, 0))
        self.assertEqual(len(router.notes.outcomes), router.notes.begun)
        self.assertEqual([pin.inflight for pin in router.pins if pin.inflight], [])
        outcome = router.notes.outcomes[-1]
        self.assertIs(outcome.ending, ending)
        if status is not None:
            self.assertEqual(outcome.status, status)
        return outcome
