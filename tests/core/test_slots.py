from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.config.model import HostConfig
from twisted_router.core.slots import Slot, cut_slots, plan_pool
from twisted_router.errors import ConfigError

#: The manual's example: one card here, four there.
NODE01 = HostConfig("node01", (4,), model="/models/Qwen3-14B")
NODE02 = HostConfig("node02", (0, 1, 2, 3), ssh="user@node02", model="/weights/Qwen3-14B")


def names(*hosts: HostConfig) -> list[str]:
    return [slot.name for slot in cut_slots(hosts)]


class CuttingTests(SynchronousTestCase):
    def test_manual_example(self) -> None:
        """The manual's file has five slots, named after host and first device."""
        self.assertEqual(
            names(NODE01, NODE02), ["node01-d4", "node02-d0", "node02-d1", "node02-d2", "node02-d3"]
        )

    def test_local_first(self) -> None:
        """Slots on the router's own machine come first, else the config's order holds."""
        third = HostConfig("node03", (7,), model="m")
        self.assertEqual(names(NODE02, NODE01, third)[:2], ["node01-d4", "node03-d7"])

    def test_groups(self) -> None:
        """The devices are cut in order into groups; name and port follow the first of each."""
        host = HostConfig(
            "n", (6, 2, 3, 1), devices_per_replica=2, port_base=9000, model="m", health_path="/h"
        )
        self.assertEqual(
            cut_slots((host,)),
            (
                Slot("n-d6", "n", (6, 2), "127.0.0.1", 9006, "/h", "m"),
                Slot("n-d3", "n", (3, 1), "127.0.0.1", 9003, "/h", "m"),
            ),
        )

    def test_addresses(self) -> None:
        """A replica's address is the host of the ssh destination, without user and port; loopback here."""
        for ssh, address in (
            (None, "127.0.0.1"),
            ("node", "node"),
            ("user@node", "node"),
            ("user@corp@node", "node"),
            ("ssh://user@node:2222", "node"),
        ):
            (slot,) = cut_slots((HostConfig("n", (0,), ssh=ssh, model="m"),))
            self.assertEqual(slot.address, address, ssh)

    def test_url(self) -> None:
        """An IPv6 address stands in brackets in a URL."""
        self.assertEqual(Slot("n-d0", "n", (0,), "::1", 8001).url, "http://[::1]:8001")
        self.assertEqual(Slot("n-d0", "n", (0,), "node", 8001).url, "http://node:8001")


class PoolTests(SynchronousTestCase):
    def test_sizes(self) -> None:
        """Devices are the ceiling, --max-replicas lowers it; one replica starts when hosts are declared."""
        for initial, most, expected in (
            (None, None, (5, 1)),
            (0, None, (5, 0)),
            (5, None, (5, 5)),
            (None, 2, (2, 1)),
            (2, 2, (2, 2)),
            (None, 9, (5, 1)),
        ):
            pool = plan_pool((NODE01, NODE02), initial, most)
            self.assertEqual((pool.ceiling, pool.initial), expected, (initial, most))

    def test_no_hosts(self) -> None:
        """Without hosts nothing is launched at the start."""
        pool = plan_pool((), None, None)
        self.assertEqual((pool.slots, pool.ceiling, pool.initial), ((), 0, 0))

    def test_too_many_at_the_start(self) -> None:
        """More initial replicas than devices are refused."""
        error = self.assertRaises(ConfigError, plan_pool, (NODE01, NODE02), 6, None)
        self.assertEqual(
            error.problems, ("initial_replicas=6 exceeds the pool ceiling 5 (declared devices)",)
        )

    def test_too_many_under_the_cap(self) -> None:
        """More initial replicas than --max-replicas are refused, and the cap is named."""
        error = self.assertRaises(ConfigError, plan_pool, (NODE01, NODE02), 3, 2)
        self.assertEqual(
            error.problems,
            ("initial_replicas=3 exceeds the pool ceiling 2 (declared devices, capped by max_replicas=2)",),
        )
