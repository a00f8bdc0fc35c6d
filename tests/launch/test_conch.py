"""Replicas by way of Twisted's own ssh."""

from __future__ import annotations

import os

from twisted.conch.error import ConchError
from twisted.conch.ssh.connection import EXTENDED_DATA_STDERR
from twisted.conch.ssh.transport import (
    DISCONNECT_KEY_EXCHANGE_FAILED,
    DISCONNECT_NO_MORE_AUTH_METHODS_AVAILABLE,
)
from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.config.model import HostConfig
from twisted_router.interfaces import ILauncher
from twisted_router.launch import sentences
from twisted_router.launch.conch import (
    CONNECT_TIMEOUT,
    KEEPALIVE_INTERVAL,
    KEEPALIVES_MISSING,
    LOGIN_TIMEOUT,
    ConchLauncher,
    NotConnected,
    _Channel,
    _Connection,
    _Transport,
)
from twisted_router.launch.conch_keys import Keys
from twisted_router.launch.known_hosts import known_keys
from twisted_router.launch.remote import Ran, Trouble
from twisted_router.launch.scripts import Script

from .contract import LauncherContract
from .processes import ProcessContract
from .ssh_contract import SshContract


class ConchLauncherTests(SshContract, LauncherContract, ProcessContract):
    """The whole contract, over Twisted's own ssh."""

    def ssh_launcher(self, host: HostConfig) -> ILauncher:
        launcher: ILauncher = ConchLauncher(host, reactor)
        return launcher


class KeepaliveTests(SynchronousTestCase):
    """A server that shows no sign of life is given up."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.ready: list[bool] = []
        self.wire = StringTransport()
        self.connection = _Connection(self.clock, lambda: self.ready.append(True))
        self.connection.transport = FakeSSHTransport(self.wire)
        self.connection.serviceStarted()

    def test_silence(self) -> None:
        """Three questions without an answer, and the connection is aborted."""
        self.clock.pump([KEEPALIVE_INTERVAL] * KEEPALIVES_MISSING)
        self.assertFalse(self.wire.disconnected)
        self.clock.advance(KEEPALIVE_INTERVAL)
        self.assertTrue(self.wire.disconnected)

    def test_any_answer_will_do(self) -> None:
        """A server that refuses the question lives."""
        for _ in range(3 * KEEPALIVES_MISSING):
            self.clock.advance(KEEPALIVE_INTERVAL)
            self.connection.ssh_REQUEST_FAILURE(b"")
        self.assertFalse(self.wire.disconnected)

    def test_nothing_is_asked_after_the_end(self) -> None:
        """A stopped connection leaves no timer behind."""
        self.connection.serviceStopped()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class ChannelTests(SynchronousTestCase):
    """One command on a connection ends in every case, and says what is known of it."""

    def setUp(self) -> None:
        self.channel = _Channel(Script(b"true", "tag"))
        self.closed = False

    def ended(self) -> Ran:
        ran: Ran = self.successResultOf(self.channel.done)
        return ran

    def loseConnection(self) -> None:
        self.closed = True

    def test_refused(self) -> None:
        """A server that opens no session has run nothing; its words are told."""
        self.channel.openFailed(Failure(ConchError("administratively prohibited")))
        trouble = self.ended().trouble
        assert trouble is not None
        self.assertTrue(trouble.before)
        self.assertIn("opens no session", trouble.sentence)
        self.assertIn("administratively prohibited", trouble.sentence)

    def test_ended_by_a_signal(self) -> None:
        """A command that a signal ended has ended: its code is not known, and nothing is wrong with ssh."""
        self.channel.request_exit_signal(b"")
        self.channel.closed()
        self.assertEqual(self.ended(), Ran(b"", b"", None))

    def test_lost(self) -> None:
        """A channel that closes without an end may have run everything or nothing."""
        self.channel.dataReceived(b"half")
        self.channel.closed()
        ran = self.ended()
        assert ran.trouble is not None
        self.assertEqual(
            (ran.output, ran.trouble.lost, ran.trouble.before, ran.trouble.sentence),
            (b"half", True, False, sentences.CONNECTION_LOST),
        )

    def test_given_up_before_it_is_open(self) -> None:
        """Given up while the server has not answered yet, it is closed when it opens, and runs nothing."""
        self.channel.loseConnection = self.loseConnection  # type: ignore[method-assign]
        self.channel.done.cancel()
        self.failureResultOf(self.channel.done, CancelledError)
        self.assertFalse(self.closed)
        self.channel.channelOpen(b"")
        self.assertTrue(self.closed)

    def test_standard_error_only(self) -> None:
        """Of other streams than standard error nothing is kept."""
        self.channel.extReceived(EXTENDED_DATA_STDERR, b"oops")
        self.channel.extReceived(7, b"what is this")
        self.channel.request_exit_status(b"\0\0\0\3")
        self.channel.closed()
        self.assertEqual(self.ended(), Ran(b"", b"oops", 3))


class LossTests(SynchronousTestCase):
    """A connection that ends before it can be used says why."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.transport = _Transport(self.clock, "me", Keys([], [], None), known_keys("", "h", 22))
        self.transport.makeConnection(StringTransport())

    def lost(self) -> str:
        self.transport.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.clock.getDelayedCalls(), [])
        return str(self.failureResultOf(self.transport.ready, NotConnected).value)

    def test_too_many_keys(self) -> None:
        """A server that has seen enough keys has refused ours."""
        self.transport.receiveError(2, b"Too many authentication failures")
        self.assertEqual(self.lost(), sentences.KEY_REFUSED)

    def test_the_servers_words(self) -> None:
        """Anything else that a server says before it hangs up is told as it said it."""
        self.transport.receiveError(11, "gehe später".encode())
        self.assertEqual(self.lost(), "its ssh server hangs up: gehe später")

    def test_no_algorithm(self) -> None:
        """Without an algorithm in common there is no connection."""
        self.transport.sendDisconnect(DISCONNECT_KEY_EXCHANGE_FAILED, b"no match")
        self.assertEqual(self.lost(), "it has no algorithm in common with us")

    def test_the_first_reason(self) -> None:
        """What went wrong first is the reason, not what followed from it."""
        self.transport.sendDisconnect(DISCONNECT_NO_MORE_AUTH_METHODS_AVAILABLE, b"")
        self.transport.receiveError(2, b"bye")
        self.assertEqual(self.lost(), sentences.KEY_REFUSED)

    def test_without_a_word(self) -> None:
        """A server that just hangs up is told as well."""
        self.assertIn("its ssh server hangs up", self.lost())

    def test_no_greeting(self) -> None:
        """One that connects and says nothing is given up after the connect timeout."""
        self.clock.advance(CONNECT_TIMEOUT)
        self.assertEqual(self.lost(), sentences.SILENT)


class LoginTests(SynchronousTestCase):
    """What comes between an address and a connection that can be used; no step waits for ever."""

    def setUp(self) -> None:
        self.patch(os, "environ", {"HOME": self.mktemp()})
        self.clock = MemoryReactorClock()
        host = HostConfig("n", (0,), ssh="ssh://me@127.0.0.1:2222", known_hosts="/no/such/file")
        self.launcher = ConchLauncher(host, self.clock)

    def run_script(self) -> Deferred[Ran]:
        return self.launcher._run_script(Script(b"true", "tag"), 60.0)

    def connect(self) -> StringTransport:
        ((address, port, factory, *_),) = self.clock.tcpClients
        self.assertEqual((address, port), ("127.0.0.1", 2222))
        self.protocol = factory.buildProtocol(None)
        wire = StringTransport()
        self.protocol.makeConnection(wire)
        return wire

    def trouble(self, running: Deferred[Ran]) -> Trouble:
        ran = self.successResultOf(running)
        assert ran.trouble is not None
        return ran.trouble

    def test_no_login(self) -> None:
        """A server that greets and goes no further is given up, and nothing has run."""
        running = self.run_script()
        wire = self.connect()
        wire.value()
        self.protocol.dataReceived(b"SSH-2.0-Sleepy\r\n")
        self.clock.advance(LOGIN_TIMEOUT)
        self.assertEqual(
            self.trouble(running), Trouble(f"{sentences.SILENT}: no login within 10 s", before=True)
        )
        self.assertTrue(wire.disconnected)

    def test_no_answer(self) -> None:
        """So is an address that does not answer."""
        running = self.run_script()
        self.clock.advance(CONNECT_TIMEOUT)
        self.assertEqual(self.trouble(running), Trouble(f"{sentences.UNREACHABLE}: no answer", before=True))

    def test_cancelled(self) -> None:
        """Who gives up while it connects is told nothing more, and no connection is kept."""
        running = self.run_script()
        running.cancel()
        self.failureResultOf(running, CancelledError)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_lost_meanwhile(self) -> None:
        """A connection that is lost before a command could be sent may be made anew: nothing has run."""
        transport = _Transport(self.clock, "me", Keys([], [], None), known_keys("", "h", 22))
        transport.lost = True
        trouble = self.trouble(self.launcher._execute(transport, Script(b"true", "tag"), 60.0))
        self.assertEqual((trouble.before, trouble.lost), (True, True))


class FakeSSHTransport:
    """As much of an ssh transport as a connection needs."""

    def __init__(self, wire: StringTransport) -> None:
        self.transport = wire
        self.sent: list[int] = []

    def sendPacket(self, kind: int, payload: bytes) -> None:
        self.sent.append(kind)


del LauncherContract, ProcessContract, SshContract
