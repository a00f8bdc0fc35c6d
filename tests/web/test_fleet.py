from __future__ import annotations

import json
from typing import Any

from attrs import evolve
from twisted.internet.defer import fail

from tests.core.scene import TWO_CARDS, Scene, record_of
from tests.web.scene import Caller, RouterTestCase, Told
from twisted_router.core.effects import Launch, Retired, StopUnconfirmed, Unreachable
from twisted_router.core.slots import cut_slots
from twisted_router.errors import Conflict, LaunchFailed, NotFound, ShuttingDown
from twisted_router.web.fleet import admin_json, capacity_json

SLOT = cut_slots(TWO_CARDS)[0]


class FleetTestCase(RouterTestCase):
    def send(self, method: str, path: str, body: bytes = b"") -> Caller:
        head = f"{method} {path} HTTP/1.1\r\nHost: r\r\nContent-Length: {len(body)}\r\n\r\n"
        return self.router.call(head.encode() + body)

    def ask(self, method: str, path: str, body: bytes = b"") -> Told:
        return self.send(method, path, body).answer(method)

    def read(self, told: Told) -> Any:
        self.assertEqual(told.field("Content-Type"), "application/json")
        return json.loads(told.body)


class Growing(FleetTestCase):
    def test_accepted(self) -> None:
        """202 once the launch is under way, not before, and never waiting for the model to load."""
        caller = self.send("POST", "/replicas")
        self.assertEqual((caller.heard, self.router.steward.asked), (b"", [("grow", None)]))
        self.router.steward.growing.callback(Launch(SLOT, "i1"))
        told = caller.answer()
        self.assertEqual(told.status, 202)
        document = self.read(told)
        self.assertEqual(
            {key: document[key] for key in ("name", "url", "instance", "ready")},
            {"name": "node-d0", "url": "http://127.0.0.1:8001", "instance": "i1", "ready": False},
        )
        self.assertIn("starting", document["message"])

    def test_slot(self) -> None:
        """A slot may be named."""
        self.send("POST", "/replicas", b'{"slot": "node-d1"}')
        self.assertEqual(self.router.steward.asked, [("grow", "node-d1")])

    def test_failures(self) -> None:
        """Full is 409, unknown 404, failed 502, stopping 503; each shows the capacity as well."""
        for error, status, code in (
            (Conflict("all 2 declared device slots are in use"), 409, "conflict"),
            (NotFound("there is no slot x"), 404, "not_found"),
            (LaunchFailed("launch failed: exited with code 1"), 502, "launch_failed"),
            (ShuttingDown("the router is shutting down"), 503, "shutting_down"),
        ):
            self.router.steward.growing = fail(error)
            told = self.ask("POST", "/replicas")
            document = self.read(told)
            self.assertEqual((told.status, document["error"]["code"]), (status, code))
            self.assertEqual((document["object"], document["message"]), ("error", error.message))
            self.assertEqual(document["capacity"]["ceiling"], 0)

    def test_bad_bodies(self) -> None:
        """A body that is no JSON object, or names no slot, is a 400, and nothing is launched."""
        for body in (
            b"[]",
            b"1",
            b"hello",
            b"{",
            b'{"slot": 1}',
            b'{"slot": ["x"]}',
            b"\xff\xfe",
            b"[" * 100_000,
            b'{"slot": ' + b"9" * 5000 + b"}",
        ):
            self.assertEqual(self.ask("POST", "/replicas", body).status, 400, body[:20])
        self.assertEqual(self.router.steward.asked, [])

    def test_empty_bodies(self) -> None:
        """No body, blanks, an empty object and a null slot are the same wish."""
        for body in (b"", b" \n", b"{}", b'{"slot": null}'):
            self.send("POST", "/replicas", body)
        self.assertEqual(self.router.steward.asked, [("grow", None)] * 4)

    def test_left(self) -> None:
        """A caller that leaves is nobody's failure: nothing is logged, and the launch goes on."""
        self.send("POST", "/replicas").leave()
        self.assertEqual(self.flushLoggedErrors(), [])


class Shrinking(FleetTestCase):
    def test_stopped(self) -> None:
        """200 once the stop is confirmed."""
        caller = self.send("DELETE", "/replicas/node-d0")
        self.assertEqual((caller.heard, self.router.steward.asked), (b"", [("retire", "node-d0")]))
        self.router.steward.retiring[0].callback(Retired("node-d0", "i1", True, ""))
        told = caller.answer()
        document = self.read(told)
        self.assertEqual((told.status, document["name"], document["stopped"]), (200, "node-d0", True))
        self.assertIn("unconfirmed", document["capacity"])

    def test_unconfirmed(self) -> None:
        """500 when it cannot be, with the reason and the way to free the slot."""
        caller = self.send("DELETE", "/replicas/node-d0")
        self.router.steward.retiring[0].callback(Retired("node-d0", "i1", False, "its port still answers"))
        told = caller.answer()
        document = self.read(told)
        self.assertEqual((told.status, document["error"]["code"]), (500, "stop_unconfirmed"))
        self.assertIn("its port still answers", document["message"])
        self.assertIn("POST /slots/node-d0/release", document["message"])

    def test_refused(self) -> None:
        """Unknown is 404, a replica that is not the router's 409."""
        for error, status in ((NotFound("no replica x"), 404), (Conflict("static"), 409)):
            caller = self.send("DELETE", "/replicas/x")
            self.router.steward.retiring[-1].errback(error)
            self.assertEqual(caller.answer().status, status)

    def test_odd_names(self) -> None:
        """A name reaches the fleet decoded, whatever it is."""
        for path in ("/replicas/%C3%A9", "/replicas/a%20b"):
            self.send("DELETE", path)
        self.assertEqual([name for _, name in self.router.steward.asked], ["\u00e9", "a b"])

    def test_shared(self) -> None:
        """A caller that leaves gives up its own waiting; the others have their answer, nothing is logged."""
        first, second = (self.send("DELETE", "/replicas/node-d0") for _ in range(2))
        first.leave()
        self.assertEqual(self.router.steward.left, 1)
        self.router.steward.retiring[1].callback(Retired("node-d0", "i1", True, ""))
        self.assertEqual((first.heard, second.answer().status), (b"", 200))
        self.assertEqual(self.flushLoggedErrors(), [])


class Releasing(FleetTestCase):
    def test_released(self) -> None:
        """200 once the slot is free; force is passed on."""
        for body, force in ((b'{"instance": "i1"}', False), (b'{"instance": "i1", "force": true}', True)):
            self.setUp()
            caller = self.send("POST", "/slots/node-d0/release", body)
            self.assertEqual(self.router.steward.asked, [("release", "node-d0", "i1", force)])
            self.router.steward.releasing.callback(None)
            document = self.read(caller.answer())
            self.assertEqual((document["slot"], document["released"]), ("node-d0", True))

    def test_still_there(self) -> None:
        """409 when something is still there."""
        self.router.steward.releasing = fail(Conflict("its port still answers"))
        self.assertEqual(self.ask("POST", "/slots/x/release", b'{"instance": "i"}').status, 409)

    def test_bad_bodies(self) -> None:
        """The instance has to be named: a person shows that they mean this reservation."""
        for body in (b"", b"{}", b'{"instance": 1}', b'{"instance": "i", "force": 1}', b"[]", b"x"):
            told = self.ask("POST", "/slots/x/release", body)
            self.assertEqual(told.status, 400, body)
        self.assertEqual(self.router.steward.asked, [])


class Sessions(FleetTestCase):
    def test_ended(self) -> None:
        """A session is ended by its path, a query or a body."""
        for method, path, body in (
            ("DELETE", "/sessions/s.1", b""),
            ("POST", "/finish_session?session_id=s.1", b""),
            ("POST", "/finish_session", b'{"session_id": "s.1"}'),
        ):
            told = self.ask(method, path, body)
            self.assertEqual(self.read(told), {"session_id": "s.1", "released": True})
        self.assertEqual(self.router.steward.asked, [("end", "s.1")] * 3)

    def test_unnamed(self) -> None:
        """Without a session it is a 400."""
        for path, body in (
            ("/finish_session", b""),
            ("/finish_session?session_id=", b"{}"),
            ("/finish_session", b'{"session_id": 1}'),
            ("/finish_session", b'{"session_id": ""}'),
            ("/finish_session", b"x"),
        ):
            self.assertEqual(self.ask("POST", path, body).status, 400, (path, body))
        self.assertEqual(self.router.steward.asked, [])


class Listing(FleetTestCase):
    def test_static(self) -> None:
        """``GET /replicas`` shows each replica and the capacity, as the reference does and more."""
        document = self.read(self.ask("GET", "/replicas"))
        first = document["replicas"][0]
        for key, value in {
            "name": "a",
            "url": "http://a:8001",
            "ready": True,
            "phase": "starting",
            "draining": False,
            "owned": False,
            "outstanding": 0,
            "routed": 0,
        }.items():
            self.assertEqual(first[key], value, key)
        capacity = document["capacity"]
        self.assertEqual((capacity["owned"], capacity["ceiling"], capacity["free_slots"]), (0, 0, []))
        self.assertEqual((capacity["unconfirmed"], capacity["abandoned"]), ([], []))

    def test_launched(self) -> None:
        """A launched replica is owned, and its slot is not free."""
        scene = Scene()
        scene.serve()
        view = scene.view()
        replica = admin_json(view.replicas[0])
        self.assertEqual((replica["owned"], replica["phase"], replica["instance"]), (True, "ready", "i0"))
        capacity = capacity_json(view.capacity)
        self.assertEqual((capacity["owned"], capacity["ceiling"]), (1, 2))
        self.assertEqual(capacity["free_slots"], ["node-d1"])

    def test_unconfirmed(self) -> None:
        """A reserved slot is listed with its reason, its devices and how to free it."""
        scene = Scene()
        scene.reclaim(record_of("i9"))
        scene.apply(Unreachable("i9", "nothing answers"))
        (held,) = capacity_json(scene.view().capacity)["unconfirmed"]
        self.assertEqual(
            {key: held[key] for key in ("slot", "reason", "instance", "devices", "address", "release")},
            {
                "slot": "node-d0",
                "reason": "unreachable-at-startup",
                "instance": "i9",
                "devices": [0],
                "address": "127.0.0.1:8001",
                "release": "POST /slots/node-d0/release",
            },
        )

    def test_unconfirmed_ipv6(self) -> None:
        """An address that is an IPv6 literal has brackets, as in a URL."""
        scene = Scene()
        scene.reclaim(evolve(record_of("i9"), address="fd00::1"))
        scene.apply(Unreachable("i9", "nothing answers"))
        (held,) = capacity_json(scene.view().capacity)["unconfirmed"]
        self.assertEqual(held["address"], "[fd00::1]:8001")

    def test_serialisable(self) -> None:
        """Whatever a fleet goes through, its listing is JSON."""
        scene = Scene(static=("s",))
        instance = scene.serve()
        scene.silence(instance)
        scene.apply(StopUnconfirmed(instance, "x"), after=60)
        view = scene.view()
        json.dumps([admin_json(replica) for replica in view.replicas], allow_nan=False)
        json.dumps(capacity_json(view.capacity), allow_nan=False)
