"""Which host keys count as known."""

from __future__ import annotations

import base64
import hashlib
import hmac

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.launch.known_hosts import Verdict, known_keys

KEY, OTHER = b"the key", b"another key"


def entry(names: str, key: bytes = KEY, kind: str = "ssh-ed25519", mark: str = "") -> str:
    return f"{mark}{names} {kind} {base64.b64encode(key).decode()} a comment\n"


def hashed(name: str) -> str:
    salt = b"0123456789abcdef0123"
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def verdict(text: str, host: str = "node", port: int | None = None, key: bytes = KEY) -> Verdict:
    return known_keys(text, host, port).judge(key)


class VerdictTests(SynchronousTestCase):
    """What is said of a key that a server shows."""

    def test_table(self) -> None:
        """Names, ports, hashes, wildcards, negations and marks, as sshd(8) has them."""
        known, unknown, changed = Verdict.KNOWN, Verdict.UNKNOWN, Verdict.CHANGED
        cases: tuple[tuple[str, str, int | None, Verdict], ...] = (
            ("", "node", None, unknown),
            (entry("node"), "node", None, known),
            (entry("node"), "NODE", 22, known),
            (entry("Node"), "node", None, known),
            (entry("other"), "node", None, unknown),
            (entry("a,node,b"), "node", None, known),
            (entry("node", OTHER), "node", None, changed),
            (entry("node", OTHER) + entry("node"), "node", None, known),
            (entry("[node]:2222"), "node", 2222, known),
            (entry("[node]:2222"), "node", 2223, unknown),
            (entry("[node]:2222"), "node", None, unknown),
            (entry("node"), "node", 2222, known),
            (entry("node") + entry("[node]:2222", OTHER), "node", 2222, changed),
            (entry("[::1]:2222"), "::1", 2222, known),
            (entry("[*.lan]:2222"), "a.lan", 2222, known),
            (entry("*.lan"), "a.lan", None, known),
            (entry("n?de"), "node", None, known),
            (entry("n[o]de"), "node", None, unknown),
            (entry("*.lan,!b.lan"), "b.lan", None, unknown),
            (entry("!b.lan,*.lan"), "a.lan", None, known),
            (entry(hashed("node")), "node", None, known),
            (entry(hashed("[node]:2222")), "node", 2222, known),
            (entry(hashed("other")), "node", None, unknown),
            (entry("node", mark="@cert-authority "), "node", None, unknown),
            (entry("node") + entry("*", mark="@revoked "), "node", None, Verdict.REVOKED),
            ("# " + entry("node"), "node", None, unknown),
            (
                "node\nnode ssh-ed25519\nnode ssh-ed25519 !!!\n|1|x|y ssh-ed25519 eA==\n\n",
                "node",
                None,
                unknown,
            ),
        )
        for text, host, port, expected in cases:
            self.assertEqual(verdict(text, host, port), expected, (text, host, port))


class OrderTests(SynchronousTestCase):
    """Which algorithms a server is asked for."""

    def test_known_first(self) -> None:
        """What a known key can be shown with comes first, the rest keeps its order."""
        offered = [b"ecdsa-sha2-nistp256", b"rsa-sha2-512", b"rsa-sha2-256", b"ssh-ed25519"]
        self.assertEqual(known_keys(entry("node"), "node", None).order(offered), [offered[3], *offered[:3]])
        rsa = known_keys(entry("node", kind="ssh-rsa"), "node", None)
        self.assertEqual(rsa.order(offered), [*offered[1:3], offered[0], offered[3]])
