"""The demo: what it shows, and that nothing of it stays behind."""

from __future__ import annotations

import os
import re
import socket
from typing import cast

import treq
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import clientFromString
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import LogEvent, Logger
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase, TestCase
from twisted.web.client import HTTPConnectionPool

from tests.programs import Watched, start
from twisted_router.cli.demo import GRACE, RequestLines, fleet_file, free_port
from twisted_router.cli.output import LossyLines
from twisted_router.cli.render import QUESTION
from twisted_router.config.reading import read_fleet

CHAT = {"model": "demo", "max_tokens": 2, "messages": [{"role": "user", "content": QUESTION}]}


class Screen:
    """Remembers what was shown."""

    def __init__(self) -> None:
        self.shown = ""

    def write(self, text: str) -> int:
        self.shown += text
        return len(text)


class RequestLinesTests(SynchronousTestCase):
    """What of the log a person sees."""

    def shown(self, namespace: str, level: str, text: str) -> str:
        screen = Screen()
        observer = RequestLines(cast(LossyLines, screen))
        events: list[LogEvent] = []
        getattr(Logger(namespace, observer=events.append), level)(text, value="v")
        observer(events[0])
        return screen.shown

    def test_requests(self) -> None:
        """A line of the access log is shown as it is."""
        self.assertEqual(self.shown("twisted_router.access", "info", "GET {value}"), "GET v\n")

    def test_the_rest(self) -> None:
        """Other news is not shown."""
        self.assertEqual(self.shown("twisted_router.services", "info", "{value}"), "")

    def test_warnings(self) -> None:
        """A warning is shown with its level, on one line."""
        self.assertEqual(self.shown("x", "warn", "{value}\nw"), "warn: v w\n")

    def test_failures(self) -> None:
        """A failure is shown with its message."""
        screen = Screen()
        log = Logger("x", observer=RequestLines(cast(LossyLines, screen)))
        log.failure("it broke", Failure(ValueError("why")))
        self.assertEqual(screen.shown, "critical: it broke: why\n")


class FleetFileTests(SynchronousTestCase):
    """The generated configuration."""

    def test_is_read(self) -> None:
        """The router's own reader takes it and finds the addresses again."""
        file = self.mktemp() + ".json"
        with open(file, "w") as out:
            out.write(str(fleet_file({"sim0": "http://127.0.0.1:4000"})).replace("'", '"'))
        (replica,) = read_fleet(file).replicas
        self.assertEqual((replica.name, replica.url), ("sim0", "http://127.0.0.1:4000"))


class FreePortTests(SynchronousTestCase):
    """``free_port``."""

    def test_taken(self) -> None:
        """A port that somebody listens on is passed over."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.assertGreater(free_port(port), port)


class Closing(Protocol):
    """A connection whose ``closed`` fires when the other side goes."""

    def __init__(self) -> None:
        self.closed: Deferred[None] = Deferred()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.closed.callback(None)


class DemoTests(TestCase):
    """The whole thing, in real processes."""

    timeout = 60

    def demo(self, *flags: str) -> Watched:
        return start(self, "-m", "twisted_router.cli.main", "demo", *flags)

    async def started(self) -> tuple[Watched, str, list[str]]:
        """A demo that is ready: the process, the router's URL, the replicas' addresses."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        watched = self.demo("--port", str(port))
        await watched.wrote(b"Ctrl-C ends everything")
        sims = re.findall(r"^sim\d +http://(\S+)/v1 ", watched.out.decode(), re.MULTILINE)
        return watched, f"http://127.0.0.1:{port}", sims

    async def chat(self, url: str, session: str) -> int:
        """One turn; how many of its prompt tokens were cached."""
        pool = HTTPConnectionPool(reactor, persistent=False)
        response = await treq.post(
            f"{url}/v1/chat/completions", json=CHAT, headers={"X-Session-Id": session}, pool=pool
        )
        answer = await response.json()
        return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])

    async def connections(self, sims: list[str]) -> list[Deferred[None]]:
        """Deferreds that fire as each replica's process is gone."""
        closed = []
        for address in sims:
            endpoint = clientFromString(reactor, "tcp:" + address)
            connection = await endpoint.connect(Factory.forProtocol(Closing))
            closed.append(connection.closed)
        return closed

    async def test_two_turns(self) -> None:
        """The second turn of an id hits the same replica and its cache; Ctrl-C ends all with 0."""
        watched, url, sims = await self.started()
        self.assertEqual([await self.chat(url, "s1"), await self.chat(url, "s1")], [0, 48])
        await watched.wrote(b"affinity=hit reason=")
        lines = [line for line in watched.out.decode().splitlines() if line.startswith("POST ")]
        names = {re.findall(r"\bsim\d\b", line)[0] for line in lines}
        self.assertEqual((len(lines), len(names)), (2, 1))
        closed = await self.connections(sims)
        directory = re.findall(r"fleet file (\S+)/fleet.json", watched.out.decode())[0]
        asked = reactor.seconds()
        watched.signal("INT")
        self.assertEqual(await watched.ended, 0)
        # Told to end, not left until they are killed.
        self.assertLess(reactor.seconds() - asked, GRACE)
        for connection in closed:
            await connection
        self.assertFalse(os.path.exists(directory))

    async def test_killed(self) -> None:
        """When the demo is killed outright, its replicas go with it."""
        watched, _, sims = await self.started()
        self.assertEqual(len(sims), 2)
        closed = await self.connections(sims)
        watched.signal("KILL")
        for connection in closed:
            await connection

    async def test_port_in_use(self) -> None:
        """A port asked for that is taken is 69, and no other one is taken instead."""
        taken = reactor.listenTCP(0, Factory.forProtocol(Protocol), interface="127.0.0.1")
        self.addCleanup(taken.stopListening)
        watched = self.demo("--port", str(taken.getHost().port))
        self.assertEqual(await watched.ended, 69)
        self.assertIn(b"pypto-router demo: error: ", watched.err)
