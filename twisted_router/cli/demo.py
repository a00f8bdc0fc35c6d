"""``pypto-router demo``: the real router before simulated replicas, all of which end with this process."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from twisted.application.service import IService
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.error import CannotListenError, ProcessExitedAlready
from twisted.internet.protocol import ProcessProtocol, connectionDone
from twisted.logger import ILogObserver, LogEvent, Logger, LogLevel, formatEvent
from twisted.python import usage
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_router.cli.output import LossyLines
from twisted_router.cli.render import welcome

HOST = "127.0.0.1"
FIRST_PORT = 8000
MODEL = "demo"
#: Seconds a simulated replica has to end before it is killed.
GRACE = 3.0
ACCESS = "twisted_router.access"


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise ValueError(f"--port: expected a port between 1 and 65535, got {text!r}")
    return int(text)


def _replicas(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 32:
        raise ValueError(f"--replicas: expected a number between 1 and 32, got {text!r}")
    return int(text)


class DemoOptions(usage.Options):
    """The command line of ``demo``."""

    synopsis = "[options]"
    longdesc = "Needs no accelerator and no model: the replicas are simulated, the router is the real one."
    optParameters = [
        ["port", None, None, f"The router's port; {FIRST_PORT} or the next free one when not given.", _port],
        ["replicas", None, 2, "Simulated replicas to start.", _replicas],
    ]


@implementer(ILogObserver)
class RequestLines:
    """Shows requests, warnings and errors, one line each; all else is the daemon's business."""

    def __init__(self, screen: LossyLines) -> None:
        self._screen = screen

    def __call__(self, event: LogEvent) -> None:
        """Show one event, or not."""
        level = event.get("log_level", LogLevel.info)
        if event.get("log_namespace") == ACCESS or level >= LogLevel.warn:
            failure = event.get("log_failure")
            cause = "" if failure is None else f": {failure.getErrorMessage()}"
            mark = "" if level < LogLevel.warn else f"{level.name}: "
            self._screen.write(f"{mark}{formatEvent(event)}{cause}".replace("\n", " ") + "\n")


class SimProcess(ProcessProtocol):
    """One simulated replica.

    :ivar ready: fires with its URL; fails when it ends before that.
    :ivar gone: fires when it has ended.
    """

    def __init__(self) -> None:
        self.ready: Deferred[str] = Deferred()
        self.gone: Deferred[None] = Deferred()
        self.pid = 0
        self._ended = False
        self._said = ""

    def connectionMade(self) -> None:
        """The process exists."""
        if self.transport is not None and self.transport.pid is not None:
            self.pid = self.transport.pid

    def outReceived(self, data: bytes) -> None:
        """Look for the line that says where it serves."""
        self._said += data.decode("utf-8", "replace")
        while not self.ready.called and "\n" in self._said:
            line, _, self._said = self._said.partition("\n")
            if line.startswith("ready on "):
                self.ready.callback(line.split()[2])

    def errReceived(self, data: bytes) -> None:
        """Keep what it complains about, to show it when it ends."""
        self._said += data.decode("utf-8", "replace")

    def processEnded(self, reason: Failure = connectionDone) -> None:
        """Tell whoever waits."""
        self._ended = True
        if not self.ready.called:
            self.ready.errback(RuntimeError(self._said.strip() or reason.getErrorMessage()))
        self.gone.callback(None)

    def signal(self, name: str) -> None:
        """Send a signal; nothing when it has ended."""
        if self.transport is None or self._ended:
            return
        try:
            self.transport.signalProcess(name)
        except ProcessExitedAlready:
            return


class Demo:
    """Starts replicas, writes the fleet file, starts the router from it, and ends all that.

    :param make: builds the router from its command line. Raises ``usage.UsageError``.
    :ivar problem: why it could not start, or None.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        screen: LossyLines,
        options: DemoOptions,
        make: Callable[[Sequence[str]], IService],
    ) -> None:
        self.problem: str | None = None
        self.observer = RequestLines(screen)
        self._reactor = reactor
        self._screen = screen
        self._options = options
        self._make = make
        self._sims: dict[str, SimProcess] = {}
        self._router: IService | None = None
        self._directory = tempfile.mkdtemp(prefix="pypto-router-demo-")
        self._ending = False

    def begin(self) -> None:
        """Start; what goes wrong ends the reactor and is left in ``problem``."""
        self._screen.write(f"starting {self._options['replicas']} simulated replicas ...\n")
        Deferred.fromCoroutine(self._begin()).addErrback(self._failed)

    async def _begin(self) -> None:
        port = self._options["port"]
        if port is None:
            port = free_port(FIRST_PORT)
            if port != FIRST_PORT:
                self._screen.write(f"port {FIRST_PORT} is in use, taking {port}\n")
        for index in range(self._options["replicas"]):
            self._spawn(f"sim{index}", index)
        urls = {name: await sim.ready for name, sim in self._sims.items()}
        file = os.path.join(self._directory, "fleet.json")
        with open(file, "w", encoding="utf-8") as fleet:
            json.dump(fleet_file(urls), fleet, indent=2)
        self._start_router(["--replicas", file, "--host", HOST, "--port", str(port), "--access-log"])
        known = {name: (url, self._sims[name].pid) for name, url in urls.items()}
        self._screen.write(welcome(f"http://{HOST}:{port}", MODEL, known, file))

    def _start_router(self, arguments: Sequence[str]) -> None:
        if self._ending:
            return
        router = self._make(arguments)
        router.privilegedStartService()
        self._router = router
        router.startService()

    def _spawn(self, name: str, device: int) -> None:
        sim = self._sims[name] = SimProcess()
        argv = [sys.executable, "-m", "twisted_router.sim", "--die-with-parent", "--host", HOST]
        argv += ["--port", "0", "--model", MODEL, "--devices", str(device)]
        self._reactor.spawnProcess(sim, argv[0], argv, env=None)
        sim.gone.addCallback(self._lost, name)

    def _lost(self, _: None, name: str) -> None:
        if not self._ending:
            self._screen.write(f"{name} has ended\n")

    def _failed(self, failure: Failure) -> None:
        if self._ending:
            return
        self.problem = failure.getErrorMessage()
        if not failure.check(CannotListenError, RuntimeError, usage.UsageError):
            self._log.failure("the demo could not start", failure)
        self._reactor.stop()

    def end(self) -> Deferred[object]:
        """Stop the router in order, then the replicas; fires when all have ended."""
        self._ending = True
        return Deferred.fromCoroutine(self._end())

    def _signal_all(self, name: str) -> None:
        for sim in self._sims.values():
            sim.signal(name)

    async def _end(self) -> None:
        for sim in self._sims.values():
            # One that ends before it was ready is no news any more.
            sim.ready.addErrback(lambda _: "")
        if self._router is not None:
            await maybeDeferred(self._router.stopService)
        self._signal_all("TERM")
        kill = self._reactor.callLater(GRACE, self._signal_all, "KILL")
        await DeferredList([sim.gone for sim in self._sims.values()])
        if kill.active():
            kill.cancel()
        shutil.rmtree(self._directory, ignore_errors=True)


def fleet_file(urls: dict[str, str]) -> dict[str, object]:
    """The configuration for replicas at ``urls``, by name."""
    replicas = []
    for name, url in urls.items():
        host, _, port = url.removeprefix("http://").rpartition(":")
        replicas.append({"name": name, "host": host, "port": int(port)})
    return {"replicas": replicas}


def free_port(first: int) -> int:
    """The first port from ``first`` on that nobody listens on. Raises RuntimeError when 100 are taken."""
    for port in range(first, first + 100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"all ports from {first} to {first + 99} are in use; give one with --port")
