"""The parts put together: configuration in, service out. Builds, and decides nothing."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping
from typing import Any, cast

from twisted.application.service import IService
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.threads import deferToThreadPool

from .config.model import FleetConfig, ReplicaConfig, Settings
from .core.effects import Effect, Retired
from .core.fleet import Fleet, Member
from .core.places import Rules
from .core.policies.session import SessionAffinity
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
from .services.admin import Admin
from .services.adoption import Adoption
from .services.keeper import Keeper
from .services.pinsaving import PinSaver
from .services.presence import knocker
from .services.prober import ProbeClient, Prober, ask_health, probe_timeout
from .services.root import RouterService
from .services.signals import Signals
from .services.statefile import NoStateFile, StateFile
from .services.traffic import Traffic
from .telemetry.logs import access
from .telemetry.metrics import Metrics
from .web.app import RouterApp
from .web.auth import Guard
from .web.fleet import FleetCalls
from .web.openai import RelayResource
from .web.site import Limits, RouterSite

#: Connections the kernel may queue before they are accepted; Twisted's 50 make a burst wait a second.
BACKLOG = 4096


def assemble(config: FleetConfig, settings: Settings, reactor: Any) -> IService:
    """Build the router.

    :param reactor: its clock is made monotonic: with Twisted's own, wall time, a step of the clock would
        stall every timer or fire them all at once.
    :raises ConfigError: a certificate file of a replica cannot be used.
    :raises OSError: no private directory for ssh's sockets can be made.
    """
    reactor.seconds = now = time.monotonic
    slots = cut_slots(config.hosts)
    pins = Pins(settings.session_ttl)
    fleet = Fleet(
        SessionAffinity(settings.affinity_slack),
        pins,
        veto=2 * settings.health_interval if settings.traffic_veto else 0,
        launching=Launching(
            plan_pool(config.hosts, settings.initial_replicas, settings.max_replicas),
            Rules.of(settings),
            lambda: uuid.uuid4().hex,
        ),
    )
    endpoints = {
        replica.name: endpoint_for(reactor, replica, settings.connect_timeout) for replica in config.replicas
    }
    health_paths = {replica.name: replica.health_path for replica in config.replicas}
    health_paths.update((slot.name, slot.health_path) for slot in slots)
    addresses = {slot.name: slot for slot in slots}

    def endpoint(member: Member) -> IStreamClientEndpoint:
        known = endpoints.get(member.instance)
        if known is not None:
            return known
        slot = addresses[member.name]
        launched = ReplicaConfig(slot.name, slot.address, slot.port)
        return endpoint_for(reactor, launched, settings.connect_timeout)

    clients = Clients(reactor, endpoint, settings.connect_timeout)
    for replica in config.replicas:
        fleet.add_static(replica.name, replica.url)

    def observe(effect: Effect) -> None:
        metrics.performed(effect)
        if isinstance(effect, Retired):
            clients.forget(effect.instance)

    store = NoStateFile() if settings.state_file is None else StateFile(settings.state_file)
    state_dir = state_directory(settings.state_file, os.environ)
    launchers = {host.name: make_launcher(host, reactor, state_dir) for host in config.hosts}
    knock = knocker(reactor, settings.connect_timeout)
    keeper = Keeper(
        fleet,
        slots,
        launchers,
        store,
        reactor,
        now,
        knock=knock,
        probe_now=lambda instance: prober.probe_now(instance),
        observe=observe,
        stop_grace=settings.stop_grace,
        detach=settings.detach_on_exit,
    )
    patience = probe_timeout(settings.health_interval, settings.connect_timeout)

    def probe(member: Member) -> Deferred[int]:
        return ask_health(cast(ProbeClient, clients(member)), health_paths[member.name].encode("ascii"))

    prober = Prober(
        fleet, probe, keeper.apply, reactor, now, interval=settings.health_interval, timeout=patience
    )
    adoption = Adoption(fleet, keeper, store, probe, knock, reactor, now, timeout=patience)

    def snapshot() -> FleetView:
        return fleet.snapshot(now())

    traffic = Traffic()
    metrics = Metrics(snapshot, access if settings.access_log else None)
    front = Front(
        fleet,
        clients,
        traffic.enter,
        keeper.apply,
        metrics,
        SessionFinder(settings.session_sources),
        Deadlines(reactor, settings.request_timeout),
        now,
        lambda: uuid.uuid4().hex,
        settings.request_timeout,
    )
    relay = RelayResource(front)
    guard = Guard(settings.admin_token, is_open=settings.admin_open or not config.hosts)
    calls = FleetCalls(Admin(fleet, keeper, slots, launchers, knock, now), snapshot, guard)
    app = RouterApp(relay, snapshot, metrics.render, calls, lambda: traffic.closing)
    site = RouterSite(app.resource(), relay, Limits(settings.max_body, settings.max_body_total), reactor)
    root = RouterService(
        reactor,
        listen=lambda: reactor.listenTCP(settings.port, site, BACKLOG, settings.host),
        when_running=reactor.callWhenRunning,
        traffic=traffic,
        recorded=adoption,
        replicas=keeper,
        close_pool=clients.close,
        drain_timeout=settings.drain_timeout,
    )
    prober.setServiceParent(root)
    PinSaver(
        pins, store, reactor, now, lambda save: deferToThreadPool(reactor, reactor.getThreadPool(), save)
    ).setServiceParent(root)
    Signals(reactor, root).install()
    return root


def state_directory(state_file: str | None, environ: Mapping[str, str]) -> str:
    """Where logs and locks of local replicas lie by default: private to this user, never shared."""
    if state_file is not None:
        return os.path.dirname(os.path.abspath(os.path.expanduser(state_file)))
    if environ.get("STATE_DIRECTORY"):
        return environ["STATE_DIRECTORY"].partition(":")[0]
    home = environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(home, "pypto-router")
