"""The parts put together: configuration in, service out. Builds, and decides nothing."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Mapping
from secrets import token_hex
from typing import Any, cast

from twisted.application.service import IService
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from . import __version__
from .config.advice import warnings
from .config.model import FleetConfig, ReplicaConfig, Settings
from .core.effects import Effect, Retired, Routed
from .core.fleet import Fleet
from .core.members import Member
from .core.places import Rules
from .core.policies.informed import Informed
from .core.policies.registry import POLICIES, inform, policy_of
from .core.sessions import Pins
from .core.slots import cut_slots, plan_pool
from .core.snapshot import FleetView
from .core.supervision import Launching
from .launch.choose import make_launcher
from .proxy.clients import Clients
from .proxy.connect import endpoint_for
from .proxy.deadlines import Deadlines
from .proxy.exchange import Front
from .proxy.head import SessionFinder
from .proxy.holding import Holding
from .services.admin import Admin
from .services.adoption import Adoption
from .services.capacity import CapacityReader
from .services.keeper import Keeper
from .services.pinsaving import PinSaver
from .services.presence import knocker
from .services.prober import ProbeClient, Prober, ask_health, probe_timeout
from .services.root import RouterService
from .services.signals import Signals
from .services.statefile import NoStateFile, StateFile
from .services.traffic import Traffic
from .telemetry.lag import LagMeter
from .telemetry.logs import access
from .telemetry.metrics import Metrics
from .telemetry.trace import TraceFile
from .web.app import RouterApp
from .web.auth import Guard
from .web.fleet import FleetCalls
from .web.limits import Doors, Limits, raise_open_files
from .web.listening import PatientPort
from .web.openai import RelayResource
from .web.site import RouterSite

_log = Logger()

#: Connections the kernel may queue before they are accepted; Twisted's 50 make a burst wait a second.
BACKLOG = 4096


#: When the garbage collector looks: after so many new objects, less those gone; every third time also at what
#: was there the last time; every ninth at everything, about as often as with Python's own 700, 10, 10.
COLLECT_AFTER = (10_000, 2, 2)


def assemble(config: FleetConfig, settings: Settings, reactor: Any) -> IService:
    """Build the router.

    :param reactor: its clock is made monotonic: with Twisted's own, wall time, a step of the clock would
        stall every timer or fire them all at once.
    :raises ConfigError: a certificate file of a replica cannot be used.
    :raises OSError: no private directory for ssh's sockets can be made.
    """
    reactor.seconds = time.monotonic
    parts = _Parts(config, settings, reactor)
    root = parts.root()
    parts.prober.setServiceParent(root)
    if settings.state_file is not None:
        parts.pin_saver().setServiceParent(root)
    if parts.trace is not None:
        parts.trace.setServiceParent(root)
    if parts.fleet.is_gated:
        CapacityReader(parts.fleet, parts.fetch_metrics, reactor).setServiceParent(root)
    if parts.informed is not None:
        parts.kv_events(parts.informed).setServiceParent(root)
    LagMeter(reactor, parts.metrics.lag.observe).setServiceParent(root)
    Signals(reactor, root).install()
    # Not before: a start that fails says so in one line.
    reactor.callWhenRunning(announce, config, settings)
    reactor.callWhenRunning(settle_heap)
    return root


class _Parts:
    """Everything that lives as long as the router, in the order in which one part needs another."""

    def __init__(self, config: FleetConfig, settings: Settings, reactor: Any) -> None:
        self.config = config
        self.settings = settings
        self.reactor = reactor
        self.slots = {slot.name: slot for slot in cut_slots(config.hosts)}
        self.static = {replica.name: replica for replica in config.replicas}
        self.endpoints = {name: self.endpoint_to(replica) for name, replica in self.static.items()}
        self.pins = Pins(settings.session_ttl)
        self.informed: Informed | None = None
        self.fleet = self.make_fleet()
        self.holding = self.make_holding()
        self.clients = Clients(reactor, self.endpoint_of, settings.connect_timeout)
        self.metrics = self.make_metrics()
        path = settings.record_trace
        self.trace = None if path is None else TraceFile(path, reactor, time.monotonic)
        self.traffic = Traffic()
        self.patience = probe_timeout(settings.health_interval, settings.connect_timeout)
        self.knock = knocker(
            lambda address, port: self.endpoint_to(ReplicaConfig("", address, port)),
            reactor,
            settings.connect_timeout,
        )
        state_file = settings.state_file
        self.store = NoStateFile() if state_file is None else StateFile(state_file)
        state_dir = state_directory(state_file, os.environ)
        self.open_files = raise_open_files()
        self.launchers = {
            host.name: make_launcher(host, reactor, time.monotonic, state_dir, self.open_files.original)
            for host in config.hosts
        }
        self.keeper = self.make_keeper()
        self.prober = Prober(
            self.fleet,
            self.probe,
            self.keeper.apply,
            reactor,
            time.monotonic,
            interval=settings.health_interval,
            timeout=self.patience,
        )

    def make_fleet(self) -> Fleet:
        settings, hosts = self.settings, self.config.hosts
        pool = plan_pool(hosts, settings.initial_replicas, settings.max_replicas)
        policy = policy_of(settings)
        if settings.kv_events:
            policy, self.informed = inform(policy)
        fleet = Fleet(
            policy,
            self.pins,
            veto=2 * settings.health_interval if settings.traffic_veto else 0,
            launching=Launching(pool, Rules.of(settings), lambda: token_hex(16)),
            max_outstanding=settings.max_outstanding,
        )
        for replica in self.config.replicas:
            fleet.add_static(replica.name, replica.url)
        return fleet

    def make_holding(self) -> Holding | None:
        settings = self.settings
        if not settings.queue_size and not self.fleet.is_gated:
            return None
        return Holding(
            self.fleet,
            self.reactor,
            time.monotonic,
            size=settings.queue_size,
            timeout=settings.queue_timeout,
            max_hold=settings.max_hold,
            eta=lambda: self.snapshot().eta,
        )

    def make_metrics(self) -> Metrics:
        metrics = Metrics(self.snapshot, access if self.settings.access_log else None)
        if self.holding is not None:
            metrics.waiting.set_function(self.holding.__len__)
        return metrics

    def make_keeper(self) -> Keeper:
        return Keeper(
            self.fleet,
            self.slots.values(),
            self.launchers,
            self.store,
            self.reactor,
            time.monotonic,
            knock=self.knock,
            probe_now=lambda instance: self.prober.probe_now(instance),
            observe=self.observe,
            stop_grace=self.settings.stop_grace,
            detach=self.settings.detach_on_exit,
        )

    def endpoint_to(self, replica: ReplicaConfig) -> IStreamClientEndpoint:
        return endpoint_for(self.reactor, replica, self.settings.connect_timeout)

    def endpoint_of(self, member: Member) -> IStreamClientEndpoint:
        known = self.endpoints.get(member.instance)
        if known is not None:
            return known
        slot = self.slots[member.name]
        return self.endpoint_to(ReplicaConfig(slot.name, slot.address, slot.port))

    def probe(self, member: Member) -> Deferred[int]:
        replica = self.static.get(member.name) or self.slots[member.name]
        client = cast(ProbeClient, self.clients(member))
        return ask_health(client, replica.health_path.encode("ascii"))

    def fetch_metrics(self, member: Member) -> Deferred[bytes]:
        return self.clients(member).request(b"GET", b"/metrics").addCallback(lambda answer: answer.content())

    def observe(self, effect: Effect) -> None:
        self.metrics.performed(effect)
        if isinstance(effect, Retired):
            self.clients.forget(effect.instance)
        elif isinstance(effect, Routed) and self.holding is not None:
            # Those who wait go on once this effect and those beside it are done.
            self.reactor.callLater(0, self.holding.poke)

    def snapshot(self) -> FleetView:
        return self.fleet.snapshot(time.monotonic())

    def front(self) -> Front:
        return Front(
            self.fleet,
            self.clients,
            self.traffic.enter,
            self.traffic.leave,
            self.keeper.apply,
            self.metrics,
            SessionFinder(self.settings.session_sources),
            Deadlines(self.reactor, self.settings.request_timeout),
            time.monotonic,
            lambda: token_hex(16),
            self.settings.receipts,
            self.holding,
            None if self.trace is None else self.trace.record,
        )

    def site(self) -> RouterSite:
        settings = self.settings
        guard = Guard(settings.admin_token, is_open=settings.admin_open or not self.config.hosts)
        admin = Admin(
            self.fleet, self.keeper, self.slots.values(), self.launchers, self.knock, time.monotonic
        )
        relay = RelayResource(self.front())
        app = RouterApp(
            relay,
            self.snapshot,
            self.metrics.render,
            FleetCalls(admin, self.snapshot, guard),
            lambda: self.traffic.closing,
        )
        doors = Doors.of(settings.max_connections, self.open_files.soft, len(self.static) + len(self.slots))
        limits = Limits(settings.max_body, settings.max_body_total)
        return RouterSite(app.resource(), relay, limits, doors, self.reactor)

    def root(self) -> RouterService:
        settings, reactor, site = self.settings, self.reactor, self.site()
        return RouterService(
            reactor,
            listen=lambda: self.listen(site),
            when_running=reactor.callWhenRunning,
            traffic=self.traffic,
            recorded=Adoption(
                self.fleet,
                self.keeper,
                self.store,
                self.probe,
                self.knock,
                reactor,
                time.monotonic,
                timeout=self.patience,
            ),
            replicas=self.keeper,
            close_pool=self.clients.close,
            drain_timeout=settings.drain_timeout,
        )

    def listen(self, site: RouterSite) -> PatientPort:
        settings = self.settings
        port = PatientPort(settings.port, site, BACKLOG, settings.host, self.reactor, at_once=site.doors.told)
        port.startListening()
        return port

    def kv_events(self, informed: Informed) -> IService:
        # Not above: what this needs is an extra that may not be installed.
        from .services.kvevents import KvEventsReader, Source

        sources = {
            name: Source(name, replica.kv_events, replica.kv_events_replay)
            for name, replica in self.static.items()
            if replica.kv_events is not None
        }
        metrics = self.metrics
        return KvEventsReader(
            sources, informed, self.reactor, time.monotonic, metrics.cache_told, metrics.cache_followed
        )

    def pin_saver(self) -> PinSaver:
        reactor = self.reactor
        return PinSaver(
            self.pins,
            self.store,
            reactor,
            time.monotonic,
            lambda save: deferToThreadPool(reactor, reactor.getThreadPool(), save),
        )


def settle_heap() -> None:
    """Let the garbage collector leave alone what lives as long as the router.

    A full collection would look at all of it: 45 ms in which nothing is relayed, several times in 10 s of
    load. Nor do young objects need a look after every 700: requests leave no cycles behind, and what 32 of
    them hold at once is more than that.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


def announce(config: FleetConfig, settings: Settings) -> None:
    """Log what is about to run, and what a person may not have meant."""
    slots = cut_slots(config.hosts)
    _log.info(
        "pypto-router {version}: {replicas} replicas given, {slots} slots to launch on, policy {policy}",
        version=__version__,
        replicas=len(config.replicas),
        slots=len(slots),
        policy=settings.policy,
    )
    for advice in warnings(config):
        _log.warn("{advice}", advice=advice)
    harm = POLICIES[settings.policy.partition(":")[0]].harm
    if harm:
        _log.warn("policy {policy}: {harm}", policy=settings.policy, harm=harm)
    if slots and settings.admin_token is None:
        who = "anybody who can connect" if settings.admin_open else "callers on this machine"
        _log.warn("no --admin-token: {who} can launch and stop replicas", who=who)


def state_directory(state_file: str | None, environ: Mapping[str, str]) -> str:
    """Where logs and locks of local replicas lie by default: private to this user, never shared."""
    if state_file is not None:
        return os.path.dirname(os.path.abspath(os.path.expanduser(state_file)))
    if environ.get("STATE_DIRECTORY"):
        return environ["STATE_DIRECTORY"].partition(":")[0]
    home = environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(home, "pypto-router")
