"""The simulated replica as a process: its flags, exit codes and manners."""

from __future__ import annotations

import os
import signal
from math import inf

import treq
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import clientFromString
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.python.usage import UsageError
from twisted.trial.unittest import SynchronousTestCase, TestCase
from twisted.web.client import HTTPConnectionPool

from tests.programs import Watched, start
from twisted_router.sim.options import SimOptions
from twisted_router.sim.replica import build

MANUAL = (
    "--model /m/dsv4 --devices 0,1,2,3 --dp 8 --ep 8 --tp 1 --block-size 128 --port 8001 --show-startup-logs"
)


def parsed(line: str) -> SimOptions:
    options = SimOptions()
    options.parseOptions(line.split())
    return options


class OptionsTests(SynchronousTestCase):
    """The command line."""

    def test_manual(self) -> None:
        """The flags that the manual gives ``pypto-serving`` are taken."""
        options = parsed(MANUAL)
        self.assertEqual((options["block-size"], options["devices"]), (128, "0,1,2,3"))

    def test_served_name(self) -> None:
        """The name is the given one, else the last part of the path."""
        names = [
            parsed(line).served_name
            for line in (MANUAL, "--model /m/q/ --served-model-name x", "--model /m/q/")
        ]
        self.assertEqual(names, ["dsv4", "x", "q"])

    def test_costs(self) -> None:
        """The engine costs what the flags say; without them a token costs the same anywhere."""
        line = "--prefill-rate 5800 --step-ms 26 --attention-span 150000 --context-ns 27"
        cost = build(parsed(line), Clock())._driver.engine.cost
        self.assertAlmostEqual(cost.chunk(5800, 147_100), 2.0)
        self.assertAlmostEqual(cost.step + cost.decode(4, 1_000_000), 0.053)
        self.assertEqual(build(parsed(""), Clock())._driver.engine.cost.attention_span, inf)

    def test_refused(self) -> None:
        """A bad value is refused by a sentence with the flag and what was given."""
        for line, words in (
            ("--port x", "--port: expected a whole number, got 'x'"),
            ("--port 70000", "--port: expected at most 65535, got 70000"),
            ("--max-num-seqs 0", "--max-num-seqs: expected at least 1, got 0"),
            ("--step-ms 0", "--step-ms: expected more than 0"),
            ("--load-time nan", "--load-time: expected at least 0, got nan"),
            ("--loading late", "--loading: expected refuse or 503, got 'late'"),
            ("--kv-tokens 10 --max-model-len 11", "--kv-tokens: 10 cannot hold"),
            ("--nonsense", "option --nonsense not recognized"),
        ):
            problem = self.assertRaises(UsageError, parsed, line)
            self.assertIn(words, str(problem))


class Closing(Protocol):
    """A connection whose ``closed`` fires when the other side goes."""

    def __init__(self) -> None:
        self.closed: Deferred[None] = Deferred()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.closed.callback(None)


class ProcessTests(TestCase):
    """Real processes on loopback."""

    timeout = 60

    def start(self, *flags: str) -> Watched:
        return start(self, "-m", "twisted_router.sim", "--port", "0", *flags)

    def address(self, watched: Watched) -> str:
        return watched.out.split(b"ready on ")[1].split(b" ")[0].decode()

    async def health(self, watched: Watched) -> int:
        pool = HTTPConnectionPool(reactor, persistent=False)
        response = await treq.get(self.address(watched) + "/health", pool=pool)
        await response.content()
        return int(response.code)

    async def test_usage(self) -> None:
        """An unknown flag is one line and exit code 2."""
        watched = self.start("--nonsense")
        self.assertEqual(await watched.ended, 2)
        self.assertEqual(watched.err, b"pypto-router sim: error: option --nonsense not recognized\n")

    async def test_exit_at_start(self) -> None:
        """It ends at once with the code asked for."""
        self.assertEqual(await self.start("--exit-at-start", "7").ended, 7)

    async def test_term(self) -> None:
        """Ready is announced with an address that answers; SIGTERM ends it orderly."""
        watched = self.start("--model", "/m/q")
        await watched.wrote(b"(simulated q)\n")
        self.assertEqual(await self.health(watched), 200)
        watched.signal("TERM")
        self.assertEqual(await watched.ended, 0)

    async def test_term_while_loading(self) -> None:
        """SIGTERM ends it while it loads; noise is all it wrote until then."""
        watched = self.start("--load-time", "600", "--noise", "1000")
        await watched.wrote(((b"simulated noise".ljust(79, b".") + b"\n") * 13)[:1000])
        watched.signal("TERM")
        self.assertIn(await watched.ended, (0, -signal.SIGTERM))
        self.assertEqual(len(watched.out), 1000)

    async def test_ignores_term(self) -> None:
        """With the fault on, it goes on serving after SIGTERM; SIGKILL ends it."""
        watched = self.start("--ignore-sigterm")
        await watched.wrote(b"ready on")
        watched.signal("TERM")
        self.assertEqual(await self.health(watched), 200)
        watched.signal("KILL")
        self.assertEqual(await watched.ended, -signal.SIGKILL)

    async def test_answers_503_while_loading(self) -> None:
        """With ``--loading 503`` the port is open before the model is loaded, and health says so."""
        watched = self.start("--loading", "503", "--load-time", "600", "--port", "0")
        await watched.wrote(b"loading on")
        watched.out = watched.out.replace(b"loading on", b"ready on")
        self.assertEqual(await self.health(watched), 503)

    async def test_port_in_use(self) -> None:
        """A taken port is one line and exit code 69."""
        port = reactor.listenTCP(0, Factory.forProtocol(Protocol), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        watched = self.start("--port", str(port.getHost().port))
        self.assertEqual(await watched.ended, 69)
        self.assertEqual(watched.err.count(b"\n"), 1)

    async def test_child_keeps_output(self) -> None:
        """With ``--fork-child`` the output stays open when the replica itself is gone."""
        watched = self.start("--fork-child", "--exit-at-start", "3")
        gone: Deferred[None] = Deferred()
        watched.processExited = lambda reason: gone.callback(None)  # type: ignore[method-assign]
        await gone
        self.assertFalse(watched.ended.called)
        os.kill(int(watched.out.split(b"child ")[1].split()[0]), signal.SIGKILL)
        self.assertEqual(await watched.ended, 3)

    async def test_dies_with_parent(self) -> None:
        """The kernel ends it when its parent is killed."""
        code = (
            "import subprocess, sys, time\n"
            "flags = ['-m', 'twisted_router.sim', '--port', '0', '--die-with-parent']\n"
            "child = subprocess.Popen([sys.executable, *flags])\n"
            "print('child', child.pid, flush=True)\n"
            "time.sleep(600)\n"
        )
        parent = start(self, "-c", code)
        await parent.wrote(b"ready on")
        child = int(parent.out.split(b"child ")[1].split()[0])
        host, port = self.address(parent).removeprefix("http://").split(":")
        endpoint = clientFromString(reactor, f"tcp:{host}:{port}")
        connection = await endpoint.connect(Factory.forProtocol(Closing))
        self.addCleanup(_kill, child)
        parent.signal("KILL")
        # The replica holds this connection: it closes when the replica is gone.
        await connection.closed


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
