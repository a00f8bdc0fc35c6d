"""The README's lines, copied and pasted: what it promises a stranger happens, but for the port numbers."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import sysconfig
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.programs import free_ports

README = (Path(__file__).resolve().parents[2] / "README.rst").read_text(encoding="utf-8")

#: Seconds after which something that should have happened has not.
PATIENCE = 60


def block(start: str) -> str:
    """Return the literal block of the README that starts with these words."""
    for found in re.findall(r"\n\n((?:    .*\n|\n)+)", README):
        text = textwrap.dedent(found).strip("\n")
        if text.startswith(start):
            return text
    raise AssertionError(f"the README has no block that starts with {start!r}")


def line(start: str) -> str:
    """Return the one command of the README that starts with these words."""
    (found,) = re.findall(rf"(?m)^    ({re.escape(start)}.*)$", README)
    return str(found)


def configuration(key: str) -> str:
    """Return the first configuration of the README with this key at its top."""
    return next(
        textwrap.dedent(found)
        for found in re.findall(r"code-block:: json\n\n((?:    .*\n|\n)+)", README)
        if list(json.loads(found)) == [key]
    )


class Program:
    """A child that runs as long as the test wants, with the lines it has written so far."""

    def __init__(self, case: SynchronousTestCase, argv: list[str], work: Path, env: dict[str, str]) -> None:
        self._lines: list[str] = []
        self._news = threading.Condition()
        self._process = subprocess.Popen(
            argv,
            cwd=work,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        case.addCleanup(self.end)

    def _read(self) -> None:
        with self._process.stdout as output:  # type: ignore[union-attr]
            for text in output:
                with self._news:
                    self._lines.append(text.rstrip("\n"))
                    self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def lines(self, pattern: str) -> list[re.Match[str]]:
        """Return every line so far in which the pattern is found."""
        with self._news:
            return [found for text in self._lines if (found := re.search(pattern, text))]

    def shows(self, pattern: str, times: int = 1) -> list[re.Match[str]]:
        """Wait for so many lines in which the pattern is found."""
        until = time.monotonic() + PATIENCE
        while len(found := self.lines(pattern)) < times:
            with self._news:
                left = until - time.monotonic()
                if left <= 0 or not self._reader.is_alive() or not self._news.wait(left):
                    raise AssertionError("\n".join([f"waited for {pattern}:", *self._lines]))
        return found

    def end(self) -> int:
        """Interrupt it, as Ctrl-C does, and wait for its end."""
        self._process.send_signal(signal.SIGINT)
        code = self._process.wait(PATIENCE)
        self._reader.join()
        return code


class Stranger(SynchronousTestCase):
    """Somebody with a shell and an empty directory, whose ports 8000 and so on are other ones."""

    def setUp(self) -> None:
        self.work = Path(self.mktemp()).resolve()
        self.work.mkdir(parents=True)
        first = free_ports(4)
        self.ports = {"8000": first, "8001": first + 1, "8002": first + 2}
        path = os.pathsep.join([str(self.work), sysconfig.get_path("scripts"), os.environ["PATH"]])
        self.env = {**os.environ, "PATH": path}

    def moved(self, text: str) -> str:
        """Replace the README's ports by those of this test."""
        return re.sub(r"\b(8000|8001|8002)\b", lambda found: str(self.ports[found[1]]), text)

    def shell(self, commands: str) -> str:
        """Run lines of the README in a shell; return what they print."""
        done = subprocess.run(
            ["bash", "-euc", self.moved(commands)],
            cwd=self.work,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def start(self, command: str) -> Program:
        """Run one line of the README in a terminal of its own."""
        return Program(self, ["bash", "-c", "exec " + self.moved(command)], self.work, self.env)


def cached(answers: str) -> list[int]:
    """How many prompt tokens of each answer, a line each, were in the cache."""
    found = [json.loads(answer) for answer in answers.splitlines() if answer]
    return [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in found]


class DemoTests(Stranger):
    """``Try it``."""

    def test_walk(self) -> None:
        """Each step, in the README's order, does what the text around it says."""
        demo = self.start(f"pypto-router demo --port {self.ports['8000']}")
        demo.shows("Ctrl-C ends everything")
        self.first_answer()
        turn, _, turns = block("turn() {").partition("\n}\n")
        turn += "\n}\n"
        answers = cached(self.shell(turn + turns))
        self.assertEqual((len(answers), answers[0]), (2, 0))
        self.assertGreater(answers[1], 0)
        one, other = demo.shows(r" (\S+) affinity=(\w+) .* session=my-first-talk ", 2)
        self.assertEqual((one[1], other[2]), (other[1], "hit"))
        self.grow_and_shrink(demo)
        self.assertEqual(len(cached(self.shell(turn + block("kill -9 $(curl ")))), 1)
        demo.shows("sim-d0: ready", 2)
        answers = cached(self.shell(turn + block("sleep 3")))
        self.assertGreater(answers[-1], 0)
        self.assertEqual(len(demo.shows(": adopted", 2)), 2)
        before, after = demo.shows(r" (\S+) affinity=(\w+) .* session=my-first-talk ", 4)[2:]
        self.assertEqual((before[1], after[2]), (after[1], "hit"))
        self.assertEqual(demo.end(), 0)

    def first_answer(self) -> None:
        head, _, body = self.shell(block("curl -i ")).partition("\n\n")
        self.assertIn(" 200 ", head.splitlines()[0])
        self.assertRegex(head, r"(?mi)^x-session-id: [0-9a-f]{32}\r?$")
        self.assertIn("simulated", json.loads(body)["choices"][0]["message"]["content"])

    def grow_and_shrink(self, demo: Program) -> None:
        grow, shrink = block("curl -s -X POST").splitlines()
        self.assertEqual(json.loads(self.shell(grow))["name"], "sim-d2")
        demo.shows("sim-d2: ready")
        self.assertTrue(json.loads(self.shell(shrink))["stopped"])


class StaticTests(Stranger):
    """``Replicas that already run`` and ``As a daemon``."""

    def setUp(self) -> None:
        super().setUp()
        for port in ("8001", "8002"):
            self.start(f"pypto-router sim --port {port} --model demo").shows("ready on ")
        (self.work / "replicas.json").write_text(self.moved(configuration("replicas")), encoding="utf-8")

    def healthy(self) -> None:
        health = json.loads(self.shell(line("curl -s http://127.0.0.1:8000/health")))
        self.assertEqual((health["replicas_total"], health["replicas_ready"]), (2, 2))

    def test_foreground(self) -> None:
        """The file is good, the router routes over both replicas, and Ctrl-C ends it."""
        self.assertIn("2 replicas listed", self.shell(line("pypto-router check-config")))
        router = self.start(line("pypto-serving-router --replicas replicas.json"))
        router.shows("RouterSite starting")
        self.healthy()
        self.assertEqual(router.end(), 0)

    def test_daemon(self) -> None:
        """The daemon logs to its file, ends on the README's kill, and takes its pidfile with it."""
        self.shell(line("twistd "))
        process = os.pidfd_open(int((self.work / "router.pid").read_text()))
        try:
            self.healthy()
            self.shell(line("kill $(cat router.pid)"))
            ended, _, _ = select.select([process], [], [], PATIENCE)
        finally:
            os.close(process)
        self.assertTrue(ended, "the router did not end")
        self.assertFalse((self.work / "router.pid").exists())
        self.assertIn("stopped", (self.work / "router.log").read_text())


#: Stands in for the engine that is not installed here: the words it understands are the README's.
ENGINE = """#!/bin/sh
[ "$1" = serve ] && [ "$CUDA_VISIBLE_DEVICES" ] || exit 9
model=$2; shift 2
exec "{python}" -m twisted_router.sim --model "$model" "$1" "$2" "$3" "$4"
"""


class LaunchTests(Stranger):
    """``Replicas that the router launches``."""

    def replicas(self) -> list[dict[str, Any]]:
        listed = json.loads(self.shell(line("curl -s http://127.0.0.1:8000/replicas")))["replicas"]
        return [dict(replica) for replica in listed]

    def test_engine(self) -> None:
        """Both replicas are launched by the engine's own command line; Ctrl-C stops them with the router."""
        engine = self.work / "vllm"
        engine.write_text(ENGINE.format(python=sys.executable))
        engine.chmod(0o755)
        (self.work / "fleet.json").write_text(self.moved(configuration("hosts")), encoding="utf-8")
        router = self.start(line("pypto-serving-router --replicas fleet.json"))
        router.shows("slot gpu01-d[01]: ready", 2)
        self.assertEqual([replica["ready"] for replica in self.replicas()], [True, True])
        self.assertEqual(router.end(), 0)
        self.assertEqual(len(router.lines("slot gpu01-d[01]: free")), 2)
