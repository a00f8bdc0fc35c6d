"""What is concluded from the answers of another machine, and from their absence."""

from __future__ import annotations

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.config.model import HostConfig
from twisted_router.core.slots import Handle, Slot
from twisted_router.errors import LaunchFailed, LaunchUncertain, StopUnconfirmed
from twisted_router.launch import port
from twisted_router.launch.remote import LOOK_INTERVAL, Ran, RemoteLauncher, Trouble
from twisted_router.launch.scripts import Script

SLOT = Slot("n-d0", "n", (0,), "127.0.0.1", 8001)
HANDLE = Handle("n-d0", "one", 7, "70.boot", "/logs/n-d0.log")
LOST = Trouble("the connection was lost", before=False, lost=True)


def facts(*told: str, end: bool = True) -> tuple[str, ...]:
    return ("begin", *told, *(["end"] if end else []))


class OverThere:
    """Another machine: answers one script after the other with what is in ``answers``."""

    def __init__(self, *answers: tuple[str, ...] | Trouble | int) -> None:
        self.answers = list(answers)
        self.scripts: list[Script] = []

    def run(self, script: Script, timeout: float) -> Deferred[Ran]:
        self.scripts.append(script)
        answer = self.answers.pop(0)
        if isinstance(answer, Trouble):
            return succeed(Ran(b"", b"", None, answer))
        if isinstance(answer, int):
            return succeed(Ran(b"", b"first line\nlast line\n", answer))
        return succeed(Ran("".join(f"@{script.tag} {line}\n" for line in answer).encode(), b"", 0))


class Remote(SynchronousTestCase):
    """A launcher whose machine is scripted."""

    def launcher(
        self, over_there: OverThere, clock: Clock | None = None, **settings: object
    ) -> RemoteLauncher:
        host = HostConfig("n", (0,), model="/m", ssh="me@node", **settings)  # type: ignore[arg-type]
        return RemoteLauncher(host, clock or MemoryReactorClock(), over_there.run, lambda: succeed(None))


class LaunchTests(Remote):
    """How a launch ended over there."""

    def told(self, *answers: tuple[str, ...] | Trouble | int) -> Deferred[Handle]:
        reactor = MemoryReactorClock()
        launch = self.launcher(OverThere(*answers), reactor).launch(SLOT, "one")
        reactor.advance(port.PATIENCE)  # nobody takes the connection that looks for a stranger
        return launch

    def test_launched(self) -> None:
        """Pid, start time and the whole log path make the handle."""
        handle = self.successResultOf(self.told(facts("log_path /logs/n-d0.log", "pid 7 70.boot")))
        self.assertEqual(handle, HANDLE)

    def test_submitted(self) -> None:
        """A wrapper that ended well leaves a handle without a process."""
        handle = self.successResultOf(self.told(facts("log_path /logs/n-d0.log", "submitted")))
        self.assertEqual((handle.pid, handle.started, handle.log_path), (None, None, "/logs/n-d0.log"))

    def test_failures(self) -> None:
        """What is certain to have left nothing is LaunchFailed, with the reason and the last lines."""
        cases: tuple[tuple[tuple[str, ...] | Trouble | int, str], ...] = (
            (facts("refused no room"), "slot n-d0 on me@node: no room"),
            (
                facts("exited 1", "log"),
                "slot n-d0 on me@node: pypto-serving exited with code 1 at once",
            ),
            (
                facts("exited 139", "log"),
                "slot n-d0 on me@node: pypto-serving was killed by SIGSEGV at once",
            ),
            (Trouble("it is down", before=True), "slot n-d0 on me@node: it is down"),
            (1, "slot n-d0 on me@node: the remote shell exited with code 1: last line"),
        )
        for answer, sentence in cases:
            error = self.failureResultOf(self.told(answer), LaunchFailed).value
            self.assertIs(type(error), LaunchFailed, sentence)
            self.assertEqual(str(error), sentence)

    def test_doubts(self) -> None:
        """A script whose end was not seen may have launched, and is not run a second time."""
        for answer in (LOST, facts(end=False)):
            self.failureResultOf(self.told(answer, facts("pid 7 70.boot")), LaunchUncertain)


class StopTests(Remote):
    """What proves a stop."""

    def stopped(self, *answers: tuple[str, ...] | Trouble | int) -> Deferred[None]:
        return self.launcher(OverThere(*answers)).stop(SLOT, "one", HANDLE, 1.0)

    def test_proved(self) -> None:
        """Only the script's own word does."""
        self.assertIsNone(self.successResultOf(self.stopped(facts("stopped"))))

    def test_not_proved(self) -> None:
        """Everything else is unconfirmed, silence included."""
        for answer in (facts("failed its lock is held"), facts(), Trouble("it is down", before=True), 1):
            self.failureResultOf(self.stopped(answer), StopUnconfirmed)

    def test_a_lost_connection_is_tried_once_more(self) -> None:
        """A stop can run twice: the second one may prove it; if it cannot, the first trouble is told."""
        self.assertIsNone(self.successResultOf(self.stopped(LOST, facts("stopped"))))
        error = self.failureResultOf(self.stopped(LOST, Trouble("it is down", before=True)), StopUnconfirmed)
        self.assertIn("connection was lost", error.getErrorMessage())


class WatchTests(Remote):
    """Looking at all watched processes of a host at once."""

    def test_gone(self) -> None:
        """Those told as gone fire, others wait, and a failed look shows nothing."""
        clock = Clock()
        other = Handle("n-d1", "two", 8, "80.boot", "/logs/n-d1.log")
        over_there = OverThere(facts(), LOST, facts("gone 7:70.boot"))
        launcher = self.launcher(over_there, clock)
        watches = [launcher.watch(HANDLE), launcher.watch(other)]
        clock.advance(LOOK_INTERVAL)
        self.assertNoResult(watches[0])
        clock.advance(LOOK_INTERVAL)
        self.assertEqual(self.successResultOf(watches[0]), "process 7 on me@node is gone")
        self.assertNoResult(watches[1])
        self.assertEqual(len(over_there.scripts), 3)
        launcher.close()
        self.failureResultOf(watches[1])
        self.assertEqual(clock.getDelayedCalls(), [])

    def test_what_cannot_be_seen(self) -> None:
        """Without a process, or behind a wrapper, nobody looks."""
        clock = Clock()
        self.launcher(OverThere(), clock).watch(Handle("n-d0", "one", None, None, "/l"))
        self.launcher(OverThere(), clock, launch_wrapper=("w",)).watch(HANDLE)
        self.assertEqual(clock.getDelayedCalls(), [])
