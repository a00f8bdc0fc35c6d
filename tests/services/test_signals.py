from __future__ import annotations

import os
import signal
from collections.abc import Callable

from twisted.internet.error import ReactorNotRunning
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.services.signals import Signals


class Reactor:
    """Records what it is asked; runs nothing until told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        self.starting: list[Callable[..., object]] = []
        self.triggers: list[tuple[str, str, Callable[..., object]]] = []
        self.stops = 0

    def callFromThread(self, callable: Callable[..., object], *args: object) -> None:
        self.calls.append((callable, args))

    def callWhenRunning(self, callable: Callable[..., object], *args: object) -> object:
        self.starting.append(callable)
        return None

    def addSystemEventTrigger(self, phase: str, event: str, callable: Callable[..., object], /) -> object:
        self.triggers.append((phase, event, callable))
        return None

    def stop(self) -> None:
        self.stops += 1
        if self.stops > 1:
            raise ReactorNotRunning

    def turn(self) -> None:
        calls, self.calls = self.calls, []
        for call, args in calls:
            call(*args)


class Router:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def hasten(self) -> None:
        self.asked.append("hasten")

    def leave_running(self) -> None:
        self.asked.append("leave running")


class SignalsTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        self.reactor = Reactor()
        self.router = Router()
        self.signals = Signals(self.reactor, self.router)
        self.signals.install()

    def send(self, number: int) -> None:
        os.kill(os.getpid(), number)
        self.reactor.turn()


class Acting(SignalsTestCase):
    def test_first(self) -> None:
        """The first TERM, INT or HUP stops the reactor in order and asks nothing else."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self.setUp()
            self.send(number)
            self.assertEqual((self.reactor.stops, self.router.asked), (1, []))

    def test_second(self) -> None:
        """Each further signal hastens and does not stop the reactor again."""
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            self.send(number)
        self.assertEqual((self.reactor.stops, self.router.asked), (1, ["hasten", "hasten"]))

    def test_quit(self) -> None:
        """QUIT leaves the replicas running, and says so before anything is stopped."""
        stopped_before: list[int] = []
        self.router.leave_running = (  # type: ignore[method-assign]
            lambda: stopped_before.append(self.reactor.stops)
        )
        self.send(signal.SIGQUIT)
        self.assertEqual((stopped_before, self.reactor.stops), ([0], 1))

    def test_already_stopping(self) -> None:
        """When something else has stopped the reactor, the first signal hastens."""
        self.reactor.stops = 1
        self.send(signal.SIGTERM)
        self.assertEqual(self.router.asked, ["hasten"])

    def test_not_in_the_handler(self) -> None:
        """A handler runs between any two instructions, so it only hands the signal to the reactor."""
        os.kill(os.getpid(), signal.SIGTERM)
        self.assertEqual((self.reactor.stops, len(self.reactor.calls)), (0, 1))


class Installing(SignalsTestCase):
    def test_again_when_running(self) -> None:
        """A starting reactor installs handlers of its own; ours come back once it runs."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (claim,) = self.reactor.starting
        claim()
        self.send(signal.SIGTERM)
        self.assertEqual(self.reactor.stops, 1)

    def test_nohup(self) -> None:
        """A router that was started to outlive its terminal does."""
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        Signals(self.reactor, self.router).install()
        self.reactor.starting[-1]()
        self.assertEqual(signal.getsignal(signal.SIGHUP), signal.SIG_IGN)

    def test_after_the_end(self) -> None:
        """When all is stopped a late signal changes nothing, the exit code included."""
        ((phase, event, ignore),) = self.reactor.triggers
        self.assertEqual((phase, event), ("after", "shutdown"))
        ignore()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            self.assertEqual(signal.getsignal(number), signal.SIG_IGN)
