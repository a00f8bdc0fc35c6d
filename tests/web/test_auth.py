from __future__ import annotations

import json

from tests.web.scene import Router, RouterTestCase, Told
from twisted_router.web.auth import Guard

#: method and path of everything that changes the fleet, or shows its inside
GUARDED = (
    ("GET", "/replicas"),
    ("HEAD", "/replicas"),
    ("POST", "/replicas"),
    ("DELETE", "/replicas/a"),
    ("POST", "/slots/a/release"),
)
OPEN = (
    ("GET", "/health"),
    ("GET", "/liveness"),
    ("GET", "/readiness"),
    ("GET", "/metrics"),
    ("DELETE", "/sessions/s"),
    ("POST", "/finish_session?session_id=s"),
)


def ask(router: Router, method: str, path: str, *fields: bytes, peer: str = "127.0.0.1") -> Told | None:
    """Send one call; return its answer, None when it got through and waits."""
    head = f"{method} {path} HTTP/1.1\r\nHost: r\r\nContent-Length: 0\r\n".encode()
    caller = router.call(head + b"".join(field + b"\r\n" for field in fields) + b"\r\n", peer=peer)
    return caller.answer(method) if caller.heard else None


class AuthTestCase(RouterTestCase):
    guard = Guard("sesame", is_open=False)
    peer = "127.0.0.1"

    def setUp(self) -> None:
        self.make(guard=self.guard)

    def status(self, method: str, path: str, *fields: bytes, peer: str | None = None) -> int | None:
        told = ask(self.router, method, path, *fields, peer=peer or self.peer)
        return told.status if told is not None else None


class WithToken(AuthTestCase):
    def test_missing(self) -> None:
        """Without the token every administrative call is a 401 that says how to show it, and does nothing."""
        for method, path in GUARDED:
            told = ask(self.router, method, path)
            assert told is not None
            self.assertEqual((told.status, told.field("WWW-Authenticate")), (401, "Bearer"), path)
            if method != "HEAD":
                self.assertEqual(json.loads(told.body)["error"]["code"], "invalid_api_key")
        self.assertEqual(self.router.steward.asked, [])

    def test_shown(self) -> None:
        """With it they get through, from anywhere, whatever the scheme's case."""
        for scheme in (b"Bearer", b"bearer", b"BEARER"):
            for peer in ("127.0.0.1", "203.0.113.9"):
                field = b"Authorization: " + scheme + b" sesame"
                self.assertEqual(self.status("GET", "/replicas", field, peer=peer), 200)

    def test_wrong(self) -> None:
        """Anything but the token itself is wrong; nothing that is sent is an error of ours."""
        for shown in (
            b"sesame",
            b"Bearer",
            b"Bearer ",
            b"Bearer sesam",
            b"Bearer sesame2",
            b"Bearer SESAME",
            b"Bearersesame",
            b"Basic sesame",
            b"Basic c2VzYW1l",
            b"Bearer sesame sesame",
            b"Bearer \xff\xfe",
            "Bearer s\u00e9same".encode(),
        ):
            self.assertEqual(self.status("GET", "/replicas", b"Authorization: " + shown), 401, shown)
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_open_routes(self) -> None:
        """What is no administration needs no token."""
        for method, path in OPEN:
            self.assertNotEqual(self.status(method, path), 401, path)

    def test_relay_is_open(self) -> None:
        """Nor do model requests, whose Authorization is the replica's."""
        self.assertIsNone(self.status("POST", "/v1/x", b"Authorization: Bearer other"))
        sent = self.router.replicas[self.router.chosen()].line.value()
        self.assertIn(b"Authorization: Bearer other", sent)


class WithOddToken(AuthTestCase):
    guard = Guard("s\u00e9same \u6f22", is_open=False)

    def test_bytes(self) -> None:
        """A token that is not ASCII is compared as UTF-8."""
        self.assertEqual(
            self.status("GET", "/replicas", "Authorization: Bearer s\u00e9same \u6f22".encode()), 200
        )
        self.assertEqual(
            self.status("GET", "/replicas", b"Authorization: Bearer " + "s\u00e9same".encode("latin-1")), 401
        )


class WithoutToken(AuthTestCase):
    guard = Guard(None, is_open=False)

    def test_from_here(self) -> None:
        """Without a token this machine itself may administrate: any loopback address, of any family."""
        for peer in ("127.0.0.1", "127.8.9.10", "::1", "::1%lo", "::ffff:127.0.0.1"):
            self.assertEqual(self.status("GET", "/replicas", peer=peer), 200, peer)

    def test_from_elsewhere(self) -> None:
        """Nobody else may: 403, which says how it could be allowed, and nothing is done."""
        for peer in ("203.0.113.9", "10.0.0.1", "::ffff:10.0.0.1", "2001:db8::1", "fe80::1%eth0"):
            for method, path in GUARDED:
                self.assertEqual(self.status(method, path, peer=peer), 403, (method, peer))
        told = ask(self.router, "POST", "/replicas", peer="203.0.113.9")
        assert told is not None
        self.assertIn("--admin-token", json.loads(told.body)["message"])
        self.assertEqual(self.router.steward.asked, [])

    def test_through_something(self) -> None:
        """A browser's page and a proxy speak from here for somebody elsewhere: 403."""
        for field in (
            b"Origin: http://evil.example",
            b"Origin: null",
            b"Forwarded: for=203.0.113.9",
            b"X-Forwarded-For: 127.0.0.1",
            b"X-Real-IP: 127.0.0.1",
            b"Via: 1.1 proxy",
        ):
            self.assertEqual(self.status("POST", "/replicas", field), 403, field)
        self.assertEqual(self.router.steward.asked, [])


class Open(AuthTestCase):
    guard = Guard(None, is_open=True)

    def test_anybody(self) -> None:
        """With ``--admin-open`` anybody may, from anywhere and through anything."""
        self.assertEqual(self.status("GET", "/replicas", b"Via: 1.1 proxy", peer="203.0.113.9"), 200)
