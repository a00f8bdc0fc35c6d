from __future__ import annotations

from collections.abc import Callable

from twisted.application.service import Service
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.errors import StateFileError
from twisted_router.services.root import HOLD, POOL_TIMEOUT, RouterService
from twisted_router.services.traffic import Traffic


class Listening:
    def __init__(self, journal: list[str]) -> None:
        self.journal = journal
        self.accepting = True

    def stopReading(self) -> None:
        self.accepting = False

    def startReading(self) -> None:
        self.accepting = True

    def stopListening(self) -> Deferred[None]:
        self.journal.append("port closed")
        return succeed(None)


class Recorded:
    """What an earlier router left: asked in order, written down."""

    def __init__(self, journal: list[str]) -> None:
        self.journal = journal
        self.broken: Exception | None = None
        self.adopted: Deferred[None] = succeed(None)

    def reclaim(self) -> None:
        self.journal.append("reclaimed")
        if self.broken is not None:
            raise self.broken

    def adopt(self) -> Deferred[None]:
        self.journal.append("adopting")
        return self.adopted


class Replicas:
    """A keeper that writes down what it is asked, in order."""

    def __init__(self, journal: list[str]) -> None:
        self.journal = journal
        self.stopped: Deferred[None] = succeed(None)
        self.saved: Deferred[None] = succeed(None)

    def stop_replicas(self) -> Deferred[None]:
        self.journal.append("stopping replicas")
        return self.stopped

    def leave_running(self) -> None:
        self.journal.append("leave running")

    def hasten(self) -> None:
        self.journal.append("hasten")

    def close(self) -> Deferred[None]:
        self.journal.append("state saved")
        return self.saved


class Child(Service):
    def __init__(self, name: str, journal: list[str]) -> None:
        self.title = name
        self.journal = journal
        self.stopped: Deferred[None] = succeed(None)

    def startService(self) -> None:
        super().startService()
        self.journal.append(f"{self.title} started")

    def stopService(self) -> Deferred[None]:
        super().stopService()
        self.journal.append(f"{self.title} stopped")
        return self.stopped


class RootTestCase(SynchronousTestCase):
    drain_timeout = 300.0

    def setUp(self) -> None:
        self.clock = Clock()
        self.journal: list[str] = []
        self.recorded = Recorded(self.journal)
        self.replicas = Replicas(self.journal)
        self.traffic = Traffic()
        self.pool: Deferred[None] = succeed(None)
        self.starting: list[Callable[[], None]] = []
        self.root = RouterService(
            self.clock,
            listen=self.listen,
            when_running=self.starting.append,
            traffic=self.traffic,
            recorded=self.recorded,
            replicas=self.replicas,
            close_pool=self.close_pool,
            drain_timeout=self.drain_timeout,
        )
        self.children = [Child(name, self.journal) for name in ("one", "two")]
        for child in self.children:
            child.setServiceParent(self.root)

    def listen(self) -> Listening:
        self.journal.append("bound")
        self.port = Listening(self.journal)
        return self.port

    def close_pool(self) -> Deferred[None]:
        self.journal.append("pool closed")
        return self.pool

    def start(self) -> None:
        self.root.privilegedStartService()
        self.root.startService()
        for call in self.starting:
            call()
        self.journal.clear()


class Starting(RootTestCase):
    def test_order(self) -> None:
        """Slots are reclaimed before the port is bound; launches wait until the reactor runs."""
        self.root.privilegedStartService()
        self.assertEqual(self.journal, ["reclaimed", "bound"])
        self.root.startService()
        self.assertEqual(self.journal[2:], ["one started", "two started"])
        self.starting[0]()
        self.assertEqual(self.journal[4:], ["adopting"])

    def test_port_in_use(self) -> None:
        """A port that cannot be bound ends the start, so that a daemon's parent fails too."""

        def listen() -> Listening:
            raise CannotListenError("", 8000, OSError())

        self.root._listen = listen
        self.assertRaises(CannotListenError, self.root.privilegedStartService)

    def test_state_file(self) -> None:
        """A state file that cannot be used ends the start before the port is bound."""
        self.recorded.broken = StateFileError("damaged")
        self.assertRaises(StateFileError, self.root.privilegedStartService)
        self.assertEqual(self.journal, ["reclaimed"])

    def test_stopped_before_running(self) -> None:
        """A router that was stopped before its reactor ran launches nothing."""
        self.root.privilegedStartService()
        self.root.startService()
        self.successResultOf(self.root.stopService())
        self.starting[0]()
        self.assertNotIn("adopting", self.journal)


class Holding(RootTestCase):
    def begin(self) -> None:
        self.recorded.adopted = Deferred()
        self.root.privilegedStartService()
        self.root.startService()
        self.starting[0]()

    def test_nothing_recorded(self) -> None:
        """Without recorded replicas connections are accepted at once."""
        self.root.privilegedStartService()
        self.root.startService()
        self.starting[0]()
        self.assertTrue(self.port.accepting)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_until_adopted(self) -> None:
        """Connections wait, unaccepted, until each recorded replica has its verdict."""
        self.begin()
        self.assertFalse(self.port.accepting)
        self.recorded.adopted.callback(None)
        self.assertTrue(self.port.accepting)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_not_for_a_hanging_host(self) -> None:
        """A recorded replica that hangs keeps connections waiting only for a moment."""
        self.begin()
        self.clock.advance(HOLD)
        self.assertTrue(self.port.accepting)
        self.recorded.adopted.callback(None)

    def test_stopped_meanwhile(self) -> None:
        """A router that stops answers those who wait, and touches the port no more once it is closed."""
        self.begin()
        self.replicas.stopped = Deferred()
        stopping = self.root.stopService()
        self.assertTrue(self.port.accepting)
        self.replicas.stopped.callback(None)
        self.successResultOf(stopping)
        self.port.accepting = False
        self.recorded.adopted.callback(None)
        self.clock.advance(HOLD)
        self.assertFalse(self.port.accepting)

    def test_failure(self) -> None:
        """When adoption breaks, that is logged and the router serves."""
        self.begin()
        self.recorded.adopted.errback(ValueError())
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.clock.advance(HOLD)
        self.assertTrue(self.port.accepting)


class Stopping(RootTestCase):
    def test_order(self) -> None:
        """Replicas, children in reverse, the state, the port and the pool: one after the other."""
        self.start()
        self.successResultOf(self.root.stopService())
        self.assertEqual(
            self.journal,
            ["stopping replicas", "two stopped", "one stopped", "state saved", "port closed", "pool closed"],
        )

    def test_requests_first(self) -> None:
        """While requests are under way new ones are refused, and nothing behind them is taken down."""
        self.start()

        def abort() -> None:
            """Nobody is cut here."""

        self.traffic.enter(abort)
        stopping = self.root.stopService()
        self.assertTrue(self.traffic.closing)
        self.assertEqual(self.journal, ["stopping replicas"])
        self.traffic.leave(abort)
        self.successResultOf(stopping)

    def test_replicas_before_the_state(self) -> None:
        """The state is saved, and the port closed, only after the replicas have stopped."""
        self.start()
        self.replicas.stopped = Deferred()
        stopping = self.root.stopService()
        self.assertEqual(self.journal, ["stopping replicas"])
        self.replicas.stopped.callback(None)
        self.successResultOf(stopping)

    def test_drain_timeout(self) -> None:
        """Requests that outlast the drain timeout are cut, and the stop goes on."""
        self.start()
        self.traffic.enter(lambda: self.journal.append("cut"))
        stopping = self.root.stopService()
        self.clock.advance(self.drain_timeout - 1)
        self.assertNoResult(stopping)
        self.clock.advance(1)
        self.successResultOf(stopping)
        self.assertEqual(self.journal[1], "cut")

    def test_failures(self) -> None:
        """Whatever fails is logged, and every other step is done all the same."""
        self.start()
        self.replicas.stopped = fail(ValueError())
        self.replicas.saved = fail(ValueError())
        self.children[1].stopped = fail(ValueError())
        self.pool = fail(ValueError())
        self.successResultOf(self.root.stopService())
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 4)
        self.assertEqual(len(self.journal), 6)

    def test_hanging_pool(self) -> None:
        """A pool that does not close keeps the process no longer than its bound."""
        self.start()
        self.pool = Deferred()
        stopping = self.root.stopService()
        self.assertNoResult(stopping)
        self.clock.advance(POOL_TIMEOUT)
        self.successResultOf(stopping)
        self.flushLoggedErrors()

    def test_twice_closed(self) -> None:
        """The port is given up once."""
        self.start()
        self.successResultOf(self.root.stopService())
        self.assertIsNone(self.root.port)


class Hastening(RootTestCase):
    def test_requests(self) -> None:
        """While requests are awaited, hastening cuts them and leaves the replicas their time."""
        self.start()
        self.traffic.enter(lambda: self.journal.append("cut"))
        stopping = self.root.stopService()
        self.root.hasten()
        self.successResultOf(stopping)
        self.assertEqual(self.journal[1], "cut")
        self.assertNotIn("hasten", self.journal)

    def test_replicas(self) -> None:
        """While replicas are awaited, hastening is passed on to their keeper."""
        self.start()
        self.replicas.stopped = Deferred()
        stopping = self.root.stopService()
        self.root.hasten()
        self.assertEqual(self.journal, ["stopping replicas", "hasten"])
        self.replicas.stopped.callback(None)
        self.successResultOf(stopping)

    def test_leave_running(self) -> None:
        """Leaving the replicas running is the keeper's matter."""
        self.root.leave_running()
        self.assertEqual(self.journal, ["leave running"])
