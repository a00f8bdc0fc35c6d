"""Replicas by way of Twisted's own ssh."""

from __future__ import annotations

from twisted.internet import reactor
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.config.model import HostConfig
from twisted_router.interfaces import ILauncher
from twisted_router.launch.conch import KEEPALIVE_INTERVAL, KEEPALIVES_MISSING, ConchLauncher, _Connection

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


class FakeSSHTransport:
    """As much of an ssh transport as a connection needs."""

    def __init__(self, wire: StringTransport) -> None:
        self.transport = wire
        self.sent: list[int] = []

    def sendPacket(self, kind: int, payload: bytes) -> None:
        self.sent.append(kind)


del LauncherContract, ProcessContract, SshContract
