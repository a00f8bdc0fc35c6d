from __future__ import annotations

import gc
import json
import os
import signal
import socket
import time

from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from tests.proxy.fakes import Answers, Line
from twisted_router.assembly import COLLECT_AFTER, assemble, state_directory
from twisted_router.config.model import FleetConfig, HostConfig, ReplicaConfig, Settings
from twisted_router.errors import ConfigError
from twisted_router.services.pinsaving import PinSaver
from twisted_router.services.root import RouterService
from twisted_router.web.listening import PatientPort

STATIC = FleetConfig((ReplicaConfig("node0", "127.0.0.1", 8001), ReplicaConfig("node1", "::1", 8002)))
HOSTS = FleetConfig(hosts=(HostConfig("here", (0, 1), model="/m"),))


class AssemblyTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        self.addCleanup(gc.unfreeze)
        self.addCleanup(gc.set_threshold, *gc.get_threshold())
        self.reactor = MemoryReactorClock()
        self.clock = Clock()

    def build(self, config: FleetConfig = STATIC, **settings: object) -> RouterService:
        settings = {"host": "127.0.0.1", "port": 0, **settings}
        if config.hosts:
            settings.setdefault("state_file", os.path.abspath(self.mktemp()))
        root = assemble(config, Settings(**settings), self.reactor)  # type: ignore[arg-type]
        assert isinstance(root, RouterService)
        return root

    def listen(self, config: FleetConfig = STATIC, **settings: object) -> RouterService:
        root = self.root = self.build(config, **settings)
        root.privilegedStartService()
        assert isinstance(root.port, PatientPort)
        self.port = root.port
        self.addCleanup(self.port.socket.close)
        return root

    def ask(self, request: str, peer: str = "127.0.0.1", fields: str = "") -> tuple[int, object]:
        """Send a request to what listens; return the status and JSON of the answer."""
        factory = self.port.factory
        line = Line(self.clock, peer)
        line.carry(factory.buildProtocol(line.getPeer()))
        line.deliver(f"{request} HTTP/1.1\r\nHost: r\r\nContent-Length: 0\r\n{fields}\r\n".encode())
        answer = Answers(line.value()).next()
        return answer.status, json.loads(answer.read())


class Parts(AssemblyTestCase):
    def test_port(self) -> None:
        """It listens where the command line says, with room for a burst of connections."""
        self.listen(host="127.0.0.2", port=0)
        self.assertEqual((self.port.getHost().host, self.port.backlog), ("127.0.0.2", 4096))
        self.assertEqual(self.port.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN), 1)

    def test_nothing_before(self) -> None:
        """Building it binds, connects and starts nothing."""
        root = self.build()
        self.assertIsNone(root.port)
        self.assertEqual((self.reactor.readers, self.reactor.tcpClients), (set(), []))
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_monotonic(self) -> None:
        """The reactor's clock does not jump with the wall's."""
        self.build()
        self.assertIs(self.reactor.seconds, time.monotonic)

    def test_pins(self) -> None:
        """Pins are saved where there is a file to save them to, and no thread is begun for it elsewhere."""
        for path, savers in ((None, 0), (os.path.abspath(self.mktemp()), 1)):
            root = self.build(state_file=path)
            self.assertEqual(len([part for part in root if isinstance(part, PinSaver)]), savers)

    def test_heap(self) -> None:
        """Once the reactor runs, collections leave alone what has been built, and are rare."""
        gc.unfreeze()
        self.build()
        self.assertEqual(gc.get_freeze_count(), 0)
        self.reactor.run()
        self.assertGreater(gc.get_freeze_count(), 0)
        self.assertEqual(gc.get_threshold(), COLLECT_AFTER)

    def test_replicas(self) -> None:
        """The file's replicas are what ``/health`` shows."""
        self.listen()
        status, document = self.ask("GET /health")
        assert isinstance(document, dict)
        self.assertEqual((status, document["replicas_total"], document["replicas_ready"]), (200, 2, 2))
        self.assertEqual(
            [(replica["name"], replica["url"]) for replica in document["replicas"]],
            [("node0", "http://127.0.0.1:8001"), ("node1", "http://[::1]:8002")],
        )

    def test_slots(self) -> None:
        """The file's hosts are what may be launched on."""
        self.listen(HOSTS, max_replicas=1)
        _, document = self.ask("GET /replicas")
        assert isinstance(document, dict)
        self.assertEqual(document["capacity"]["ceiling"], 1)

    def test_probes(self) -> None:
        """Every replica is asked for its health once the service runs."""
        self.listen().startService()
        asked = {(host, port) for host, port, *_ in self.reactor.tcpClients}
        self.assertEqual(asked, {("127.0.0.1", 8001), ("::1", 8002)})

    def test_relay(self) -> None:
        """A model request goes to a replica, with the connect timeout of the command line."""
        self.listen(connect_timeout=2.5)
        factory = self.port.factory
        line = Line(self.clock)
        line.carry(factory.buildProtocol(line.getPeer()))
        line.deliver(b"GET /v1/models HTTP/1.1\r\nHost: r\r\n\r\n")
        ((_, port, _, timeout, _),) = self.reactor.tcpClients
        self.assertIn(port, (8001, 8002))
        self.assertEqual(timeout, 2.5)

    def test_waiting(self) -> None:
        """The metrics say how many requests wait in the queue, also where there is none."""
        for size, waiting in ((0, b"0.0"), (5, b"2.0")):
            self.listen(queue_size=size, max_outstanding=1)
            for _ in range(4):
                line = Line(self.clock)
                line.carry(self.port.factory.buildProtocol(line.getPeer()))
                line.deliver(b"GET /v1/models HTTP/1.1\r\nHost: r\r\n\r\n")
            line = Line(self.clock)
            line.carry(self.port.factory.buildProtocol(line.getPeer()))
            line.deliver(b"GET /metrics HTTP/1.1\r\nHost: r\r\n\r\n")
            self.assertIn(b"\npypto_router_requests_waiting " + waiting + b"\n", line.value())

    def test_body_limit(self) -> None:
        """The limits of the command line are the site's."""
        self.listen(max_body=1000, max_body_total=5000)
        limits = self.port.factory.limits
        self.assertEqual((limits.body, limits.bodies), (1000, 5000))

    def test_certificates(self) -> None:
        """A certificate file that cannot be used stops the start."""
        config = FleetConfig((ReplicaConfig("a", "127.0.0.1", 1, "https", ca_file="/no/such.pem"),))
        with self.assertRaises(ConfigError):
            self.build(config)


class Guarding(AssemblyTestCase):
    elsewhere = "203.0.113.9"

    def status(self, peer: str, fields: str = "") -> int:
        return self.ask("GET /replicas", peer, fields)[0]

    def test_static(self) -> None:
        """With nothing to launch there is nothing to guard."""
        self.listen()
        self.assertEqual(self.status(self.elsewhere), 200)

    def test_hosts(self) -> None:
        """With hosts and no token, only this machine may administrate."""
        self.listen(HOSTS)
        self.assertEqual((self.status("127.0.0.1"), self.status(self.elsewhere)), (200, 403))

    def test_opened(self) -> None:
        """``--admin-open`` lets anybody."""
        self.listen(HOSTS, admin_open=True)
        self.assertEqual(self.status(self.elsewhere), 200)

    def test_token(self) -> None:
        """A token is asked of everybody, for static replicas too."""
        for config in (STATIC, HOSTS):
            self.setUp()
            self.listen(config, admin_token="sesame")
            self.assertEqual(self.status("127.0.0.1"), 401)
            self.assertEqual(self.status(self.elsewhere, "Authorization: Bearer sesame\r\n"), 200)


class StateDirectory(SynchronousTestCase):
    def test_rules(self) -> None:
        """Beside the state file, else where the service manager or the user's own settings say."""
        home = os.path.expanduser("~")
        table: list[tuple[str | None, dict[str, str], str]] = [
            ("/srv/r/state.json", {"STATE_DIRECTORY": "/x"}, "/srv/r"),
            ("~/r/state.json", {}, f"{home}/r"),
            ("state.json", {}, os.getcwd()),
            (None, {"STATE_DIRECTORY": "/var/lib/r:/other", "XDG_STATE_HOME": "/xdg"}, "/var/lib/r"),
            (None, {"XDG_STATE_HOME": "/xdg"}, "/xdg/pypto-router"),
            (None, {"STATE_DIRECTORY": "", "XDG_STATE_HOME": ""}, f"{home}/.local/state/pypto-router"),
        ]
        for state_file, environ, expected in table:
            self.assertEqual(state_directory(state_file, environ), expected)
