"""Noticing the end of a process that is not our child."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFDSet, IReadDescriptor
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from .proc import Process, is_alive

#: Seconds between looks where the kernel cannot tell us.
LOOK_INTERVAL = 1.0

_log = Logger()


@implementer(IReadDescriptor)
class _PidDescriptor:
    """A pidfd as the reactor sees it: readable once the process has ended (pidfd_open(2))."""

    def __init__(self, reactor: Any, descriptor: int) -> None:
        self.ended: Deferred[None] = Deferred(lambda _: self._close())
        self._descriptor = descriptor
        self._reactor = IReactorFDSet(reactor)
        self._reactor.addReader(self)

    def fileno(self) -> int:
        return self._descriptor

    def logPrefix(self) -> str:
        return "pidfd"

    def doRead(self) -> None:
        self._close()
        self.ended.callback(None)

    def connectionLost(self, reason: Failure) -> None:
        """The reactor shuts down; nobody is told anything."""
        self._close()

    def _close(self) -> None:
        if self._descriptor >= 0:
            self._reactor.removeReader(self)
            os.close(self._descriptor)
            self._descriptor = -1


def process_end(reactor: Any, process: Process) -> Deferred[None]:
    """Fire when this very process has ended, at once if it already has. Cancelling ends the watch."""
    try:
        descriptor = os.pidfd_open(process.pid, os.O_NONBLOCK)
    except OSError:
        # It is gone, or the kernel is too old, or descriptors have run out.
        return looked_for(reactor, lambda: is_alive(process))
    if not is_alive(process):
        os.close(descriptor)
        return looked_for(reactor, lambda: False)
    return _PidDescriptor(reactor, descriptor).ended


def looked_for(reactor: Any, is_there: Callable[[], bool]) -> Deferred[None]:
    """Fire as soon as a look, one each second, finds nothing there. Cancelling ends the looking."""
    call = LoopingCall(lambda: None)
    ended: Deferred[None] = Deferred(lambda _: call.stop())

    def look() -> None:
        if not is_there():
            call.stop()
            ended.callback(None)

    call.f = look
    call.clock = reactor
    call.start(LOOK_INTERVAL).addErrback(
        lambda failure: _log.failure("looking for a process failed", failure)
    )
    return ended
