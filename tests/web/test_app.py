from __future__ import annotations

import json

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.web.scene import OK, RouterTestCase, Told, post
from twisted_router.core.effects import ConnectRefused, ProbeAnswered
from twisted_router.telemetry.metrics import Metrics


class AppTestCase(RouterTestCase):
    def ask(self, path: str, method: str = "GET", *fields: str) -> Told:
        lines = [f"{method} {path} HTTP/1.1", "Host: r", *fields, "", ""]
        return self.router.call("\r\n".join(lines).encode()).answer(method)

    def lose(self, *names: str) -> None:
        """Take replicas out of rotation."""
        for name in names:
            for _ in range(2):
                self.router.apply(ConnectRefused(name))


class Health(AppTestCase):
    def test_fields(self) -> None:
        """``/health`` has the manual's fields, all of them and no others."""
        document = json.loads(self.ask("/health").body)
        self.assertEqual(
            list(document),
            [
                "status",
                "replicas_ready",
                "replicas_total",
                "replicas_failed",
                "sessions",
                "routed",
                "affinity_hits",
                "rejected",
                "replicas",
            ],
        )
        self.assertEqual(
            document["replicas"][0],
            {
                "name": "a",
                "url": "http://a:8001",
                "ready": True,
                "phase": "starting",
                "outstanding": 0,
                "routed": 0,
            },
        )

    def test_figures(self) -> None:
        """Its figures are those of the moment: load, sessions, hits, failed replicas."""
        for _ in range(3):
            self.router.call(post(session="s"))
        self.router.apply(ProbeAnswered("b", 200))
        self.lose("b")
        document = json.loads(self.ask("/health").body)
        figures = {key: value for key, value in document.items() if key != "replicas"}
        self.assertEqual(
            figures,
            {
                "status": "ok",
                "replicas_ready": 1,
                "replicas_total": 2,
                "replicas_failed": 1,
                "sessions": 1,
                "routed": 3,
                "affinity_hits": 2,
                "rejected": 0,
            },
        )
        self.assertEqual(sorted(replica["outstanding"] for replica in document["replicas"]), [0, 3])
        self.assertEqual(document["replicas"][1]["phase"], "failed")

    def test_nothing_routable(self) -> None:
        """With nothing routable it is 503 and says so, and a rejected request is counted."""
        self.lose("a", "b")
        self.router.call(post())
        told = self.ask("/health")
        document = json.loads(told.body)
        self.assertEqual((told.status, document["status"], document["rejected"]), (503, "no_replicas", 1))

    def test_not_cached(self) -> None:
        """It is JSON, and nobody is to keep it; it carries no session."""
        told = self.ask("/health")
        self.assertEqual(
            (told.field("Content-Type"), told.field("Cache-Control"), told.field("X-Session-Id")),
            ("application/json", "no-store", None),
        )


class Probes(AppTestCase):
    def test_liveness(self) -> None:
        """Alive is alive, even with nothing routable."""
        self.lose("a", "b")
        for path in ("/liveness", "/livez", "/live", "/ping"):
            self.assertEqual(self.ask(path).status, 200, path)

    def test_readiness(self) -> None:
        """Ready means: something routable, and not stopping."""
        for path in ("/readiness", "/readyz"):
            self.setUp()
            self.assertEqual(self.ask(path).status, 200)
            self.lose("a", "b")
            self.assertEqual(self.ask(path).status, 503)
            self.setUp()
            self.router.traffic.refuse()
            told = self.ask(path)
            self.assertEqual((told.status, json.loads(told.body)), (503, {"status": "stopping"}))


class Routes(AppTestCase):
    def test_head(self) -> None:
        """HEAD gives what GET would, without the body."""
        for path in ("/health", "/liveness", "/readiness", "/metrics", "/replicas"):
            told, full = self.ask(path, "HEAD"), self.ask(path)
            self.assertEqual((told.status, told.body), (200, b""), path)
            self.assertEqual(told.field("Content-Type"), full.field("Content-Type"), path)

    def test_unknown(self) -> None:
        """Any other path is a 404 in JSON that says where things are, never a redirect."""
        for path in (
            "/",
            "/v1",
            "/v2/models",
            "/health/",
            "/healthz/x",
            "/metrics//",
            "/docs",
            "/%ff",
            "/replicas/",
            "/HEALTH",
        ):
            told = self.ask(path)
            self.assertEqual(told.status, 404, path)
            document = json.loads(told.body)
            self.assertEqual((document["error"]["code"], document["object"]), ("not_found", "error"))
            self.assertIn("/v1/", document["message"])

    def test_wrong_method(self) -> None:
        """The wrong method is a 405 in JSON, with the right ones in ``Allow``."""
        for method, path, allowed in (
            ("POST", "/health", {"GET", "HEAD"}),
            ("DELETE", "/metrics", {"GET", "HEAD"}),
            ("PUT", "/replicas", {"GET", "HEAD", "POST"}),
            ("GET", "/replicas/a", {"DELETE"}),
            ("GET", "/slots/a/release", {"POST"}),
            ("POST", "/sessions/a", {"DELETE"}),
            ("GET", "/finish_session", {"POST"}),
        ):
            told = self.ask(path, method, "Content-Length: 0")
            self.assertEqual(
                (told.status, json.loads(told.body)["error"]["code"]), (405, "method_not_allowed")
            )
            self.assertEqual(set((told.field("Allow") or "").split(", ")) - {"OPTIONS"}, allowed, path)

    def test_connection_lives_on(self) -> None:
        """Own answers have a length, so that the connection serves on, between relayed ones too."""
        caller = self.router.call(b"GET /health HTTP/1.1\r\nHost: r\r\n\r\n")
        caller.say(post(session="s"))
        self.router.reply(self.router.chosen(), OK)
        caller.say(b"GET /nothing HTTP/1.1\r\nHost: r\r\n\r\n")
        self.assertEqual([told.status for told in caller.answers("GET", "POST", "GET")], [200, 200, 404])

    def test_fault(self) -> None:
        """A fault of ours is a 500 in JSON and a traceback in the log, not in the answer."""
        self.router.metrics = None  # type: ignore[assignment]
        caller = self.router.call(b"GET /metrics HTTP/1.1\r\nHost: r\r\n\r\n")
        self.assertEqual(len(self.flushLoggedErrors(TypeError)), 1)
        told = caller.answer()
        self.assertEqual((told.status, json.loads(told.body)["error"]["code"]), (500, "internal_error"))
        self.assertNotIn(b"TypeError", told.body)


class Exposition(AppTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.metrics = Metrics(self.router.view)

    def render(self, *fields: str) -> Told:
        accept = next((field.partition(": ")[2] for field in fields), "")
        self.router.metrics = self.metrics.render(accept)
        told = self.ask("/metrics", "GET", *fields)
        self.assertEqual(self.router.accepted[-1], accept)
        return told

    def test_text(self) -> None:
        """The plain format is what Prometheus's own parser reads, and shows every replica."""
        told = self.render()
        self.assertTrue((told.field("Content-Type") or "").startswith("text/plain; version="))
        families = {family.name: family for family in parse_text(told.body.decode())}
        ready = families["pypto_router_replica_routable"]
        self.assertEqual({s.labels["replica"]: s.value for s in ready.samples}, {"a": 1, "b": 1})

    def test_no_sense(self) -> None:
        """An Accept header that is no text, or has a version that is none, gets the plain format."""
        for kind in ("application/openmetrics-text", "text/plain"):
            for version in ("x.y", "", "1.\u0661", "1" * 5000):
                self.render()
                told = self.ask("/metrics", "GET", f"Accept: {kind}; version={version}")
                self.assertEqual(told.status, 200, version)
                _, text = self.metrics.render(self.router.accepted[-1])
                self.assertIn(b"pypto_router_replica_routable", text)
        told = self.router.call(b"GET /metrics HTTP/1.1\r\nHost: r\r\nAccept: \xff\r\n\r\n").answer()
        self.assertEqual(told.status, 200)

    def test_openmetrics(self) -> None:
        """OpenMetrics is given when asked for, and parses as such."""
        told = self.render("Accept: application/openmetrics-text; version=1.0.0")
        self.assertTrue((told.field("Content-Type") or "").startswith("application/openmetrics-text"))
        names = {family.name for family in parse_openmetrics(told.body.decode())}
        self.assertIn("pypto_router_requests", names)
