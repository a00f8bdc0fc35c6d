from __future__ import annotations

from twisted.internet.defer import CancelledError
from twisted.internet.error import (
    ConnectError,
    ConnectionRefusedError,
    DNSLookupError,
    NoRouteError,
    TCPTimedOutError,
)
from twisted.internet.error import TimeoutError as ConnectTimeout
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.proxy.fakes import Endpoint
from tests.proxy.test_wire import SHORT, Taker
from twisted_router.errors import ReplicaRefused, ReplicaReset, ReplicaUnreachable
from twisted_router.proxy.pool import DISTRUST_SECONDS, IDLE_SECONDS, Pool
from twisted_router.proxy.wire import Wire


class PoolTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.endpoint = Endpoint(self.clock)
        self.pool = Pool(self.clock, self.endpoint, 5.0, "node0")

    def connect(self) -> Wire:
        return self.successResultOf(self.pool.connect())

    def use(self, wire: Wire) -> None:
        """Have one whole exchange on a connection."""
        asked = wire.send(b"GET", b"GET / HTTP/1.1\r\n\r\n", b"")
        line = wire.transport
        line.deliver(SHORT + b"ok")  # type: ignore[attr-defined]
        response = self.successResultOf(asked)
        follow, _ = response.framing(http11=True)
        response.relay(Taker(), follow)

    def warm(self, count: int) -> list[Wire]:
        wires = [self.connect() for _ in range(count)]
        for wire in wires:
            self.use(wire)
            self.clock.advance(0)
        return wires

    def gone(self) -> list[bool]:
        return [line.gone for line in self.endpoint.lines]


class Taking(PoolTestCase):
    def test_empty(self) -> None:
        """A new pool has no connection to give."""
        self.assertIsNone(self.pool.take())

    def test_newest_first(self) -> None:
        """The most recently used comes first, so that the others can expire."""
        a, b, c = self.warm(3)
        self.assertEqual([self.pool.take() for _ in range(4)], [c, b, a, None])

    def test_busy(self) -> None:
        """A connection in use is nobody else's."""
        (wire,) = self.warm(1)
        self.assertIs(self.pool.take(), wire)
        self.assertIsNone(self.pool.take())
        self.use(wire)
        self.assertIs(self.pool.take(), wire)

    def test_lost(self) -> None:
        """A connection that was lost while idle is not given out."""
        a, _ = self.warm(2)
        self.endpoint.lines[1].hang_up()
        self.assertEqual([self.pool.take(), self.pool.take()], [a, None])


class Idleness(PoolTestCase):
    def test_limit(self) -> None:
        """An idle connection is used for four seconds, below the five after which servers close theirs."""
        self.assertEqual(IDLE_SECONDS, 4.0)
        (wire,) = self.warm(1)
        self.clock.advance(3.9)
        self.assertIs(self.pool.take(), wire)

    def test_expiry(self) -> None:
        """After that it is closed, each at its own time, and no timer is left."""
        self.warm(1)
        self.clock.advance(1)
        self.warm(1)
        self.clock.advance(0)
        a, b = self.endpoint.lines[0], self.endpoint.lines[-1]
        self.clock.pump([0.5] * 6)  # 4 seconds after the first
        self.clock.advance(0)
        self.assertEqual(a.gone, True)
        self.clock.pump([0.5] * 2)
        self.clock.advance(0)
        self.assertEqual((b.gone, self.pool.take(), self.clock.getDelayedCalls()), (True, None, []))

    def test_too_old_before_the_timer(self) -> None:
        """One that is too old is not used even when its timer has not run yet."""
        self.warm(1)
        self.clock.rightNow += 4.1
        self.assertIsNone(self.pool.take())


class Distrust(PoolTestCase):
    def break_promise(self) -> None:
        """Let the replica close a connection it had kept open, when it is used again."""
        (wire,) = self.warm(1)
        self.assertIs(self.pool.take(), wire)
        asked = wire.send(b"GET", b"GET / HTTP/1.1\r\n\r\n", b"")
        wire.transport.hang_up()  # type: ignore[attr-defined]
        self.failureResultOf(asked, ReplicaReset)

    def test_stale(self) -> None:
        """A replica that drops a reused connection gets one request a connection for 30 seconds."""
        self.assertEqual(DISTRUST_SECONDS, 30.0)
        self.break_promise()
        self.clock.advance(29.9)
        self.warm(1)
        self.assertIsNone(self.pool.take())
        self.assertTrue(self.endpoint.line.gone)
        self.clock.advance(0.1)
        (wire,) = self.warm(1)
        self.assertIs(self.pool.take(), wire)

    def test_others(self) -> None:
        """Its other idle connections are not tried either."""
        a, b = self.warm(2)
        self.assertIs(self.pool.take(), b)
        asked = b.send(b"GET", b"GET / HTTP/1.1\r\n\r\n", b"")
        self.endpoint.lines[1].hang_up()
        self.failureResultOf(asked, ReplicaReset)
        self.clock.advance(0)
        self.assertIsNone(self.pool.take())
        self.assertEqual((a.is_fresh(), self.gone()), (False, [True, True]))

    def test_first_use(self) -> None:
        """A connection that fails on its first use says nothing about reuse."""
        (kept,) = self.warm(1)
        wire = self.connect()
        asked = wire.send(b"GET", b"GET / HTTP/1.1\r\n\r\n", b"")
        self.endpoint.line.hang_up()
        self.failureResultOf(asked, ReplicaReset)
        self.assertIs(self.pool.take(), kept)


class Connecting(PoolTestCase):
    def failure(self, error: Exception) -> ReplicaUnreachable:
        self.endpoint.error = error
        found = self.failureResultOf(self.pool.connect(), ReplicaUnreachable).value
        assert isinstance(found, ReplicaUnreachable)
        return found

    def test_refused(self) -> None:
        """A refusal is told apart, because such a request may go elsewhere."""
        error = self.failure(ConnectionRefusedError())
        self.assertIsInstance(error, ReplicaRefused)
        self.assertEqual(error.message, "replica node0 refused the connection: nobody listens there")

    def test_other_errors(self) -> None:
        """Every other failure names the replica and the reason, and is no refusal."""
        for error, words in (
            (ConnectTimeout(), "no connection within 5 seconds"),
            (TCPTimedOutError(), "TCP connection timed out"),
            (DNSLookupError("x"), "host name cannot be resolved"),
            (NoRouteError(osError=113, string="No route to host"), "No route to host"),
            (ConnectError(string="odd"), "odd"),
            (ValueError("hm"), "ValueError: hm"),
        ):
            found = self.failure(error)
            self.assertNotIsInstance(found, ReplicaRefused)
            self.assertIn("replica node0 is unreachable", found.message)
            self.assertIn(words, found.message)

    def test_timeout(self) -> None:
        """An attempt that nobody answers is given up after the connect timeout, not earlier."""
        self.endpoint.silent = True
        connecting = self.pool.connect()
        self.clock.advance(4.9)
        self.assertNoResult(connecting)
        self.clock.advance(0.1)
        self.assertIn("within 5 seconds", str(self.failureResultOf(connecting, ReplicaUnreachable).value))
        self.assertEqual(self.endpoint.given_up, 1)

    def test_cancel(self) -> None:
        """Cancelling gives the attempt up and is no fault of the replica's."""
        self.endpoint.silent = True
        connecting = self.pool.connect()
        connecting.cancel()
        self.failureResultOf(connecting, CancelledError)
        self.assertEqual((self.endpoint.given_up, self.clock.getDelayedCalls()), (1, []))

    def test_in_time(self) -> None:
        """An attempt that succeeds leaves no timer behind."""
        self.endpoint.silent = True
        connecting = self.pool.connect()
        self.clock.advance(4.9)
        self.endpoint.accept()
        self.successResultOf(connecting)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class Closing(PoolTestCase):
    def test_empty(self) -> None:
        """Closing a pool without connections is done at once."""
        self.successResultOf(self.pool.close())

    def test_all(self) -> None:
        """Idle and busy connections are closed; everybody who asks learns when the last one is gone."""
        self.warm(2)
        busy = self.connect()
        asked = busy.send(b"GET", b"GET / HTTP/1.1\r\n\r\n", b"")
        closing, again = self.pool.close(), self.pool.close()
        self.assertNoResult(closing)
        self.clock.advance(0)
        self.successResultOf(closing)
        self.successResultOf(again)
        self.assertEqual((self.gone(), self.clock.getDelayedCalls()), ([True] * 3, []))
        asked.addErrback(lambda failure: failure.trap(ReplicaReset))

    def test_late(self) -> None:
        """A connection that becomes idle after the close is not kept."""
        wire = self.connect()
        self.pool._closed = True
        self.use(wire)
        self.assertIsNone(self.pool.take())
        self.assertTrue(self.endpoint.line.aborted)

    def test_made_after(self) -> None:
        """A connection that comes about after the close does not live on."""
        self.endpoint.silent = True
        connecting = self.pool.connect()
        self.successResultOf(self.pool.close())
        line = self.endpoint.accept()
        self.clock.advance(0)
        self.assertTrue(line.gone)
        self.failureResultOf(connecting, ReplicaUnreachable)
