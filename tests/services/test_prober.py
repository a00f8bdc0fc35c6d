from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred, TimeoutError, fail, succeed
from twisted.internet.error import ConnectionLost, ConnectionRefusedError, TCPTimedOutError
from twisted.internet.error import TimeoutError as ConnectTimeout
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.core.effects import Event, Phase, ProbeAnswered, ProbeSilent, Silence
from twisted_router.core.fleet import Fleet
from twisted_router.core.members import Member
from twisted_router.core.policies.session import SessionAffinity
from twisted_router.core.sessions import Pins
from twisted_router.errors import ReplicaConnectTimedOut, ReplicaRefused, ReplicaReset, ReplicaUnreachable
from twisted_router.services.prober import Prober, ask_health, how_silent, probe_timeout


class Response:
    def __init__(self, code: int) -> None:
        self.code = code
        self.discarded = 0
        self.rest: Deferred[None] = succeed(None)

    def discard(self) -> Deferred[None]:
        self.discarded += 1
        return self.rest


class Client:
    """One replica as the prober sees it: remembers what was asked, answers when told."""

    def __init__(self, answer: Deferred[Response]) -> None:
        self.answer = answer
        self.asked: list[tuple[bytes, bytes]] = []

    def request(self, method: bytes, target: bytes, /) -> Deferred[Response]:
        self.asked.append((method, target))
        return self.answer


class ProberTestCase(SynchronousTestCase):
    interval = 5.0
    timeout = 5.0

    def setUp(self) -> None:
        self.clock = Clock()
        self.pins = Pins(ttl=60)
        self.fleet = Fleet(SessionAffinity(8), self.pins, veto=0)
        for name in ("a", "b", "c"):
            self.fleet.add_static(name, f"http://{name}:1")
        self.events: list[Event] = []
        #: instance -> the probes asked of it, each with the second it was asked in
        self.cancelled: list[str] = []
        self.asked: dict[str, list[Deferred[int]]] = {"a": [], "b": [], "c": []}
        self.prober = Prober(
            self.fleet,
            self.probe,
            self.apply,
            self.clock,
            self.clock.seconds,
            interval=self.interval,
            timeout=self.timeout,
        )
        self.addCleanup(self.prober.stopService)

    def apply(self, event: Event) -> None:
        self.events.append(event)
        self.fleet.apply(event, self.clock.seconds())

    def probe(self, member: Member) -> Deferred[int]:
        asked: Deferred[int] = Deferred(lambda _: self.cancelled.append(member.instance))
        self.asked[member.instance].append(asked)
        return asked

    def counts(self) -> list[int]:
        return [len(self.asked[name]) for name in "abc"]


class Rounds(ProberTestCase):
    def test_first_round_at_start(self) -> None:
        """Every replica is asked as soon as the service starts, all at once."""
        self.prober.startService()
        self.assertEqual(self.counts(), [1, 1, 1])

    def test_once_an_interval(self) -> None:
        """Replicas that fail at once are still asked once per interval, not more."""
        self.prober.startService()
        for round_ in range(1, 4):
            for name in "abc":
                self.asked[name][-1].errback(ConnectionRefusedError())
            self.assertEqual(self.counts(), [round_] * 3)
            self.clock.advance(self.interval)
        self.assertEqual(self.counts(), [4, 4, 4])

    def test_sweep(self) -> None:
        """Each round forgets the pins that have expired."""
        self.prober.startService()
        self.pins.place("s", "a", self.clock.seconds())
        self.clock.advance(self.interval)
        self.assertEqual(len(self.pins), 1)
        self.clock.pump([self.interval] * 13)
        self.assertEqual(len(self.pins), 0)

    def test_a_broken_round_is_not_the_last(self) -> None:
        """Whatever a round raises, the next one comes."""
        real = self.fleet.members
        self.fleet.members = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
        self.prober.startService()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.fleet.members = real  # type: ignore[method-assign]
        self.clock.advance(self.interval)
        self.assertEqual(self.counts(), [1, 1, 1])


class Slow(ProberTestCase):
    timeout = 12.0

    def test_a_hang_delays_nobody(self) -> None:
        """While one probe hangs, the others are asked every round."""
        self.prober.startService()
        for _ in range(2):
            self.asked["b"][-1].callback(200)
            self.asked["c"][-1].callback(200)
            self.clock.advance(self.interval)
        self.assertEqual(self.counts(), [1, 3, 3])

    def test_a_hang_is_a_miss_at_the_bound(self) -> None:
        """A probe without an answer is a time-out exactly when the bound is reached."""
        self.prober.startService()
        self.clock.advance(self.timeout - 0.1)
        self.assertEqual(self.events, [])
        self.clock.advance(0.1)
        self.assertIn(ProbeSilent("a", Silence.TIMED_OUT), self.events)

    def test_a_slow_good_answer_is_good(self) -> None:
        """A 200 that comes late, but within the bound, is health and nothing else."""
        self.prober.startService()
        self.clock.advance(self.timeout - 0.1)
        self.asked["a"][0].callback(200)
        self.assertEqual(self.events, [ProbeAnswered("a", 200)])

    def test_bound(self) -> None:
        """A probe may take an interval, and never less than a connection may."""
        self.assertEqual((probe_timeout(5, 5), probe_timeout(1, 5), probe_timeout(30, 5)), (5, 5, 30))


class Verdicts(ProberTestCase):
    def test_two_misses(self) -> None:
        """Two rounds of refusals take a replica out of rotation, one good answer brings it back."""
        self.prober.startService()
        for _ in range(2):
            self.asked["a"][-1].errback(ConnectionRefusedError())
            self.asked["b"][-1].callback(200)
            self.asked["c"][-1].callback(200)
            self.clock.advance(self.interval)
        self.assertEqual(self.fleet.snapshot(0.0).ready, 2)
        self.asked["a"][-1].callback(200)
        self.assertEqual(self.fleet.snapshot(0.0).replicas[0].phase, Phase.READY)

    def test_kinds_of_silence(self) -> None:
        """Refused, timed out and broken are told apart, whoever raises them."""
        table: dict[Silence, list[Exception]] = {
            Silence.REFUSED: [ConnectionRefusedError(), ReplicaRefused("x")],
            Silence.TIMED_OUT: [
                TimeoutError(),
                ConnectTimeout(),
                TCPTimedOutError(),
                ReplicaConnectTimedOut("x"),
            ],
            Silence.BROKEN: [ConnectionLost(), ReplicaReset("x"), ValueError(), CancelledError()],
        }
        for verdict, errors in table.items():
            for error in errors:
                self.assertIs(how_silent(Failure(error)), verdict, error)

    def test_why_there_is_no_connection(self) -> None:
        """What kept a connection from being made is told, a failed handshake for instance."""
        self.prober.startService()
        self.asked["a"][0].errback(
            ReplicaUnreachable("replica a is unreachable: TLS: expired", "TLS: expired")
        )
        self.asked["b"][0].errback(ReplicaRefused("replica b refused the connection"))
        self.assertEqual(
            self.events,
            [ProbeSilent("a", Silence.BROKEN, "TLS: expired"), ProbeSilent("b", Silence.REFUSED)],
        )

    def test_a_probe_that_raises(self) -> None:
        """A probe that raises instead of returning is a miss of that replica; the others are asked."""

        def probe(member: Member) -> Deferred[int]:
            if member.name == "a":
                raise ValueError("no such thing")
            return succeed(200)

        self.prober._probe = probe
        self.prober.startService()
        self.assertEqual(
            self.events,
            [ProbeSilent("a", Silence.BROKEN), ProbeAnswered("b", 200), ProbeAnswered("c", 200)],
        )

    def test_a_verdict_that_cannot_be_applied(self) -> None:
        """When taking note of a verdict raises, that is logged and the replica is asked again."""
        self.prober._apply = lambda event: 1 / 0
        self.prober.startService()
        self.asked["a"][0].callback(200)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.clock.advance(self.interval)
        self.assertEqual(len(self.asked["a"]), 2)
        self.flushLoggedErrors(ZeroDivisionError)


class AtOnce(ProberTestCase):
    def test_between_rounds(self) -> None:
        """``probe_now`` does not wait for the round and asks nobody else."""
        self.prober.startService()
        self.asked["a"][0].callback(200)
        self.prober.probe_now("a")
        self.assertEqual(self.counts(), [2, 1, 1])

    def test_not_twice(self) -> None:
        """A replica that is being asked is not asked a second time."""
        self.prober.startService()
        self.prober.probe_now("a")
        self.assertEqual(self.counts(), [1, 1, 1])

    def test_unknown(self) -> None:
        """An instance that is gone meanwhile is nobody to ask."""
        self.prober.startService()
        self.prober.probe_now("gone")
        self.assertEqual(self.counts(), [1, 1, 1])


class Stopping(ProberTestCase):
    def test_nothing_after_the_end(self) -> None:
        """Stopping cancels what is under way, reports none of it and asks nobody again."""
        self.prober.startService()
        self.successResultOf(self.prober.stopService())
        self.assertEqual(self.cancelled, ["a", "b", "c"])
        self.prober.probe_now("a")
        self.clock.advance(self.interval * 3)
        self.assertEqual((self.events, self.counts()), ([], [1, 1, 1]))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_odd_end(self) -> None:
        """A connection that is torn down by the stop in its own words is not a verdict either."""

        def probe(member: Member) -> Deferred[int]:
            return Deferred(lambda asked: asked.errback(ConnectionLost()))

        self.prober._probe = probe
        self.prober.startService()
        self.prober.stopService()
        self.assertEqual(self.events, [])


class Asking(SynchronousTestCase):
    def test_get(self) -> None:
        """A probe is a GET of the health path; its verdict is the status and the body is thrown away."""
        response = Response(503)
        client = Client(succeed(response))
        self.assertEqual(self.successResultOf(ask_health(client, b"/health")), 503)
        self.assertEqual((client.asked, response.discarded), ([(b"GET", b"/health")], 1))

    def test_endless_body(self) -> None:
        """A probe is over at the end of the body; giving it up gives up the rest of the body."""
        response = Response(200)
        cancelled: list[object] = []
        response.rest = Deferred(cancelled.append)
        asking = ask_health(Client(succeed(response)), b"/health")
        self.assertNoResult(asking)
        asking.cancel()
        self.failureResultOf(asking, CancelledError)
        self.assertEqual(len(cancelled), 1)

    def test_failure(self) -> None:
        """What kept a replica from answering reaches the prober as it is."""
        failed = ask_health(Client(fail(ConnectionRefusedError())), b"/")
        self.failureResultOf(failed, ConnectionRefusedError)
