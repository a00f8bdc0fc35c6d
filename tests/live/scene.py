"""A whole router in real processes: its files, its calls, and nothing left of it afterwards."""

from __future__ import annotations

import json
import os
import signal
import sys
import sysconfig
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar
from uuid import uuid4

import treq
from attrs import frozen
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase
from twisted.web.client import HTTPConnectionPool, ResponseFailed
from twisted.web.http_headers import Headers

from tests.programs import Watched, free_ports, start

T = TypeVar("T")

#: Seconds after which something that should have happened has not.
PATIENCE = 30.0

REPLICA = str(Path(__file__).with_name("replica.py"))


def script(name: str) -> str:
    """Where one of our programs is installed."""
    return os.path.join(sysconfig.get_path("scripts"), name)


def is_alive(pid: int) -> bool:
    """Whether any thread of a process runs; of a zombie none does."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    fields = stat.rpartition(")")[2].split()
    return fields[0] not in "ZX" or int(fields[17]) > 1


@frozen
class Answer:
    """What the router, or a replica behind it, said."""

    status: int
    headers: Headers
    text: str

    @property
    def document(self) -> Any:
        """The body, which is JSON."""
        return json.loads(self.text)


class LiveCase(TestCase):
    """Starts routers over scripted replicas; every process it caused carries a mark and ends with the test.

    :ivar work: its directory; the state file, and so logs and locks of replicas, lie there.
    :ivar port: where the router listens.
    :ivar base: the port of the first slot.
    """

    timeout = 120

    def setUp(self) -> None:
        self.work = Path(self.mktemp()).resolve()
        self.work.mkdir(parents=True)
        self.state_file = self.work / "state.json"
        self.port = free_ports(1)
        self.base = 0
        self.env = {**os.environ, "PYPTO_LIVE_TEST": uuid4().hex}
        self._pool = HTTPConnectionPool(reactor, persistent=False)
        self.addCleanup(self._end_all)

    # Configuration

    def host(
        self, *flags: str, name: str = "here", devices: int = 1, first: int = 0, **keys: Any
    ) -> dict[str, Any]:
        """A host of scripted replicas with these flags, its devices from ``first`` on; its ports are free."""
        self.base = free_ports(devices)
        return {
            "name": name,
            "devices": list(range(first, first + devices)),
            "port_base": self.base - first,
            "model": "m",
            "command": [sys.executable, REPLICA, "--port", "{port}", *flags],
            **keys,
        }

    def fleet(self, *hosts: dict[str, Any], replicas: tuple[dict[str, Any], ...] = ()) -> None:
        """Write the configuration."""
        fleet = {"hosts": hosts, "replicas": replicas}
        (self.work / "fleet.json").write_text(json.dumps(fleet), encoding="utf-8")

    def flags(self, *more: str) -> list[str]:
        """A command line with short times."""
        fleet, state = str(self.work / "fleet.json"), str(self.state_file)
        files = ["--replicas", fleet, "--state-file", state]
        listen = ["--host", "127.0.0.1", "--port", str(self.port)]
        times = ["--health-interval", "0.2", "--connect-timeout", "2", "--stop-grace", "1"]
        return [*files, *listen, *times, *more]

    # Starting and looking

    def router(self, *more: str) -> Watched:
        """Start the router in the foreground, whatever becomes of it."""
        return start(self, script("pypto-serving-router"), *self.flags(*more), env=self.env)

    async def serving(self, *more: str, ready: int = 0) -> Watched:
        """Start the router; it answers, and so do that many replicas."""
        router = self.router(*more)
        await self.served(ready, router)
        return router

    async def served(self, ready: int, router: Watched | None = None) -> None:
        """Wait until the router answers and has that many replicas in rotation."""

        async def enough() -> bool:
            self.assertFalse(router is not None and router.ended.called, router and router.err)
            health = await self.ask("GET", "/health")
            return health is not None and health.document["replicas_ready"] >= ready

        await self.until(enough, f"a router with {ready} replicas")

    async def ended(self, router: Watched) -> int:
        """Wait for the end of a router; its exit code."""
        ended: Deferred[int] = Deferred()

        def pass_on(code: int) -> int:
            ended.callback(code)
            return code

        router.ended.addCallback(pass_on)
        return await ended.addTimeout(PATIENCE, reactor)

    async def until(self, question: Callable[[], Awaitable[T]], what: str, seconds: float = PATIENCE) -> T:
        """Ask again and again until the answer is true, and return it."""
        deadline = monotonic() + seconds
        while not (answer := await question()):
            self.assertLess(monotonic(), deadline, f"not within {seconds:g} s: {what}")
            await deferLater(reactor, 0.03)
        return answer

    async def until_gone(self, *pids: int, seconds: float = PATIENCE) -> None:
        """Wait until none of these processes runs."""

        async def gone() -> bool:
            return not any(map(is_alive, pids))

        await self.until(gone, f"the end of {pids}", seconds)

    async def until_note(self, path: Path, words: str) -> None:
        """Wait until a file, such as a log, holds these words."""

        async def noted() -> bool:
            return path.exists() and words in path.read_text(errors="replace")

        await self.until(noted, f"{words!r} in {path.name}")

    # Calls

    async def call(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Ask the router, or with a URL anybody."""
        url = path if "://" in path else f"http://127.0.0.1:{self.port}{path}"
        sent = {} if body is None else {"json": body}
        response = await treq.request(
            method, url, headers=dict(headers or {}), pool=self._pool, timeout=PATIENCE, **sent
        )
        return Answer(response.code, response.headers, await response.text())

    async def ask(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Answer | None:
        """Ask one who may not be there: None for no answer."""
        try:
            return await self.call(method, path, body, headers)
        except (ConnectError, ResponseFailed):
            return None

    async def turn(self, session: str, **body: object) -> Any:
        """One turn of a conversation: which replica says what of itself."""
        answer = await self.call("POST", "/v1/chat/completions", body, {"X-Session-Id": session})
        self.assertEqual(answer.status, 200, answer.text)
        return answer.document

    async def hold(self, session: str) -> Deferred[bytes]:
        """Begin an answer that ends when it is released; fires when it has begun, with the rest of it."""
        response = await treq.post(
            f"http://127.0.0.1:{self.port}/v1/chat/completions",
            json={"hold": True},
            headers={"X-Session-Id": session},
            pool=self._pool,
            unbuffered=True,
        )
        begun: Deferred[None] = Deferred()
        rest: Deferred[bytes] = Deferred()
        got: list[bytes] = []

        def collect(data: bytes) -> None:
            got.append(data)
            if not begun.called:
                begun.callback(None)

        collecting = treq.collect(response, collect)
        collecting.addCallbacks(lambda _: rest.callback(b"".join(got)), rest.errback)
        await begun
        return rest

    async def capacity(self) -> Any:
        """What is left."""
        return (await self.call("GET", "/replicas")).document["capacity"]

    async def replica(self, name: str = "here-d0") -> Any:
        """One of ``GET /replicas``; None when there is none of that name."""
        for replica in (await self.call("GET", "/replicas")).document["replicas"]:
            if replica["name"] == name:
                return replica
        return None

    # Processes

    def recorded(self, slot: str = "here-d0") -> Any:
        """What the state file says of a slot."""
        for record in json.loads(self.state_file.read_text())["slots"]:
            if record["slot"] == slot:
                return record
        raise AssertionError(f"the state file does not have {slot}")

    def pid_of(self, slot: str = "here-d0") -> int:
        """The recorded process of a slot."""
        return int(self.recorded(slot)["handle"]["pid"])

    def loads(self, slot: str = "here-d0") -> int:
        """How many times a model was loaded on a slot."""
        return (self.work / "logs" / f"{slot}.log").read_text(errors="replace").count("loading in process")

    def marked(self) -> set[int]:
        """Every process that runs because of this test."""
        mark = f"PYPTO_LIVE_TEST={self.env['PYPTO_LIVE_TEST']}".encode()
        found = set()
        for entry in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if mark in entry.read_bytes().split(b"\0"):
                    found.add(int(entry.parent.name))
        return found

    async def _end_all(self) -> None:
        async def ended() -> bool:
            for pid in (left := self.marked()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not left

        await self.until(ended, "the end of everything this test started")
