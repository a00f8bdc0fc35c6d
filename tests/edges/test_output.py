"""Programs whose output nobody takes."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.error import ConnectError
from twisted.internet.protocol import Factory
from twisted.trial.unittest import TestCase

from tests.edges.rig import Peer, Replica, answer_each, post
from tests.programs import Watched

#: Requests whose log lines are several times what a pipe holds.
REQUESTS = 3000


class UnreadOutput(TestCase):
    timeout = 60.0

    async def assert_serves(self, *program: str) -> None:
        """Start a router with an access log into a pipe that is never read, and ask it a lot."""
        replica = Replica(answer_each())
        behind = reactor.listenTCP(0, replica, interface="127.0.0.1")
        self.addCleanup(behind.stopListening)
        fleet = Path(self.mktemp())
        fleet.write_text(f'{{"replicas": [{{"host": "127.0.0.1", "port": {behind.getHost().port}}}]}}')
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        taken = reactor.listenTCP(0, Factory(), interface="127.0.0.1")
        port = taken.getHost().port
        await taken.stopListening()
        flags = ["--replicas", str(fleet), "--host", "127.0.0.1", "--port", str(port), "--access-log"]
        watched = Watched()
        reactor.spawnProcess(
            watched, program[0], [*program, *flags], env=None, childFDs={0: "w", 1: writing, 2: writing}
        )
        os.close(writing)
        self.addCleanup(self.end, watched)
        client = await self.connected(port, watched)
        for _ in range(0, REQUESTS, 100):
            client.transport.write(post() * 100)
        await client.hears(b"HTTP/1.1 200 ", REQUESTS)
        self.assertIsNone(client.over)
        client.transport.abortConnection()
        for peer in (client, *replica.peers):
            await peer.ends()

    async def connected(self, port: int, watched: Watched) -> Peer:
        """A connection, as soon as there is somebody who takes it."""
        factory = Factory.forProtocol(Peer)
        factory.noisy = False
        while not watched.ended.called:
            try:
                return await TCP4ClientEndpoint(reactor, "127.0.0.1", port).connect(factory)
            except ConnectError:
                turn: Deferred[None] = Deferred()
                reactor.callLater(0.05, turn.callback, None)
                await turn
        raise AssertionError("it ended at once")

    async def end(self, watched: Watched) -> None:
        watched.signal("KILL")
        await watched.ended

    async def test_twistd(self) -> None:
        """``twistd -n`` serves on when nobody reads its standard output."""
        twistd = shutil.which("twistd", path=str(Path(sys.executable).parent))
        assert twistd is not None
        await self.assert_serves(twistd, "-n", "--pidfile=", "pypto-router")

    async def test_json_lines(self) -> None:
        """So does it with lines of JSON."""
        twistd = shutil.which("twistd", path=str(Path(sys.executable).parent))
        assert twistd is not None
        observer = "twisted_router.telemetry.logs.json_lines"
        await self.assert_serves(twistd, "-n", "--pidfile=", "--logger", observer, "pypto-router")

    async def test_console_script(self) -> None:
        """So does the router's own program."""
        await self.assert_serves(sys.executable, "-m", "twisted_router.cli.main", "serve")
