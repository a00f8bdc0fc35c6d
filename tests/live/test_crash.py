"""``kill -9`` of the router, and what the next one finds."""

from __future__ import annotations

import os
import signal
from typing import Any

from twisted.internet.defer import Deferred, DeferredList

from tests.programs import Watched

from .scene import LiveCase, is_alive

SESSIONS = [f"s{number}" for number in range(12)]


class UnderLoadTests(LiveCase):
    """Two replicas, a dozen conversations, and a router that is killed in the middle of them."""

    async def setUp(self) -> None:  # type: ignore[override]  # trial waits for it
        super().setUp()
        self.fleet(self.host(devices=2))
        self.first = await self.serving("--initial-replicas", "2", ready=2)

    async def crash(self) -> None:
        """Kill the router while each conversation goes on as fast as it can."""
        self.alive = True
        talks = [Deferred.fromCoroutine(self._talk(session)) for session in SESSIONS]
        self.first.signal("KILL")
        self.assertEqual(await self.ended(self.first), -signal.SIGKILL)
        self.alive = False
        for ended, failure in await DeferredList(talks, consumeErrors=True):
            self.assertTrue(ended, failure)

    async def _talk(self, session: str) -> None:
        while self.alive:
            answer = await self.ask("POST", "/v1/chat/completions", {}, {"X-Session-Id": session})
            self.assertTrue(answer is None or answer.status == 200)

    async def homes(self) -> dict[str, int]:
        """The process that each conversation meets."""
        return {session: (await self.turn(session))["pid"] for session in SESSIONS}

    async def test_adopted(self) -> None:
        """Both replicas are taken back as they are, no model is loaded, every session is where it was."""
        homes = await self.homes()
        self.assertEqual(set(homes.values()), {self.pid_of("here-d0"), self.pid_of("here-d1")})
        instances = {slot: self.recorded(slot)["instance"] for slot in ("here-d0", "here-d1")}
        await self.until_note(self.work / "state.json.pins", SESSIONS[-1])
        await self.crash()
        second = await self.serving("--initial-replicas", "2", ready=2)
        self.assertEqual(await self.homes(), homes)
        hits = (await self.call("GET", "/health")).document["affinity_hits"]
        self.assertEqual(hits, len(SESSIONS))
        for slot, instance in instances.items():
            self.assertEqual((await self.replica(slot))["instance"], instance)
            self.assertEqual(self.loads(slot), 1)
        second.signal("TERM")
        self.assertEqual(await self.ended(second), 0)
        self.assertEqual(self.marked(), set())

    async def test_lost_meanwhile(self) -> None:
        """A replica that ended while no router ran is reserved, its sessions go to the other one."""
        homes = await self.homes()
        await self.until_note(self.work / "state.json.pins", SESSIONS[-1])
        await self.crash()
        lost, left = self.pid_of("here-d0"), self.pid_of("here-d1")
        os.kill(lost, signal.SIGKILL)
        await self.until_gone(lost)
        await self.serving("--initial-replicas", "2", ready=1)
        self.assertIn(lost, homes.values())
        self.assertEqual(set((await self.homes()).values()), {left})
        (held,) = (await self.capacity())["unconfirmed"]
        self.assertEqual((held["slot"], held["reason"]), ("here-d0", "unreachable-at-startup"))
        self.assertEqual(self.loads("here-d0"), 1)


class LoadingTests(LiveCase):
    """A router that is killed while its only replica still loads its model."""

    async def setUp(self) -> None:  # type: ignore[override]  # trial waits for it
        super().setUp()
        self.fleet(self.host("--load", "60"))
        first = await self.serving()

        async def launched() -> bool:
            return self.state_file.exists() and self.recorded()["handle"] is not None

        await self.until(launched, "a launch on record")
        self.instance, self.loading = self.recorded()["instance"], self.pid_of()
        first.signal("KILL")
        await self.ended(first)
        self.second = await self.serving()

        async def judged() -> Any:
            return (await self.capacity())["unconfirmed"]

        (self.held,) = await self.until(judged, "a reserved slot")

    async def release(self, **wish: object) -> int:
        """Ask for the slot back: the status of the answer."""
        return (await self.call("POST", "/slots/here-d0/release", {"instance": self.instance, **wish})).status

    async def test_reserved(self) -> None:
        """The slot is reserved and not launched on; nobody touches what loads there, a shutdown neither."""
        self.assertEqual(self.held["reason"], "unreachable-at-startup")
        self.assertEqual((self.held["instance"], self.held["devices"]), (self.instance, [0]))
        self.assertEqual((await self.call("POST", "/replicas")).status, 409)
        self.second.signal("TERM")
        self.assertEqual(await self.ended(self.second), 0)
        self.assertTrue(is_alive(self.loading))
        self.assertEqual(self.recorded()["reason"], "unreachable-at-startup")

    async def test_release(self) -> None:
        """It is not given back while the process is there, nor for another instance; afterwards it is."""
        self.assertEqual(await self.release(), 409)
        os.kill(self.loading, signal.SIGKILL)
        await self.until_gone(self.loading)
        self.assertEqual(await self.release(instance="another"), 409)
        self.assertEqual(await self.release(), 200)
        capacity = await self.capacity()
        self.assertEqual((capacity["free_slots"], capacity["unconfirmed"]), (["here-d0"], []))

    async def test_force(self) -> None:
        """Forced back under a living process, the slot is still not launched on: its lock is held."""
        self.assertEqual(await self.release(force=True), 200)
        refused = await self.call("POST", "/replicas")
        self.assertEqual(refused.status, 502)
        self.assertIn("holds its lock", refused.document["error"]["message"])
        self.assertTrue(is_alive(self.loading))


class DetachTests(LiveCase):
    """``--detach-on-exit``."""

    async def test_left_running(self) -> None:
        """SIGTERM ends the router with 0 and leaves the replica, which the next router adopts and ends."""
        self.fleet(self.host())
        first = await self.serving("--detach-on-exit", ready=1)
        replica = self.pid_of()
        first.signal("TERM")
        self.assertEqual(await self.ended(first), 0)
        self.assertTrue(is_alive(replica))
        second = await self.serving(ready=1)
        self.assertEqual((self.pid_of(), self.loads()), (replica, 1))
        second.signal("TERM")
        self.assertEqual(await self.ended(second), 0)
        self.assertEqual(self.marked(), set())


class AdoptedTests(LiveCase):
    """A replica that another router launched, and that is no child of this one."""

    async def setUp(self) -> None:  # type: ignore[override]  # trial waits for it
        super().setUp()
        self.fleet(self.host())
        first = await self.serving("--detach-on-exit", ready=1)
        first.signal("TERM")
        await self.ended(first)
        self.pid = self.pid_of()

    async def test_exit_noticed(self) -> None:
        """Its end is seen at once, long before a probe could miss it."""
        router = await self.serving("--health-interval", "60", ready=1)
        os.kill(self.pid, signal.SIGKILL)
        await router.wrote(b"process %d is gone" % self.pid)
        await router.wrote(b"slot here-d0: waiting")
        self.assertEqual((await self.replica())["phase"], "failed")

    async def test_left_the_configuration(self) -> None:
        """One whose slot is no longer declared is shown as unconfirmed, and nobody touches it."""
        self.fleet(self.host(name="there"))
        router = await self.serving("--initial-replicas", "0")
        (held,) = (await self.capacity())["unconfirmed"]
        self.assertEqual((held["slot"], held["reason"]), ("here-d0", "slot-left-config"))
        router.signal("TERM")
        self.assertEqual(await self.ended(router), 0)
        self.assertTrue(is_alive(self.pid))
        self.assertEqual(self.pid_of(), self.pid)


class SecondRouterTests(LiveCase):
    """Two routers, one state file."""

    async def test_refused(self) -> None:
        """The second one ends with 69, names the first one's pid, and touches nothing of it."""
        self.fleet(self.host())
        first = await self.serving(ready=1)
        self.port += 1
        second: Watched = self.router()
        self.assertEqual(await self.ended(second), 69)
        self.assertIn(f"pid {first.transport.pid}", second.err.decode())
        self.port -= 1
        await self.served(1)
        self.assertEqual(self.loads(), 1)
