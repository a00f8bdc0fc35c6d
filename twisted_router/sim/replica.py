"""The simulated replica as a process: flags in, a listening port out, and a good citizen as a child."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from errno import EADDRINUSE
from typing import TYPE_CHECKING, cast

from attrs import define
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import (
    IAddress,
    IListeningPort,
    IReactorCore,
    IReactorFDSet,
    IReactorTCP,
    IReactorTime,
)
from twisted.logger import (
    FilteringLogObserver,
    LogLevel,
    LogLevelFilterPredicate,
    globalLogBeginner,
    textFileLogObserver,
)
from twisted.python import usage

from twisted_router.sim.driver import Driver
from twisted_router.sim.engine import CostModel, Engine, Limits
from twisted_router.sim.options import SimOptions
from twisted_router.sim.routes import Faults, Identity, QuietSite, Replica

if TYPE_CHECKING:
    from twisted_router import zeromq
    from twisted_router.sim.publishing import Publisher

EX_USAGE = 2
EX_UNAVAILABLE = 69
_PR_SET_PDEATHSIG = 1
#: Seconds that the child of ``--fork-child`` lives when nobody ends it.
_CHILD_LIFE = 600


class IReactor(IReactorTCP, IReactorTime, IReactorCore, IReactorFDSet):
    """What the process needs of the reactor."""


def build(options: SimOptions, timer: IReactorTime, publisher: Publisher | None = None) -> Replica:
    """The replica that ``options`` describe; it answers 503 until its ``loaded`` is set.

    :param publisher: publishes what its cache does, or None.
    """
    limits = Limits(
        block_size=options["block-size"],
        kv_tokens=options["kv-tokens"],
        max_num_seqs=options["max-num-seqs"],
        batch_tokens=options["batch-tokens"],
    )
    cost = CostModel(
        step=options["step-ms"] / 1000,
        prefill_rate=options["prefill-rate"],
        attention_span=options["attention-span"],
        per_context=options["context-ns"] / 1e9,
    )
    engine = Engine(limits, cost)
    engine.cache.watcher = publisher
    stepped = None if publisher is None else publisher.flush
    driver = Driver(engine, timer, time.monotonic, options["time-scale"], stepped)
    identity = Identity(
        name=options.served_name,
        root=options["model"],
        devices=options["devices"],
        max_model_len=options["max-model-len"],
        default_tokens=options["max-tokens-default"],
        created=int(time.time()),
        stream_interval=options["stream-interval"],
    )
    faults = Faults(
        die_after=options["die-after"],
        hang_after=options["hang-after"],
        cut_after=options["cut-after"],
        slow_health=options["slow-health"],
        fail_health=bool(options["fail-health"]),
    )
    return Replica(driver, identity, faults, timer, die=lambda: os._exit(1))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one replica until it is told to stop; the exit code."""
    options = SimOptions()
    try:
        options.parseOptions(sys.argv[1:] if argv is None else list(argv))
    except usage.UsageError as problem:
        text = str(problem).removeprefix("Parameter type enforcement failed: ")
        print(f"pypto-router sim: error: {text}", file=sys.stderr)
        return EX_USAGE
    if options["die-with-parent"]:
        _die_with_parent()
    _make_trouble(options)
    if options["exit-at-start"] is not None:
        return int(options["exit-at-start"])
    return _serve(options)


@define
class _Process:
    """The life of one replica: load, listen, say so."""

    options: SimOptions
    replica: Replica
    reactor: IReactor
    code: int = 0
    _port: IListeningPort | None = None

    def begin(self) -> None:
        """Start to load the model."""
        if self.options["ignore-sigterm"]:
            # Here, for the reactor has installed its own handler by now.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.options["loading"] == "503":
            self._listen()
            self._say("loading on")
        self.reactor.callLater(self.options["load-time"] / self.options["time-scale"], self._loaded)

    def _loaded(self) -> None:
        if self._port is None:
            self._listen()
        if self._port is not None:
            self.replica.loaded = True
            self._say("ready on")

    def _say(self, state: str) -> None:
        if self._port is not None:
            where = _url(self.options["host"], self._port.getHost())
            _say(f"{state} {where} (simulated {self.options.served_name})")

    def _listen(self) -> None:
        try:
            self._port = self.reactor.listenTCP(
                self.options["port"],
                QuietSite(self.replica),  # type: ignore[arg-type]  # stubs want IProtocol, Site builds one
                1024,
                self.options["host"],
            )
        except CannotListenError as problem:
            where, why = f"{self.options['host']}:{self.options['port']}", problem.socketError
            hint = "; give another --port" if why.errno == EADDRINUSE else ""
            print(f"pypto-router sim: error: cannot listen on {where}: {why.strerror}{hint}", file=sys.stderr)
            self.code = EX_UNAVAILABLE
            self.reactor.stop()


def _serve(options: SimOptions) -> int:
    # Imported here, so that importing this module does not choose a reactor.
    from twisted.internet import reactor as installed

    reactor = cast(IReactor, installed)
    serious = LogLevelFilterPredicate(defaultLogLevel=LogLevel.warn)
    observer = FilteringLogObserver(textFileLogObserver(sys.stderr), [serious])
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False)
    try:
        publisher = _publisher(options, reactor)
    except OSError as problem:
        print(f"pypto-router sim: error: --kv-events: {problem.strerror}", file=sys.stderr)
        return EX_UNAVAILABLE
    process = _Process(options, build(options, reactor, publisher), reactor)
    reactor.callWhenRunning(process.begin)
    reactor.run()
    return process.code


def _publisher(options: SimOptions, reactor: IReactor) -> Publisher | None:
    """What publishes cache events, where asked for. Raises OSError where a port is taken."""
    if options["kv-events"] is None:
        return None
    # Here, for what it needs is an extra that may not be installed.
    from twisted_router.sim.publishing import Publisher

    publisher = Publisher(
        cast("zeromq.IReactor", reactor),
        options["host"],
        options["kv-events"],
        options["block-size"],
        options["kv-events-layout"],
    )
    reactor.addSystemEventTrigger("during", "shutdown", publisher.close)
    _say(f"cache events on {publisher.events}, repeated on {publisher.replay}")
    return publisher


def _make_trouble(options: SimOptions) -> None:
    if options["fork-child"]:
        # Not waited for: it is the grandchild that keeps a launcher's pipe or log open.
        child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({_CHILD_LIFE})"])  # noqa: S603
        _say(f"child {child.pid}")
    if options["noise"]:
        line = b"simulated noise".ljust(79, b".") + b"\n"
        whole, rest = divmod(options["noise"], len(line))
        for _ in range(whole):
            sys.stdout.buffer.write(line)
        sys.stdout.buffer.write(line[:rest])
        sys.stdout.buffer.flush()


def _die_with_parent() -> None:
    parent = os.getppid()
    # A Ctrl-C reaches the whole foreground group; when to end is the parent's to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # It died before the kernel knew whom to tell.
        os._exit(1)


def _say(line: str) -> None:
    try:
        print(line, flush=True)
    except OSError:
        # Nobody reads our output any more; serving goes on.
        sys.stdout = None


def _url(host: str, address: IAddress) -> str:
    port = cast(IPv4Address | IPv6Address, address).port
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
