"""Real programs as the subject of a test: started, watched, and ended with the test."""

from __future__ import annotations

import random
import socket
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase


class Watched(ProcessProtocol):
    """A child with what it wrote; ``ended`` fires with its exit code, or its signal as a negative number."""

    def __init__(self) -> None:
        self.out = b""
        self.err = b""
        self.ended: Deferred[int] = Deferred()
        self._awaited: list[tuple[bytes, Deferred[None]]] = []

    def wrote(self, words: bytes) -> Deferred[None]:
        """Fires once the output, of either kind, holds ``words``."""
        waiter: Deferred[None] = Deferred()
        self._awaited.append((words, waiter))
        self._look()
        return waiter

    def signal(self, name: str) -> None:
        """Send a signal; nothing when the child has ended."""
        try:
            self.transport.signalProcess(name)
        except ProcessExitedAlready:
            pass

    def outReceived(self, data: bytes) -> None:
        self.out += data
        self._look()

    def errReceived(self, data: bytes) -> None:
        self.err += data
        self._look()

    def processEnded(self, reason: Failure) -> None:
        for words, waiter in self._awaited:
            waiter.errback(AssertionError(f"ended without {words!r}: {self.out!r} {self.err!r}"))
        if reason.check(ProcessDone):
            self.ended.callback(0)
            return
        ended = reason.value
        assert isinstance(ended, ProcessTerminated)
        self.ended.callback(-ended.signal if ended.signal else ended.exitCode)

    def _look(self) -> None:
        for words, waiter in list(self._awaited):
            if words in self.out or words in self.err:
                self._awaited.remove((words, waiter))
                waiter.callback(None)


def start(
    case: TestCase,
    *argv: str,
    fds: Mapping[int, str | int] | None = None,
    env: Mapping[str, str] | None = None,
) -> Watched:
    """Start this Python with ``argv``; killed at the end of ``case`` when it still runs then.

    ``env`` None means our own environment.
    """
    watched = Watched()
    reactor.spawnProcess(
        watched, sys.executable, [sys.executable, *argv], env=None if env is None else dict(env),
        childFDs=dict(fds or {0: "w", 1: "r", 2: "r"}),
    )  # fmt: skip

    def end() -> Deferred[int]:
        watched.signal("KILL")
        over: Deferred[int] = Deferred()
        watched.ended.addBoth(over.callback)
        return over

    case.addCleanup(end)
    return watched


def free_ports(count: int) -> int:
    """The first of ``count`` free ports in a row, out of the range that outgoing connections are given."""
    while True:
        first = random.randrange(10000, 30000)
        with ExitStack() as probes, suppress(OSError):
            for port in range(first, first + count):
                probes.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
