"""A router at its default settings over two simulated replicas that it launches, and who talks to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.engines import OURS
from bench.processes import Children, Unavailable, born, children
from bench.report import OUT

SLOTS = ("sim-d0", "sim-d1")

#: Tokens of one answer: about a third of a second, at the simulated replica's default speed.
ANSWER = 16

_PROMPT = "Say, in as few words as will do, what became of the replica that was here a moment ago. " * 8


@dataclass
class Turn:
    """One request of a conversation; times in monotonic seconds. ``slot`` is None when nobody can tell."""

    began: float
    ended: float
    slot: str | None
    failure: str | None = None


@dataclass
class Conversation:
    """Goes on, turn after turn, until told to stop; a turn that failed is sent again."""

    port: int
    session: str
    turns: list[Turn] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def home(self) -> str | None:
        """The replica of the last turn that was answered."""
        return next((turn.slot for turn in reversed(self.turns) if turn.failure is None), None)

    def run(self) -> None:
        """Talk."""
        while not self.stop.is_set():
            turn = self.turn()
            self.turns.append(turn)
            if turn.failure is not None:
                self.stop.wait(0.05)

    def turn(self) -> Turn:
        """Ask once; never fails, a failure is part of what is returned."""
        began = time.monotonic()
        body = {"max_tokens": ANSWER, "messages": [{"role": "user", "content": self.session + _PROMPT}]}
        try:
            status, text = ask(
                self.port, "POST", "/v1/chat/completions", body, {"X-Session-Id": self.session}
            )
        except (OSError, http.client.HTTPException) as error:
            return Turn(began, time.monotonic(), self.home, f"{type(error).__name__}: {error}")
        if status == 200:
            device = re.search(r"on device (\d+)", text)
            return Turn(began, time.monotonic(), f"sim-d{device[1]}" if device else None)
        named = re.search("sim-d[0-9]+", text)
        return Turn(began, time.monotonic(), named[0] if named else self.home, f"{status}: {_message(text)}")


@dataclass
class Launched:
    """A router that has launched two replicas, and can be started again."""

    family: Children
    work: Path
    port: int
    flags: tuple[str, ...]
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the router, also where one was before."""
        argv = [str(OURS), "--replicas", str(self.work / "fleet.json"), "--port", str(self.port)]
        argv += ["--host", "127.0.0.1", "--state-file", str(self.work / "state.json")]
        argv += ["--initial-replicas", str(len(SLOTS)), *self.flags]
        self.process = self.family.start("router", argv)

    def kill(self, number: signal.Signals) -> None:
        """Signal the router, and wait for its end, which a hanging one may not come to."""
        if self.process is not None:
            self.process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)

    def running(self) -> list[int]:
        """The router's pid."""
        return [] if self.process is None else [self.process.pid]

    def replicas(self) -> dict[str, dict[str, Any]]:
        """What ``GET /replicas`` says, by name; nothing while nobody answers."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            _, text = ask(self.port, "GET", "/replicas")
            return {replica["name"]: replica for replica in json.loads(text)["replicas"]}
        return {}

    def ready(self) -> bool:
        """Whether both replicas are in rotation."""
        found = self.replicas()
        return len(found) == len(SLOTS) and all(replica["ready"] for replica in found.values())

    def pids(self) -> dict[str, int]:
        """The recorded process of each slot."""
        slots = json.loads((self.work / "state.json").read_text())["slots"]
        return {slot["slot"]: slot["handle"]["pid"] for slot in slots if slot["handle"]}

    def loads(self) -> int:
        """How many replicas have been started so far, by the lines that begin their output."""
        return sum(log.read_text().count("\n--- ") + 1 for log in (self.work / "logs").glob("*.log"))

    @contextlib.contextmanager
    def talking(self, count: int) -> Iterator[list[Conversation]]:
        """Have that many conversations, each of them answered once already; in the end they all stop."""
        talks = [Conversation(self.port, f"talk-{number}") for number in range(count)]
        threads = [threading.Thread(target=talk.run, daemon=True) for talk in talks]
        for thread in threads:
            thread.start()
        try:
            until(lambda: all(talk.home for talk in talks), "a first answer for everybody")
            yield talks
        finally:
            for talk in talks:
                talk.stop.set()
            for thread in threads:
                thread.join(30)


def ask(
    port: int, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
) -> tuple[int, str]:
    """One request on a connection of its own: status and body."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        sent = None if body is None else json.dumps(body)
        link.request(method, path, sent, headers or {})
        reply = link.getresponse()
        return reply.status, reply.read().decode()
    finally:
        link.close()


def _message(text: str) -> str:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return str(json.loads(text)["error"]["message"])
    return text[:200]


def until(question: Callable[[], object], what: str, seconds: float = 60) -> float:
    """Ask every 10 ms until the answer is true; when that was. :raises Unavailable: it never was."""
    deadline = time.monotonic() + seconds
    while not question():
        if time.monotonic() > deadline:
            raise Unavailable(f"Waited {seconds:g} s in vain for {what}; see bench/out/logs/router.log.")
        time.sleep(0.01)
    return time.monotonic()


@contextlib.contextmanager
def launched(*flags: str) -> Iterator[Launched]:
    """Start everything, the router with these flags; in the end it stops its replicas, or they are killed."""
    with tempfile.TemporaryDirectory(prefix="pypto-router-bench-") as work:
        with children(OUT / "logs") as family:
            here = Launched(family, Path(work), _free_ports(1), flags)
            sim = [sys.executable, "-m", "twisted_router.sim", "--port", "{port}", "--devices", "{devices}"]
            host = {"name": "sim", "devices": [0, 1], "port_base": _free_ports(2), "command": sim}
            (here.work / "fleet.json").write_text(json.dumps({"hosts": [host]}))
            here.start()
            try:
                until(here.ready, "two replicas")
                yield here
            finally:
                left = {pid: born(pid) for pid in here.pids().values()}
                here.kill(signal.SIGTERM)
                for pid, since in left.items():
                    if since is not None and born(pid) == since:
                        os.kill(pid, signal.SIGKILL)


def _free_ports(count: int) -> int:
    """The first of some free ports in a row, out of the range that outgoing connections are given."""
    while True:
        first = random.randrange(10000, 30000)
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError):
            for port in range(first, first + count):
                probes.enter_context(socket.create_server(("127.0.0.1", port)))
            return first


def verdict(rows: list[tuple[str, float, float | None]]) -> bool:
    """Print one line for each figure and its upper bar, if it has one; whether all bars hold."""
    for name, value, bar in rows:
        held = "" if bar is None else f"   {'ok' if value <= bar else 'MISSED'}, at most {bar:g}"
        print(f"{name:40}{f'{value:.2f}' if isinstance(value, float) else value:>8}{held}")
    return all(bar is None or value <= bar for _, value, bar in rows)
