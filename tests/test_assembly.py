from __future__ import annotations

import gc
import json
import os
import signal
import socket
import time

from attrs import evolve
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tests.proxy.fakes import Answers, Line
from twisted_router import __version__
from twisted_router.assembly import COLLECT_AFTER, _Parts, announce, assemble, state_directory
from twisted_router.config.model import FleetConfig, HostConfig, ReplicaConfig, Settings
from twisted_router.core.effects import ProbeAnswered, ProbeSilent, Retired, Silence
from twisted_router.core.members import Member
from twisted_router.errors import ConfigError
from twisted_router.services.capacity import CapacityReader
from twisted_router.services.pinsaving import PinSaver
from twisted_router.services.root import RouterService
from twisted_router.telemetry.trace import TraceFile
from twisted_router.web.listening import PatientPort
from twisted_router.web.site import RouterSite

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


class Wiring(AssemblyTestCase):
    """What the parts are told of one another."""

    def make(self, config: FleetConfig = STATIC, **settings: object) -> _Parts:
        given = {"host": "127.0.0.1", "port": 0, **settings}
        return _Parts(config, Settings(**given), self.reactor)  # type: ignore[arg-type]

    def call(self, site: RouterSite) -> Line:
        line = Line(self.clock)
        line.carry(site.buildProtocol(line.getPeer()))
        line.deliver(b"GET /v1/models HTTP/1.1\r\nHost: r\r\n\r\n")
        return line

    def test_those_who_wait(self) -> None:
        """As soon as a replica is routable, who waits for one goes on to it."""
        parts = self.make(queue_size=5)
        for name in ("node0", "node1"):
            for _ in range(2):
                parts.keeper.apply(ProbeSilent(name, Silence.REFUSED))
        self.call(parts.site())
        assert parts.holding is not None
        self.assertEqual((len(parts.holding), self.reactor.tcpClients), (1, []))
        parts.keeper.apply(ProbeAnswered("node1", 200))
        self.reactor.advance(0)
        self.assertEqual(len(parts.holding), 0)
        ((host, port, *_),) = self.reactor.tcpClients
        self.assertEqual((host, port), ("::1", 8002))

    def test_retired(self) -> None:
        """The connections to a replica that is gone are let go, those to others are not."""
        parts = self.make()
        gone, other = parts.fleet.members()
        clients = [parts.clients(member) for member in (gone, other)]
        parts.observe(Retired(gone.name, gone.instance, True, ""))
        self.assertIsNot(parts.clients(gone), clients[0])
        self.assertIs(parts.clients(other), clients[1])

    def test_a_slots_address(self) -> None:
        """What runs in a slot is reached where the slot says, with the host's own health path."""
        host = HostConfig("far", (2,), model="/m", ssh="me@fd00::7", ssh_client="conch", health_path="/up")
        parts = self.make(FleetConfig(hosts=(host,)))
        (slot,) = parts.slots.values()
        member = Member(slot.name, "i1", slot.url, ready=False, owned=True)
        parts.probe(member)
        ((address, port, factory, *_),) = self.reactor.tcpClients
        self.assertEqual((address, port), ("fd00::7", 8003))
        line = Line(self.clock)
        line.carry(factory.buildProtocol(line.getPeer()))
        self.assertTrue(
            line.value().startswith(b"GET /up HTTP/1.1\r\nHost: [fd00::7]:8003\r\n"), line.value()
        )

    def test_reported_capacity(self) -> None:
        """With a gate every replica is asked for the capacity it reports, without one nobody is."""
        for settings, asked in (({}, 0), ({"policy": "work", "gate": True}, 1)):
            root = self.build(**settings)
            self.assertEqual(len([part for part in root if isinstance(part, CapacityReader)]), asked)
        told = self.make(policy="work", gate=True)
        told.fetch_metrics(next(iter(told.fleet.members())))
        ((_, _, factory, *_),) = self.reactor.tcpClients
        line = Line(self.clock)
        line.carry(factory.buildProtocol(line.getPeer()))
        self.assertTrue(line.value().startswith(b"GET /metrics HTTP/1.1\r\n"))

    def test_trace(self) -> None:
        """What is served is recorded where the command line says, and the file is the service's to keep."""
        parts = self.make(record_trace=self.mktemp())
        assert parts.trace is not None
        self.assertEqual(parts.front().record, parts.trace.record)
        self.assertIsNone(self.make().front().record)
        root = self.build(record_trace=self.mktemp())
        self.assertEqual(len([part for part in root if isinstance(part, TraceFile)]), 1)


class Announcing(SynchronousTestCase):
    """What the log says once, at the start."""

    def said(self, config: FleetConfig, **settings: object) -> list[str]:
        events: list[LogEvent] = []
        globalLogPublisher.addObserver(events.append)  # type: ignore[arg-type]
        try:
            announce(config, Settings(**settings))  # type: ignore[arg-type]
        finally:
            globalLogPublisher.removeObserver(events.append)  # type: ignore[arg-type]
        return [f"{event['log_level'].name}: {formatEvent(event)}" for event in events]

    def test_quiet(self) -> None:
        """Where there is nothing to warn of it is one line, with the version and what there is."""
        (line,) = self.said(STATIC)
        self.assertEqual(
            line, f"info: pypto-router {__version__}: 2 replicas given, 0 slots to launch on, policy session"
        )

    def test_no_token(self) -> None:
        """Who can launch and stop replicas without a token is said, and nothing where there is one."""
        for settings, who in (
            ({}, "callers on this machine"),
            ({"admin_open": True}, "anybody who can connect"),
        ):
            self.assertEqual(
                self.said(HOSTS, **settings)[1:],
                [f"warn: no --admin-token: {who} can launch and stop replicas"],
            )
        self.assertEqual(self.said(HOSTS, admin_token="sesame")[1:], [])

    def test_harm(self) -> None:
        """A policy that does harm says so, with or without parameters."""
        for policy in ("round_robin", "sticky_least_loaded:ttl=5"):
            (line,) = self.said(STATIC, policy=policy)[1:]
            self.assertTrue(line.startswith(f"warn: policy {policy}: conversations "), line)

    def test_advice(self) -> None:
        """What the configuration may not mean is said as ``check-config`` says it."""
        twice = FleetConfig((STATIC.replicas[0], evolve(STATIC.replicas[0], name="again")))
        (line,) = self.said(twice)[1:]
        self.assertEqual(
            line,
            "warn: replicas node0 and again are one address, http://127.0.0.1:8001: its load counts twice",
        )


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
