from __future__ import annotations

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from twisted_router import __version__
from twisted_router.core.effects import Ending, Note, Phase, RequestEnd, SlotNote, Unrouted
from twisted_router.core.policies.vocabulary import Reason
from twisted_router.core.snapshot import CapacityView, FleetView, ReplicaView
from twisted_router.interfaces import IRecorder
from twisted_router.telemetry.metrics import Metrics

A = ReplicaView("a", "a", "http://a:1", True, Phase.READY, False, False, 3, 7)
B = ReplicaView("b", "i1", "http://b:1", True, Phase.DRAINING, True, True, 1, 2)
CAPACITY = CapacityView(2, 4, ("d1", "d2"), (), ("d2",), ())


def outcome(ending: Ending = Ending.DONE, status: int = 200, **more: object) -> RequestEnd:
    values: dict[str, object] = {
        "replica": "a",
        "reason": Reason.PINNED,
        "session": "secret-session",
        "method": "POST",
        "path": "/v1/secret-path",
        "seconds": 2.0,
        "first_byte": 0.2,
        "sent": 10,
        **more,
    }
    return RequestEnd(ending=ending, status=status, **values)  # type: ignore[arg-type]


class MetricsTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.view = FleetView((A, B), 5, 9, 6, 1, CAPACITY)
        self.logged: list[RequestEnd] = []
        self.metrics = Metrics(lambda: self.view, self.logged.append)

    def value(self, name: str, **labels: str) -> float | None:
        found: float | None = self.metrics.registry.get_sample_value("pypto_router_" + name, labels)
        return found

    def one(self, *outcomes: RequestEnd) -> None:
        for one in outcomes:
            self.metrics.started()
            self.metrics.ended(one)


class Requests(MetricsTestCase):
    def test_interface(self) -> None:
        """It is what the data path expects."""
        self.assertTrue(verifyObject(IRecorder, self.metrics))

    def test_in_flight(self) -> None:
        """Requests under way are counted up and, in every ending, down again."""
        for ending in Ending:
            self.metrics.started()
            self.assertEqual(self.value("requests_in_flight"), 1)
            self.metrics.ended(outcome(ending))
            self.assertEqual(self.value("requests_in_flight"), 0)

    def test_by_outcome(self) -> None:
        """Each ending counts under its replica, its class of status and its own word."""
        self.one(outcome(), outcome(status=201), outcome(status=404), outcome(Ending.CUT))
        self.one(outcome(Ending.REJECTED, 503, replica=None, reason=None, first_byte=None))
        for labels, count in (
            (("a", "2xx", "done"), 2),
            (("a", "4xx", "done"), 1),
            (("a", "2xx", "cut"), 1),
            (("", "5xx", "rejected"), 1),
        ):
            replica, code, ending = labels
            self.assertEqual(self.value("requests_total", replica=replica, code=code, ending=ending), count)

    def test_aborts(self) -> None:
        """Clients that left are counted, others are not."""
        self.one(outcome(Ending.CLIENT_GONE, 499, first_byte=None), outcome(), outcome(Ending.CUT))
        self.assertEqual(self.value("client_aborts_total"), 1)

    def test_affinity(self) -> None:
        """Every rule that chose is counted with what it meant for affinity."""
        for reason in Reason:
            self.one(outcome(reason=reason), outcome(reason=reason))
            labels = {"affinity": reason.affinity.value, "reason": reason.value}
            self.assertEqual(self.value("affinity_total", **labels), 2, reason)

    def test_times(self) -> None:
        """First bytes and durations are observed by replica; a request without a byte has no first one."""
        self.one(outcome(), outcome(first_byte=None))
        self.assertEqual(self.value("time_to_first_byte_seconds_count", replica="a"), 1)
        self.assertEqual(self.value("time_to_first_byte_seconds_sum", replica="a"), 0.2)
        self.assertEqual(self.value("request_duration_seconds_sum", replica="a"), 4.0)
        self.assertEqual(self.value("relayed_bytes_total", replica="a"), 20)

    def test_moved(self) -> None:
        """A refused connection that went elsewhere is counted."""
        self.metrics.connect_moved("a", "b")
        self.assertEqual(self.value("moved_connects_total"), 1)

    def test_logged(self) -> None:
        """Whoever wants every outcome is told; nobody has to want it."""
        self.one(outcome())
        self.assertEqual(self.logged, [outcome()])
        quiet = Metrics(lambda: self.view)
        quiet.started()
        quiet.ended(outcome())

    def test_no_session(self) -> None:
        """No session id and no path is ever a label."""
        self.one(outcome())
        for accept in ("", "application/openmetrics-text"):
            self.assertNotIn(b"secret", self.metrics.render(accept)[1])


class Fleet(MetricsTestCase):
    def test_replicas(self) -> None:
        """Each replica shows its phase, its load, and whether it gets work: a draining one does not."""
        self.assertEqual(self.value("replica_phase", replica="a", phase="ready"), 1)
        self.assertEqual(self.value("replica_phase", replica="a", phase="failed"), 0)
        self.assertEqual(self.value("replica_phase", replica="b", phase="draining"), 1)
        self.assertEqual(self.value("replica_routable", replica="a"), 1)
        self.assertEqual(self.value("replica_routable", replica="b"), 0)
        self.assertEqual(self.value("replica_outstanding", replica="a"), 3)

    def test_totals(self) -> None:
        """The totals are those of ``/health``."""
        self.assertEqual(self.value("sessions"), 5)
        self.assertEqual(self.value("routed_total"), 9)
        self.assertEqual(self.value("affinity_hits_total"), 6)
        self.assertEqual(self.value("rejected_total"), 1)

    def test_slots(self) -> None:
        """Each slot is in one state: an abandoned one is not free as well."""
        for state, count in (("owned", 2), ("free", 1), ("unconfirmed", 0), ("abandoned", 1)):
            self.assertEqual(self.value("slots", state=state), count, state)

    def test_gone(self) -> None:
        """A replica that is gone is not shown any more."""
        self.view = FleetView((A,), 0, 0, 0, 0)
        self.assertIsNone(self.value("replica_routable", replica="b"))

    def test_effects(self) -> None:
        """What happens to slots and replicas is counted by kind; launches are timed."""
        self.metrics.performed(SlotNote("d1", "i1", Note.LAUNCHING))
        self.metrics.performed(SlotNote("d1", "i1", Note.READY, "", 12.0))
        self.metrics.performed(SlotNote("d1", "i1", Note.READY))
        self.metrics.performed(Unrouted("a", "refused"))
        self.assertEqual(self.value("slot_events_total", event="launching"), 1)
        self.assertEqual(self.value("slot_events_total", event="ready"), 2)
        self.assertEqual(self.value("launch_seconds_sum"), 12.0)
        self.assertEqual(self.value("replica_unrouted_total", replica="a"), 1)


class Rendering(MetricsTestCase):
    def test_formats(self) -> None:
        """Both formats are what Prometheus's parsers read, and hold the same families."""
        self.one(outcome())
        kind, text = self.metrics.render("text/plain")
        self.assertTrue(kind.startswith("text/plain"))
        plain = {family.name.removesuffix("_total") for family in parse_text(text.decode())}
        kind, text = self.metrics.render("application/openmetrics-text;version=1.0.0")
        self.assertTrue(kind.startswith("application/openmetrics-text"))
        self.assertTrue(text.endswith(b"# EOF\n"))
        rich = {family.name for family in parse_openmetrics(text.decode())}
        self.assertEqual({name for name in plain if not name.endswith(("_created", "_info"))} - rich, set())
        self.assertIn("pypto_router_requests", rich)

    def test_build(self) -> None:
        """The version is there to be joined with."""
        self.assertEqual(self.value("build_info", version=__version__), 1)

    def test_two(self) -> None:
        """Two routers in one process have registries of their own."""
        other = Metrics(lambda: self.view)
        self.one(outcome())
        self.assertIsNone(
            other.registry.get_sample_value(
                "pypto_router_requests_total", {"replica": "a", "code": "2xx", "ending": "done"}
            )
        )
