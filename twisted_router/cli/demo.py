"""``pypto-router demo``: the real router, which launches simulated replicas; all ends with this process."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessExitedAlready, ProcessTerminated
from twisted.internet.protocol import ProcessProtocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_router.cli.command import CommandOptions
from twisted_router.cli.render import arrival, news, welcome
from twisted_router.cli.tether import hold
from twisted_router.disk import remove_left
from twisted_router.output import LossyLines

HOST = "127.0.0.1"
FIRST_PORT = 8000
MODEL = "demo"
PREFIX = "pypto-router-demo-"
LOCK = "demo.lock"
#: How often a router that was killed is started again.
RESTARTS = 5
#: Seconds the router has to end before it is killed, more than ``FLAGS`` lets it take.
PATIENCE = 30.0

#: Everything happens sooner than in earnest, so that one can watch it.
FLAGS = (
    *("--health-interval", "1", "--replace-after", "2", "--launch-timeout", "60"),
    *("--drain-timeout", "10", "--stop-grace", "5", "--access-log"),
)
SIM_FLAGS = ("--load-time", "2", "--prefill-rate", "500", "--step-ms", "10")


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise ValueError(f"--port: expected a port between 1 and 65535, got {text!r}")
    return int(text)


def _replicas(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 32:
        raise ValueError(f"--replicas: expected a number between 1 and 32, got {text!r}")
    return int(text)


class DemoOptions(CommandOptions):
    """The command line of ``demo``."""

    synopsis = "[options]"
    longdesc = "Needs no accelerator and no model: the replicas are simulated, the router is the real one."
    optParameters = [
        ["port", None, None, f"The router's port; {FIRST_PORT} or the next free one when not given.", _port],
        ["replicas", None, 2, "Replicas to launch; there is one slot more, to grow into.", _replicas],
    ]


class NoDemo(Exception):
    """Why there can be none, in a sentence."""


@frozen
class Workshop:
    """Where one demo works.

    :ivar directory: its own, with all its files.
    :ivar port_base: the port of the first replica.
    :ivar replicas: how many are launched; there is one device more.
    """

    directory: Path
    port: int
    port_base: int
    replicas: int

    @property
    def lock(self) -> Path:
        """What everything that the demo starts is tied to."""
        return self.directory / LOCK

    @property
    def slots(self) -> dict[str, str]:
        """The URL of each slot, by its name."""
        return {f"sim-d{n}": f"http://{HOST}:{self.port_base + n}" for n in range(self.replicas + 1)}

    def fleet(self) -> dict[str, object]:
        """The configuration: one host, this machine."""
        command = [sys.executable, "-m", "twisted_router.cli.tether", str(self.lock), "twisted_router.sim"]
        command += ["--host", "{host}", "--port", "{port}", "--model", "{model}", "--devices", "{devices}"]
        host = {
            "name": "sim",
            "devices": list(range(self.replicas + 1)),
            "port_base": self.port_base,
            "model": MODEL,
            "command": [*command, *SIM_FLAGS],
        }
        return {"hosts": [host]}

    def router(self) -> list[str]:
        """The router's argv."""
        tether = [sys.executable, "-m", "twisted_router.cli.tether", str(self.lock)]
        return [
            *(*tether, "twisted_router.cli.main", "serve", "--host", HOST, "--port", str(self.port)),
            *("--replicas", str(self.directory / "fleet.json"), "--initial-replicas", str(self.replicas)),
            *("--state-file", str(self.directory / "state.json"), *FLAGS),
        ]


class RouterProcess(ProcessProtocol):
    """One run of the router.

    :param tell: is given each line it writes.
    :ivar gone: fires with its exit code, None when it was killed, once it has ended and all is read.
    """

    def __init__(self, tell: Callable[[str], object]) -> None:
        self.gone: Deferred[int | None] = Deferred()
        self.pid = 0
        self._tell = tell
        self._rest: dict[int, bytes] = {}
        self._ended = False

    def connectionMade(self) -> None:
        """The process exists."""
        if self.transport is not None and self.transport.pid is not None:
            self.pid = self.transport.pid

    def childDataReceived(self, childFD: int, data: bytes) -> None:
        """Pass on what are whole lines by now."""
        *lines, self._rest[childFD] = (self._rest.get(childFD, b"") + data).split(b"\n")
        for line in lines:
            self._tell(line.decode("utf-8", "replace"))

    def processEnded(self, reason: Failure = connectionDone) -> None:
        """Tell whoever waits."""
        self._ended = True
        how = reason.value
        self.gone.callback(how.exitCode if isinstance(how, ProcessTerminated) else 0)

    def signal(self, name: str) -> None:
        """Send a signal; nothing when it has ended."""
        if self.transport is None or self._ended:
            return
        try:
            self.transport.signalProcess(name)
        except ProcessExitedAlready:
            return


class Demo:
    """Starts the router, starts it again when it is killed, and ends all of it.

    :ivar problem: why it could not start or go on, or None.
    """

    _log = Logger()

    def __init__(self, reactor: Any, screen: LossyLines, options: DemoOptions) -> None:
        self.problem: str | None = None
        self._reactor = reactor
        self._screen = screen
        self._options = options
        self._workshop: Workshop | None = None
        self._router: RouterProcess | None = None
        self._ready: set[str] = set()
        self._said = ""
        self._greeted = False
        self._restarts = 0
        self._ending = False

    def begin(self) -> None:
        """Start; what goes wrong ends the reactor and is left in ``problem``."""
        try:
            remove_left(tempfile.gettempdir(), PREFIX, LOCK)
            shop = self._workshop = prepare(self._options, self._screen)
        except (NoDemo, OSError) as problem:
            self._give_up(str(problem))
            return
        self._screen.write(f"starting the router, which launches {shop.replicas} simulated replicas ...\n")
        self._start(shop)

    def _start(self, shop: Workshop) -> None:
        # A token of the user's own would only be in the way: the router listens on loopback.
        environ = {key: value for key, value in os.environ.items() if not key.startswith("PYPTO_ROUTER_")}
        argv = shop.router()
        self._ready = set()
        router = self._router = RouterProcess(self._heard)
        self._reactor.spawnProcess(router, argv[0], argv, env=environ)
        (shop.directory / "router.pid").write_text(f"{router.pid}\n")
        router.gone.addCallback(self._router_ended, router, shop)
        router.gone.addErrback(lambda failure: self._log.failure("the demo broke", failure))

    def _heard(self, line: str) -> None:
        """Show one line of the router, and the welcome once the first replicas are all there."""
        shown = news(line)
        if shown is not None:
            self._said = shown
            self._screen.write(shown + "\n")
        name, shop = arrival(line), self._workshop
        if name is None or shop is None:
            return
        self._ready.add(name)
        if not self._greeted and len(self._ready) == shop.replicas:
            self._greeted = True
            url = f"http://{HOST}:{shop.port}"
            self._screen.write("\n" + welcome(url, MODEL, shop.slots, str(shop.directory)))

    def _router_ended(self, code: int | None, router: RouterProcess, shop: Workshop) -> None:
        if self._ending:
            return
        how = "was killed" if code is None else f"exited with code {code}"
        if code is not None and not self._ready:
            self._give_up(f"the router {how}: {self._said}")
        elif self._restarts == RESTARTS:
            self._give_up(f"the router {how} once more, after {RESTARTS} restarts")
        else:
            self._restarts += 1
            self._screen.write(f"the router (process {router.pid}) {how}, starting it again\n")
            self._start(shop)

    def _give_up(self, why: str) -> None:
        self.problem = why
        self._ending = True
        self._reactor.stop()

    def interrupted(self) -> None:
        """Act on a signal: end in order, and at a second one wait for nothing."""
        if not self._ending:
            self._ending = True
            self._screen.write("ending ...\n")
            self._reactor.stop()
        elif self._router is not None:
            self._router.signal("TERM")

    def end(self) -> Deferred[None]:
        """Have the router stop its replicas and end; fires when it has and the files are gone."""
        self._ending = True
        return Deferred.fromCoroutine(self._end())

    async def _end(self) -> None:
        router = self._router
        if router is not None:
            router.signal("TERM")
            kill = self._reactor.callLater(PATIENCE, router.signal, "KILL")
            await router.gone
            if kill.active():
                kill.cancel()
        if self._workshop is not None:
            shutil.rmtree(self._workshop.directory, ignore_errors=True)


def prepare(options: DemoOptions, screen: LossyLines) -> Workshop:
    """Choose ports, make the directory, hold it and write the fleet file.

    :raises NoDemo: a port that was asked for is taken, or no other is free.
    """
    replicas = options["replicas"]
    port = options["port"]
    if port is None:
        port = free_ports(FIRST_PORT)
        _say_moved(screen, FIRST_PORT, port)
    elif not is_free(port):
        raise NoDemo(f"port {port} is in use; without --port the next free one is taken")
    first = (port if port < 60000 else FIRST_PORT) + 1
    port_base = free_ports(first, replicas + 1)
    _say_moved(screen, first, port_base)
    directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{port}-"))
    shop = Workshop(directory, port, port_base, replicas)
    # Held until this process ends, in whatever way.
    hold(str(shop.lock))
    (directory / "fleet.json").write_text(json.dumps(shop.fleet(), indent=2))
    return shop


def _say_moved(screen: LossyLines, wanted: int, taken: int) -> None:
    if taken != wanted:
        screen.write(f"port {wanted} is in use, taking {taken}\n")


def is_free(port: int) -> bool:
    """Whether nobody listens on a port of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_ports(first: int, count: int = 1) -> int:
    """The first of ``count`` free ports in a row, from ``first`` on. Raises NoDemo when none are near."""
    run = 0
    for port in range(first, min(first + 200, 65536)):
        run = run + 1 if is_free(port) else 0
        if run == count:
            return port - count + 1
    raise NoDemo(f"there are not {count} free ports in a row from {first} on; give another --port")
