"""The README's lines, copied and pasted: a stranger gets an answer, twice from the same replica."""

from __future__ import annotations

import json
import os
import re
import select
import socket
import subprocess
import sys
import sysconfig
import textwrap
from contextlib import closing
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

README = (Path(__file__).resolve().parents[2] / "README.rst").read_text(encoding="utf-8")

#: Seconds after which something that should have happened has not.
PATIENCE = 30


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


def free_port() -> int:
    """Return a port on which nobody listens now."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ReadmeTests(SynchronousTestCase):
    """A daemon and two simulated replicas, treated exactly as the README says, but for the ports."""

    def setUp(self) -> None:
        self.work = Path(self.mktemp()).resolve()
        self.work.mkdir(parents=True)
        self.ports = {"8000": str(free_port()), "8001": self._replica(), "8002": self._replica()}
        (self.work / "replicas.json").write_text(self._moved(block("{")), encoding="utf-8")
        self.addCleanup(self._stop_daemon)
        self._shell(line("twistd "))

    def _replica(self) -> str:
        """Start a simulated replica; return its port once it is ready."""
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "twisted_router.sim",
                "--port",
                "0",
                "--model",
                "demo",
                "--time-scale",
                "20",
            ],
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait, PATIENCE)
        self.addCleanup(process.terminate)
        ready = process.stdout.readline()
        found = re.search(r":(\d+)", ready)
        assert found, ready
        return found[1]

    def _moved(self, text: str) -> str:
        """Replace the README's ports by those of this test."""
        return re.sub(r"\b(8000|8001|8002)\b", lambda found: self.ports[found[1]], text)

    def _shell(self, commands: str) -> str:
        """Run lines of the README in a shell; return what they print."""
        path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-euc", self._moved(commands)],
            cwd=self.work,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def _stop_daemon(self) -> None:
        """Stop the router the README's way, if it still runs, and wait for its end."""
        pidfile = self.work / "router.pid"
        if not pidfile.exists():
            return
        process = os.pidfd_open(int(pidfile.read_text()))
        try:
            self._shell(line("kill "))
            ended, _, _ = select.select([process], [], [], PATIENCE)
            self.assertTrue(ended, "the router did not end")
        finally:
            os.close(process)

    def test_first_answer(self) -> None:
        """The first curl is answered, and told the id of its conversation."""
        head, _, body = self._shell(block("curl -i ")).partition("\n\n")
        self.assertIn(" 200 ", head.splitlines()[0])
        self.assertRegex(head, r"(?mi)^x-session-id: [0-9a-f]{32}\r?$")
        self.assertIn("simulated", json.loads(body)["choices"][0]["message"]["content"])

    def test_second_turn(self) -> None:
        """The second turn with the id of the first finds the prompt in the replica's cache."""
        answers = [json.loads(answer) for answer in self._shell(block("for turn ")).splitlines() if answer]
        cached = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers]
        self.assertEqual(len(cached), 2)
        self.assertEqual(cached[0], 0)
        self.assertGreater(cached[1], 0)
        health = json.loads(self._shell(line("curl -s http://127.0.0.1:8000/health")))
        self.assertEqual((health["routed"], health["affinity_hits"], health["replicas_ready"]), (2, 1, 2))

    def test_daemon_ends(self) -> None:
        """The router logs to its file, ends on the README's kill, and takes its pidfile with it."""
        self.assertTrue((self.work / "router.log").read_text())
        self._stop_daemon()
        self.assertFalse((self.work / "router.pid").exists())
