"""What the operating system's signals mean to a running router."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Protocol

from twisted.internet.error import ReactorNotRunning
from twisted.logger import Logger


class SignalReactor(Protocol):
    """What these handlers need of the reactor."""

    def callFromThread(self, callable: Callable[..., object], *args: object) -> None:
        """Call in the reactor's next turn; safe inside a signal handler."""

    def callWhenRunning(self, callable: Callable[..., object], *args: object) -> object:
        """Call once the reactor runs."""

    def addSystemEventTrigger(self, phase: str, event: str, callable: Callable[..., object], /) -> object:
        """Call in a phase of an event of the reactor's life."""

    def stop(self) -> None:
        """Shut down: services are stopped and awaited first."""


class Stoppable(Protocol):
    """What a signal can ask of the router."""

    def hasten(self) -> None:
        """Wait no longer for whatever the stopping router waits for now."""

    def leave_running(self) -> None:
        """Do not stop the launched replicas when the router stops."""


class Signals:
    """TERM, INT and HUP stop the router in order, QUIT leaves its replicas running, a further signal hastens.

    HUP is a closed terminal; a router started under nohup, which ignores it, goes on ignoring it.

    Twisted's own handlers make the process end as if killed by the signal and ignore a second one, so they
    are replaced: once when asked to and, because a starting reactor installs its own, once it runs.
    """

    _log = Logger()
    _numbers: tuple[int, ...] = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)

    def __init__(self, reactor: SignalReactor, router: Stoppable) -> None:
        self._reactor = reactor
        self._router = router
        self._stopping = False
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            self._numbers = (*self._numbers, signal.SIGHUP)

    def install(self) -> None:
        """Handle the signals from now on; also when the reactor has started meanwhile.

        Once everything has stopped they are ignored: the interpreter takes its handlers away before it is
        gone, and one more Ctrl-C would turn the exit code 0 into a death by signal.
        """
        self._claim()
        self._reactor.callWhenRunning(self._claim)
        self._reactor.addSystemEventTrigger("after", "shutdown", self._ignore)

    def _claim(self) -> None:
        for number in self._numbers:
            signal.signal(number, self._interrupted)

    def _ignore(self) -> None:
        for number in self._numbers:
            signal.signal(number, signal.SIG_IGN)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        """Run between any two instructions of the program, so only pass it on to the reactor."""
        self._reactor.callFromThread(self.received, number)

    def received(self, number: int) -> None:
        """Act on one signal, in the reactor's own turn."""
        name = signal.Signals(number).name
        if number == signal.SIGQUIT:
            self._router.leave_running()
        if self._stopping:
            self._log.warn("got {signal} again, hastening", signal=name)
            self._router.hasten()
            return
        self._stopping = True
        self._log.info("got {signal}, stopping", signal=name)
        try:
            self._reactor.stop()
        except ReactorNotRunning:
            self._router.hasten()
