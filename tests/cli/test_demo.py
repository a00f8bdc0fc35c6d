"""The demo: what it starts, what it shows, and that nothing of it stays behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import treq
from attrs import frozen
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import clientFromString
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase, TestCase
from twisted.web.client import HTTPConnectionPool

from tests import programs
from tests.programs import Watched, start
from twisted_router.cli.demo import LOCK, PREFIX, NoDemo, Workshop, free_ports
from twisted_router.cli.render import QUESTION
from twisted_router.config.reading import read_fleet
from twisted_router.disk import remove_left

CHAT = {"model": "demo", "max_tokens": 2, "messages": [{"role": "user", "content": QUESTION}]}


class WorkshopTests(SynchronousTestCase):
    """The generated configuration."""

    def test_is_read(self) -> None:
        """The router's own reader takes it: one host, this machine, and one slot more than replicas."""
        file = Path(self.mktemp() + ".json")
        shop = Workshop(Path("/d"), 8000, 9001, 2)
        file.write_text(json.dumps(shop.fleet()))
        (host,) = read_fleet(str(file)).hosts
        self.assertEqual((host.ssh, host.capacity), (None, 3))
        ports = {host.slot_name(group): f"http://127.0.0.1:{host.slot_port(group)}" for group in host.groups}
        self.assertEqual(ports, shop.slots)


class FreePortsTests(SynchronousTestCase):
    """``free_ports``."""

    def test_taken(self) -> None:
        """A run of ports lies behind the last one that somebody listens on."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.assertGreater(free_ports(port, 3), port)

    def test_none(self) -> None:
        """There are no ports beyond the last one."""
        self.assertRaises(NoDemo, free_ports, 65535, 2)


class Closing(Protocol):
    """A connection whose ``closed`` fires when the other side goes."""

    def __init__(self) -> None:
        self.closed: Deferred[None] = Deferred()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.closed.callback(None)


@frozen
class Running:
    """A demo that has said what to try."""

    watched: Watched
    url: str
    directory: Path
    sims: list[str]

    def lines(self) -> list[str]:
        """What it has shown so far."""
        return self.watched.out.decode().splitlines()

    async def until(self, condition: Callable[[], object]) -> None:
        """Look again and again, until the demo or the test's own time is over."""
        while not condition():
            if self.watched.ended.called:
                raise AssertionError(f"the demo has ended: {self.watched.out!r} {self.watched.err!r}")
            await deferLater(reactor, 0.05)

    async def shows(self, words: str, times: int = 1) -> None:
        """Wait for lines that end so."""
        await self.until(lambda: sum(line.endswith(words) for line in self.lines()) >= times)

    async def ask(self, address: str, **options: Any) -> Any:
        """Send one request; the answer's JSON."""
        pool = HTTPConnectionPool(reactor, persistent=False)
        method = "POST" if options else "GET"
        return await (await treq.request(method, address, pool=pool, **options)).json()

    async def chat(self, session: str) -> int:
        """One turn; how many of its prompt tokens were cached."""
        address = f"{self.url}/v1/chat/completions"
        answer = await self.ask(address, json=CHAT, headers={"X-Session-Id": session})
        return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])

    async def pids(self) -> list[int]:
        """The process ids of the replicas."""
        return [int((await self.ask(f"{sim}/sim"))["pid"]) for sim in self.sims]

    def served(self) -> list[str]:
        """Which replica answered each request so far, with how its session was treated."""
        return re.findall(r" POST \S+ 200 (\S+ affinity=\w+) ", self.watched.out.decode())

    async def connections(self) -> list[Deferred[None]]:
        """Deferreds that fire as each process, replicas and router, is gone."""
        closed = []
        for url in (self.url, *self.sims):
            endpoint = clientFromString(reactor, "tcp:" + url.removeprefix("http://"))
            connection = await endpoint.connect(Factory.forProtocol(Closing))
            closed.append(cast(Closing, connection).closed)
        return closed


class DemoTests(TestCase):
    """The whole thing, in real processes."""

    timeout = 90

    def demo(self, *flags: str) -> Watched:
        return start(self, "-m", "twisted_router.cli.main", "demo", *flags)

    async def started(self) -> Running:
        watched = self.demo("--port", str(programs.free_ports(4)))
        await watched.wrote(b"Ctrl-C ends everything")
        text = watched.out.decode()
        (url,) = re.findall(r"(?m)^router +(http://\S+)/v1 ", text)
        (directory,) = re.findall(r"(?m)^files +(\S+):", text)
        return Running(watched, url, Path(directory), re.findall(r"(?m)^sim-d\d +(http://\S+)/v1 ", text))

    async def test_two_turns(self) -> None:
        """The second turn of an id hits the same replica and its cache; Ctrl-C ends all in order, with 0."""
        demo = await self.started()
        first, second = await demo.chat("s1"), await demo.chat("s1")
        self.assertEqual(first, 0)
        self.assertGreater(second, 0)
        await demo.until(lambda: len(demo.served()) == 2)
        (one, was), (other, became) = (line.split() for line in demo.served())
        self.assertEqual((one, was, became), (other, "affinity=miss", "affinity=hit"))
        closed = await demo.connections()
        demo.watched.signal("INT")
        self.assertEqual(await demo.watched.ended, 0)
        for connection in closed:
            await connection
        self.assertFalse(demo.directory.exists())
        self.assertEqual(sum(": free: the router is shutting down" in line for line in demo.lines()), 2)
        self.assertEqual(demo.watched.err, b"")

    async def test_router_killed(self) -> None:
        """A router that is killed is started again and adopts both; the session stays where it was."""
        demo = await self.started()
        await demo.chat("s1")
        before = await demo.pids()
        await demo.until(lambda: '"s1"' in _read(demo.directory / "state.json.pins"))
        os.kill(int(_read(demo.directory / "router.pid")), signal.SIGKILL)
        await demo.shows(": adopted", times=2)
        self.assertIn("was killed, starting it again", demo.watched.out.decode())
        self.assertGreater(await demo.chat("s1"), 0)
        await demo.until(lambda: len(demo.served()) == 2)
        (one, _), (other, affinity) = (line.split() for line in demo.served())
        self.assertEqual((one, affinity), (other, "affinity=hit"))
        self.assertEqual(await demo.pids(), before)
        demo.watched.signal("INT")
        self.assertEqual(await demo.watched.ended, 0)

    async def test_replica_killed(self) -> None:
        """A replica that is killed is replaced on its slot; the other one stays as it is."""
        demo = await self.started()
        killed, other = await demo.pids()
        os.kill(killed, signal.SIGKILL)
        await demo.shows("slot sim-d0: ready", times=2)
        replacement, same = await demo.pids()
        self.assertNotEqual(replacement, killed)
        self.assertEqual(same, other)

    async def test_demo_killed(self) -> None:
        """When the demo is killed outright, router and replicas go with it; the next one clears up."""
        demo = await self.started()
        closed = await demo.connections()
        demo.watched.signal("KILL")
        for connection in closed:
            await connection
        remove_left(str(demo.directory.parent), PREFIX, LOCK)
        self.assertFalse(demo.directory.exists())

    async def test_interrupted_early(self) -> None:
        """Ctrl-C during the launch ends all as well."""
        watched = self.demo("--replicas", "1")
        await watched.wrote(b": launched")
        watched.signal("INT")
        self.assertEqual(await watched.ended, 0)
        self.assertIn(b"slot sim-d0: free", watched.out)

    async def test_port_in_use(self) -> None:
        """A port asked for that is taken is 69, and no other one is taken instead."""
        taken = reactor.listenTCP(0, Factory.forProtocol(Protocol), interface="127.0.0.1")
        self.addCleanup(taken.stopListening)
        port = taken.getHost().port
        watched = self.demo("--port", str(port))
        self.assertEqual(await watched.ended, 69)
        told = f"pypto-router demo: error: port {port} is in use; without --port the next free one is taken\n"
        self.assertEqual(watched.err.decode(), told)


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
