"""The programs' exit codes and what they say, by running them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

from twisted.internet import reactor
from twisted.internet.protocol import Factory, Protocol
from twisted.trial.unittest import TestCase

from tests.programs import Watched, start
from twisted_router import __version__

SERVE = "import sys; from twisted_router.cli.main import serve; sys.exit(serve())"

#: The same, told to stop as soon as it runs: for tests that cannot read what it says.
SERVE_SOON = (
    "import os, signal; from twisted.internet import reactor; "
    "reactor.callWhenRunning(reactor.callLater, 0, os.kill, os.getpid(), signal.SIGTERM); " + SERVE
)


#: The same, told to stop while it reads its file.
SERVE_EARLY = (
    "import os, signal; from twisted_router.config import reading; "
    "reading.read_fleet = lambda path: os.kill(os.getpid(), getattr(signal, os.environ['SIGNAL'])); " + SERVE
)


class ServeTests(TestCase):
    """``pypto-serving-router``."""

    timeout = 60

    def setUp(self) -> None:
        self.file = os.path.abspath(self.mktemp())
        with open(self.file, "w") as file:
            file.write('{"replicas": [{"host": "127.0.0.1", "port": 1}]}')

    def serve(self, *flags: str) -> Watched:
        return start(self, "-c", SERVE, *flags)

    async def assert_refused(self, code: int, words: str, *flags: str) -> None:
        watched = self.serve(*flags)
        self.assertEqual(await watched.ended, code)
        self.assertEqual(watched.err.decode(), f"pypto-serving-router: error: {words}\n")
        self.assertEqual(watched.out, b"")

    async def test_stopped_early(self) -> None:
        """A signal that comes before the router has begun ends it with a line, and in order."""
        for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"):
            env = {**os.environ, "SIGNAL": name}
            watched = start(self, "-c", SERVE_EARLY, "--replicas", self.file, env=env)
            self.assertEqual(await watched.ended, 0, watched.err)
            self.assertEqual(
                watched.err.decode(), f"pypto-serving-router: got {name} before anything was started\n"
            )

    async def test_unknown_flag(self) -> None:
        """An unknown flag is 2 and one line with the nearest flag."""
        await self.assert_refused(2, "option --prot not recognized; did you mean --port?", "--prot", "1")

    async def test_unparsable_value(self) -> None:
        """A value that is no number is 2."""
        await self.assert_refused(2, "--port takes a whole number, not 'x'", "--port", "x")

    async def test_out_of_range(self) -> None:
        """A value out of range is 1."""
        words = "--session-ttl must be a positive number of seconds, got 0"
        await self.assert_refused(1, words, "--replicas", self.file, "--session-ttl", "0")

    async def test_bad_file(self) -> None:
        """A file with problems is 1, a line for each of them."""
        with open(self.file, "w") as file:
            file.write('{"replicas": [{"host": 7, "port": "x"}]}')
        watched = self.serve("--replicas", self.file)
        self.assertEqual(await watched.ended, 1)
        lines = watched.err.decode().splitlines()
        self.assertEqual(len(lines), 2)
        for line in lines:
            self.assertTrue(line.startswith(f"pypto-serving-router: error: {self.file}:1:"), line)

    async def test_port_in_use(self) -> None:
        """A taken port is 69 and names host and port."""
        taken = reactor.listenTCP(0, Factory.forProtocol(Protocol), interface="127.0.0.1")
        self.addCleanup(taken.stopListening)
        port = str(taken.getHost().port)
        watched = self.serve("--replicas", self.file, "--host", "127.0.0.1", "--port", port)
        self.assertEqual(await watched.ended, 69)
        self.assertIn(
            f"error: cannot listen on 127.0.0.1:{port}: Address already in use;".encode(), watched.err
        )
        self.assertIn(b"another --port", watched.err)

    async def test_orderly_stop(self) -> None:
        """SIGTERM and SIGINT end it with 0, without a pidfile having been written."""
        for code in (SERVE_SOON, SERVE_SOON.replace("SIGTERM", "SIGINT")):
            flags = ("--replicas", self.file, "--host", "127.0.0.1", "--port", "0")
            self.assertEqual(await start(self, "-c", code, *flags).ended, 0)
        self.assertFalse(os.path.exists("twistd.pid"))

    async def test_closed_descriptors(self) -> None:
        """It runs with standard descriptors closed, and no socket or pipe of its own takes their numbers."""
        closing = "[os.close(fd) for fd in (0, 1, 2)]; code = serve()"
        run = SERVE_SOON.replace("sys.exit(serve())", closing)
        link = "os.readlink(f'/proc/self/fd/{fd}') == os.devnull"
        code = f"{run}; sys.exit(code if all([{link} for fd in (0, 1, 2)]) else 3)"
        watched = start(self, "-c", code, "--replicas", self.file, "--host", "127.0.0.1", "--port", "0")
        self.assertEqual(await watched.ended, 0)

    async def test_output_unread(self) -> None:
        """Log lines that nobody reads are dropped: it goes on, and ends when told to."""
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, b"x" * 65536)
        os.set_blocking(writing, True)
        flags = ("--replicas", self.file, "--host", "127.0.0.1", "--port", "0")
        watched = start(self, "-c", SERVE_SOON, *flags, fds={0: "w", 1: "r", 2: writing})
        os.close(writing)
        self.assertEqual(await watched.ended, 0)

    async def test_version(self) -> None:
        """``--version`` is answered on standard output with 0."""
        watched = self.serve("--version")
        self.assertEqual((await watched.ended, watched.out.decode()), (0, f"pypto-router {__version__}\n"))

    async def test_help(self) -> None:
        """``--help`` begins with the program's own name."""
        watched = self.serve("--help")
        self.assertEqual(await watched.ended, 0)
        self.assertTrue(watched.out.startswith(b"Usage: pypto-serving-router --replicas FILE"), watched.out)


class MainTests(TestCase):
    """``pypto-router``."""

    timeout = 60

    def main(self, *flags: str) -> Watched:
        return start(self, "-m", "twisted_router.cli.main", *flags)

    async def test_unknown_command(self) -> None:
        """An unknown command is 2 and one line."""
        watched = self.main("dmo")
        self.assertEqual(await watched.ended, 2)
        self.assertEqual(watched.err, b"pypto-router: error: unknown command 'dmo'; did you mean demo?\n")

    async def test_version(self) -> None:
        """``--version`` is answered with 0."""
        watched = self.main("--version")
        self.assertEqual((await watched.ended, watched.out.decode()), (0, f"pypto-router {__version__}\n"))

    def test_reader_leaves(self) -> None:
        """Help whose reader has left, as in ``--help | head``, ends with 0 and without a word."""
        unread, written = os.pipe()
        os.close(unread)
        command = [sys.executable, "-m", "twisted_router.cli.main", "lab", "--help"]
        try:
            ended = subprocess.run(command, stdout=written, stderr=subprocess.PIPE, check=False)
        finally:
            os.close(written)
        self.assertEqual((ended.returncode, ended.stderr), (0, b""))

    async def test_sim(self) -> None:
        """``sim`` hands its flags to the simulated replica, whose exit code it has."""
        self.assertEqual(await self.main("sim", "--exit-at-start", "7").ended, 7)

    async def test_check_config(self) -> None:
        """``check-config`` exits with what it found."""
        self.assertEqual(await self.main("check-config", "/nonexistent").ended, 1)

    async def test_serve(self) -> None:
        """``serve`` is the router: the same flags and codes."""
        watched = self.main("serve", "--prot", "1")
        self.assertEqual((await watched.ended, watched.err.count(b"--port?\n")), (2, 1))

    async def test_command_help(self) -> None:
        """A command's help names the whole command, once."""
        for command, rest in (
            ("demo", "[options]"),
            ("sim", "[options]"),
            ("check-config", "FILE [FILE...]"),
            ("lab", "[options]"),
            ("serve", "--replicas FILE [options]"),
        ):
            watched = self.main(command, "--help")
            self.assertEqual(await watched.ended, 0)
            self.assertEqual(watched.out.decode().splitlines()[0], f"Usage: pypto-router {command} {rest}")

    async def test_command_version(self) -> None:
        """A command's version is ours, not Twisted's."""
        for command in ("demo", "sim", "check-config", "lab", "serve"):
            watched = self.main(command, "--version")
            self.assertEqual(
                (await watched.ended, watched.out.decode()), (0, f"pypto-router {__version__}\n")
            )
