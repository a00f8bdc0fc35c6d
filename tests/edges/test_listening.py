"""Accepting, and failing to."""

from __future__ import annotations

import errno
import os
import socket

from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.web.listening import PAUSE, PatientPort

OVER = Failure(ConnectionDone())


class Descriptors(Clock):
    """A reactor that only remembers what it is to watch."""

    def __init__(self) -> None:
        super().__init__()
        self.watched: list[object] = []

    def addReader(self, reader: object) -> None:
        if reader not in self.watched:
            self.watched.append(reader)

    def removeReader(self, reader: object) -> None:
        if reader in self.watched:
            self.watched.remove(reader)

    removeWriter = removeReader
    addWriter = addReader


class Broken:
    """A listening socket that cannot accept any more."""

    def __init__(self, whole: socket.socket) -> None:
        self._whole = whole
        self.tried = 0

    def accept(self) -> None:
        self.tried += 1
        raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))

    def __getattr__(self, name: str) -> object:
        return getattr(self._whole, name)


class PatientPortTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.reactor = Descriptors()
        self.made: list[Protocol] = []
        self.port = PatientPort(
            0, Factory.forProtocol(self.protocol), 64, "127.0.0.1", self.reactor, at_once=4
        )
        self.port.factory.noisy = False
        self.port.startListening()
        self.addCleanup(self.port.connectionLost, OVER)
        self.clients: list[socket.socket] = []

    def protocol(self) -> Protocol:
        self.made.append(Protocol())
        return self.made[-1]

    def come(self, count: int) -> None:
        for _ in range(count):
            client = socket.create_connection(("127.0.0.1", self.port.getHost().port))
            self.addCleanup(client.close)

    def end(self) -> None:
        for made in self.made:
            made.transport.connectionLost(OVER)

    def test_few_at_once(self) -> None:
        """One turn takes so many and no more, however many turns there have been before."""
        self.come(20)
        self.addCleanup(self.end)
        for turn in range(1, 6):
            self.port.doRead()
            self.assertEqual(len(self.made), 4 * turn)

    def test_in_vain(self) -> None:
        """When accepting fails it is not tried all the time, and goes on when it can again."""
        self.come(1)
        whole, self.port.socket = self.port.socket, Broken(self.port.socket)
        for _ in range(2):
            self.assertIn(self.port, self.reactor.watched)
            self.port.doRead()
        self.assertNotIn(self.port, self.reactor.watched)
        self.port.socket = whole
        self.reactor.advance(PAUSE)
        self.assertIn(self.port, self.reactor.watched)
        self.addCleanup(self.end)
        self.port.doRead()
        self.assertEqual(len(self.made), 1)

    def test_left_meanwhile(self) -> None:
        """One turn without a client is no reason to wait."""
        for _ in range(3):
            self.port.doRead()
            self.assertIn(self.port, self.reactor.watched)
            self.come(1)
            self.port.doRead()
        self.addCleanup(self.end)
        self.assertEqual(len(self.made), 3)

    def test_closed(self) -> None:
        """A port that is closed while it waits leaves no timer behind."""
        whole, self.port.socket = self.port.socket, Broken(self.port.socket)
        self.port.doRead()
        self.port.doRead()
        self.port.socket = whole
        self.assertEqual(len(self.reactor.getDelayedCalls()), 1)
        self.port.connectionLost(OVER)
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.port.startListening()
