"""Which host keys are known, as sshd(8) writes them: ports, hashes, wildcards, negations, marks. Pure."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
from collections.abc import Iterable
from enum import Enum

from attrs import frozen

_SSH_PORT = 22

#: The signature algorithms a known key of a type may be shown with, best first (RFC 8332).
_SIGNED_WITH = {b"ssh-rsa": (b"rsa-sha2-512", b"rsa-sha2-256", b"ssh-rsa")}


class Verdict(Enum):
    """What known hosts say of a key that a server shows."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    REVOKED = "revoked"


@frozen
class KnownKeys:
    """The keys written down for one server, as type and key.

    :ivar revoked: keys that must not be accepted, whoever shows them.
    """

    keys: frozenset[tuple[bytes, bytes]]
    revoked: frozenset[bytes]

    def judge(self, key: bytes) -> Verdict:
        """Say whether a key in wire format is the server's."""
        if key in self.revoked:
            return Verdict.REVOKED
        if not self.keys:
            return Verdict.UNKNOWN
        return Verdict.KNOWN if any(known == key for _, known in self.keys) else Verdict.CHANGED

    def order(self, algorithms: Iterable[bytes]) -> list[bytes]:
        """Put first what a known key can be shown with, so that the server shows that one."""
        wanted = {alg for kind, _ in self.keys for alg in _SIGNED_WITH.get(kind, (kind,))}
        return sorted(algorithms, key=lambda algorithm: algorithm not in wanted)


def known_keys(text: str, host: str, port: int | None) -> KnownKeys:
    """Look a server up. Lines that cannot be read are passed over, as OpenSSH does.

    Like there, a server on another port than 22 is looked up as ``[host]:port``, and when nothing is
    written under that name, as ``host``.
    """
    host = host.lower()
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    names = [host] if port in (None, _SSH_PORT) else [f"[{host}]:{port}", host]
    revoked = frozenset(key for line in lines if line[0] == "@revoked" for key in _key(line[1:], names))
    for name in names:
        found = frozenset(
            (line[1].encode(), key)
            for line in lines
            if not line[0].startswith("@")
            for key in _key(line, [name])
        )
        if found:
            return KnownKeys(found, revoked)
    return KnownKeys(frozenset(), revoked)


def _key(line: list[str], names: list[str]) -> list[bytes]:
    """The key of a line that is about one of the names."""
    if len(line) < 3 or not any(_matches(line[0], name) for name in names):
        return []
    try:
        return [base64.b64decode(line[2], validate=True)]
    except (binascii.Error, ValueError):
        return []


def _matches(patterns: str, name: str) -> bool:
    if patterns.startswith("|1|"):
        return _hash_matches(patterns, name)
    matched = False
    for pattern in patterns.lower().split(","):
        if _like(name, pattern.removeprefix("!")):
            if pattern.startswith("!"):
                return False
            matched = True
    return matched


def _like(name: str, pattern: str) -> bool:
    """``*`` and ``?`` are wild, brackets are not: they belong to ``[host]:port``."""
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))


def _hash_matches(entry: str, name: str) -> bool:
    try:
        salt, digest = (base64.b64decode(part, validate=True) for part in entry.split("|")[2:4])
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.new(salt, name.encode(), hashlib.sha1).digest(), digest)
