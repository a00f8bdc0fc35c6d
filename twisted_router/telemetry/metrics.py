"""The Prometheus registry: counters fed by the data path, gauges read from the fleet's snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from zope.interface import implementer

from .. import __version__
from ..core.effects import Effect, Ending, Note, Phase, RequestEnd, SlotNote, Unrouted
from ..core.kvevents import News
from ..core.policies.vocabulary import Reason
from ..core.snapshot import FleetView
from ..interfaces import IRecorder

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)
_LAGS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_PREFIX = "pypto_router_"


class FleetCollector(Collector):
    """Renders one snapshot, so that ``/health``, ``/replicas`` and ``/metrics`` cannot disagree."""

    def __init__(self, snapshot: Callable[[], FleetView]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        view = self._snapshot()
        phase = GaugeMetricFamily(
            _PREFIX + "replica_phase", "1 for the phase it is in.", None, ("replica", "phase")
        )
        ready = GaugeMetricFamily(
            _PREFIX + "replica_routable", "Whether it gets new work.", None, ("replica",)
        )
        load = GaugeMetricFamily(
            _PREFIX + "replica_outstanding", "Requests under way there.", None, ("replica",)
        )
        for replica in view.replicas:
            for one in Phase:
                phase.add_metric((replica.name, one.value), replica.phase is one)
            ready.add_metric((replica.name,), replica.ready and not replica.draining)
            load.add_metric((replica.name,), replica.outstanding)
        yield from (phase, ready, load)
        slots = GaugeMetricFamily(_PREFIX + "slots", "Declared slots by state.", None, ("state",))
        capacity = view.capacity
        slots.add_metric(("owned",), capacity.owned)
        slots.add_metric(("free",), len(capacity.free_slots) - len(capacity.abandoned))
        slots.add_metric(("unconfirmed",), len(capacity.unconfirmed))
        slots.add_metric(("abandoned",), len(capacity.abandoned))
        yield slots
        yield GaugeMetricFamily(_PREFIX + "sessions", "Pinned conversations.", view.sessions)
        yield CounterMetricFamily(_PREFIX + "routed", "Requests given to a replica.", view.routed)
        yield CounterMetricFamily(
            _PREFIX + "affinity_hits", "Requests that their conversation's pin decided.", view.affinity_hits
        )
        yield CounterMetricFamily(
            _PREFIX + "rejected",
            "Requests that got no replica: none was routable, or free in time.",
            view.rejected,
        )

    def describe(self) -> Iterator[Metric]:
        """Name nothing in advance: registering must not need a fleet."""
        return iter(())


@implementer(IRecorder)
class Metrics:
    """Counts what becomes of requests.

    Children of counters are kept bound: looking one up by its labels costs four times what counting does.

    :param logged: told of every outcome as well, for the access log.
    :ivar waiting: how many requests wait; 0 unless somebody who knows is asked (``set_function``).
    """

    def __init__(
        self, snapshot: Callable[[], FleetView], logged: Callable[[RequestEnd], None] | None = None
    ) -> None:
        self.registry = registry = CollectorRegistry()
        self._logged = logged
        self._name_requests(registry)
        self._name_slots(registry)
        self._name_caches(registry)
        self.waiting = Gauge(
            _PREFIX + "requests_waiting",
            "Requests under way that wait in the router for a replica, or for room in a cache.",
            registry=registry,
        )
        self.lag = Histogram(
            _PREFIX + "reactor_lag_seconds",
            "How late the reactor came to a timer, looked at four times a second.",
            buckets=_LAGS,
            registry=registry,
        )
        Info(_PREFIX + "build", "Version of the router.", registry=registry).info({"version": __version__})
        ProcessCollector(registry=registry)
        registry.register(FleetCollector(snapshot))
        self._by_outcome: dict[tuple[str, int, Ending], Counter] = {}
        self._by_reason: dict[Reason, Counter] = {}
        self._by_replica: dict[str, tuple[Histogram, Histogram, Counter]] = {}

    def _name_requests(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            _PREFIX + "requests",
            "Proxied requests by outcome.",
            ("replica", "code", "ending"),
            registry=registry,
        )
        self._affinity = Counter(
            _PREFIX + "affinity", "Routing decisions by rule.", ("affinity", "reason"), registry=registry
        )
        self._first_byte = Histogram(
            _PREFIX + "time_to_first_byte_seconds",
            "From the complete request to the first body byte.",
            ("replica",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._duration = Histogram(
            _PREFIX + "request_duration_seconds",
            "From the complete request to its end.",
            ("replica",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._bytes = Counter(
            _PREFIX + "relayed_bytes", "Body bytes relayed to clients.", ("replica",), registry=registry
        )
        self._in_flight = Gauge(
            _PREFIX + "requests_in_flight", "Proxied requests under way.", registry=registry
        )
        self._aborts = Counter(
            _PREFIX + "client_aborts", "Requests whose client left before the end.", registry=registry
        )
        self._moved = Counter(
            _PREFIX + "moved_connects", "Refused connections that went to another replica.", registry=registry
        )

    def _name_slots(self, registry: CollectorRegistry) -> None:
        self._slots = Counter(
            _PREFIX + "slot_events", "What happened to slots, by kind.", ("event",), registry=registry
        )
        self._unrouted = Counter(
            _PREFIX + "replica_unrouted", "Times a replica left rotation.", ("replica",), registry=registry
        )
        self._launches = Histogram(
            _PREFIX + "launch_seconds",
            "From the wish for a replica to its first good answer.",
            buckets=(1, 5, 15, 30, 60, 120, 240, 480, 900, 1800),
            registry=registry,
        )

    def _name_caches(self, registry: CollectorRegistry) -> None:
        self._cache_events = Counter(
            _PREFIX + "kv_events",
            "What replicas told of their caches, and what came of it.",
            ("replica", "event"),
            registry=registry,
        )
        self._cache_followed = Gauge(
            _PREFIX + "kv_events_followed",
            "Whether a replica's cache events are heard and understood.",
            ("replica",),
            registry=registry,
        )

    def cache_told(self, replica: str, news: News, amount: int) -> None:
        """Count what a replica's cache events said."""
        if amount:
            self._cache_events.labels(replica, news.value).inc(amount)

    def cache_followed(self, replica: str, is_followed: bool) -> None:
        """Show whether a replica's cache events are heard and understood."""
        self._cache_followed.labels(replica).set(is_followed)

    def started(self) -> None:
        """See ``IRecorder``."""
        self._in_flight.inc()

    def ended(self, outcome: RequestEnd) -> None:
        """See ``IRecorder``."""
        self._in_flight.dec()
        replica = outcome.replica or ""
        key = (replica, outcome.status // 100, outcome.ending)
        counter = self._by_outcome.get(key)
        if counter is None:
            counter = self._requests.labels(replica, f"{key[1]}xx", outcome.ending.value)
            self._by_outcome[key] = counter
        counter.inc()
        if outcome.ending is Ending.CLIENT_GONE:
            self._aborts.inc()
        if outcome.reason is not None:
            self._chosen(outcome.reason)
            bound = self._by_replica.get(replica)
            if bound is None:
                bound = self._by_replica[replica] = (
                    self._first_byte.labels(replica),
                    self._duration.labels(replica),
                    self._bytes.labels(replica),
                )
            if outcome.first_byte is not None:
                bound[0].observe(outcome.first_byte)
            bound[1].observe(outcome.seconds)
            bound[2].inc(outcome.sent)
        if self._logged is not None:
            self._logged(outcome)

    def connect_moved(self, from_replica: str, to_replica: str) -> None:
        """See ``IRecorder``."""
        self._moved.inc()

    def performed(self, effect: Effect) -> None:
        """Count what happens to slots and replicas."""
        if isinstance(effect, SlotNote):
            self._slots.labels(effect.note.value).inc()
            if effect.note is Note.READY and effect.seconds is not None:
                self._launches.observe(effect.seconds)
        elif isinstance(effect, Unrouted) and not effect.planned:
            self._unrouted.labels(effect.name).inc()

    def render(self, accept: str) -> tuple[str, bytes]:
        """Return content type and exposition for an ``Accept`` header; the plain one for a senseless one."""
        try:
            encode, kind = choose_encoder(accept)
        except (ValueError, TypeError):  # a version that is none
            encode, kind = choose_encoder("")
        return kind, encode(self.registry)

    def _chosen(self, reason: Reason) -> None:
        counter = self._by_reason.get(reason)
        if counter is None:
            counter = self._affinity.labels(reason.affinity.value, reason.value)
            self._by_reason[reason] = counter
        counter.inc()
