"""Tests for ``twisted_router.config.model``."""

from __future__ import annotations

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.config.model import HostConfig, ReplicaConfig, split_destination


class DestinationTests(SynchronousTestCase):
    """``split_destination`` knows both forms of an ssh destination."""

    def test_forms(self) -> None:
        """User and port are optional; IPv6 stands in brackets only beside a port."""
        table = {
            "node": (None, "node", None),
            "me@node": ("me", "node", None),
            "me@corp@node": ("me@corp", "node", None),
            "me@fd00::1": ("me", "fd00::1", None),
            "ssh://node": (None, "node", None),
            "ssh://me@node:2222/": ("me", "node", 2222),
            "ssh://me@[fd00::1]:2222": ("me", "fd00::1", 2222),
            "ssh://[fd00::1]": (None, "fd00::1", None),
        }
        self.assertEqual({ssh: split_destination(ssh) for ssh in table}, table)


class HostTests(SynchronousTestCase):
    """A host knows its slots."""

    host = HostConfig("h", (4, 0, 6, 7), "m", devices_per_replica=2)

    def test_slots(self) -> None:
        """Devices are cut in order; the first of a group gives name and port."""
        self.assertEqual(self.host.groups, ((4, 0), (6, 7)))
        self.assertEqual(
            [(self.host.slot_name(g), self.host.slot_port(g)) for g in self.host.groups],
            [("h-d4", 8005), ("h-d6", 8007)],
        )

    def test_address(self) -> None:
        """Replicas of this machine are reached on the loopback, others at the host of the destination."""
        self.assertEqual(self.host.address, "127.0.0.1")
        self.assertEqual(evolve(self.host, ssh="ssh://me@node:22").address, "node")


class ReplicaTests(SynchronousTestCase):
    """A replica knows its URL."""

    def test_url(self) -> None:
        """IPv6 literals stand in brackets."""
        self.assertEqual(ReplicaConfig("n", "fd00::1", 1, "https").url, "https://[fd00::1]:1")
