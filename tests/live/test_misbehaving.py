"""Replicas that do not do what they should."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from tests.programs import start

from .scene import REPLICA, Answer, LiveCase, is_alive


def memory(pid: int) -> int:
    """Resident bytes of a process."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


class StubbornTests(LiveCase):
    """A replica that has forked and ignores SIGTERM."""

    async def test_killed(self) -> None:
        """It is killed after --stop-grace, its child included, and only then is the slot free."""
        self.fleet(self.host("--fork", "--ignore-term"))
        router = await self.serving(ready=1)
        family = self.marked() - {router.transport.pid}
        self.assertEqual(len(family), 2)
        gone = await self.call("DELETE", "/replicas/here-d0")
        self.assertEqual(gone.status, 200, gone.text)
        self.assertEqual(gone.document["capacity"]["free_slots"], ["here-d0"])
        self.assertFalse([pid for pid in family if is_alive(pid)])
        self.assertEqual((await self.call("POST", "/replicas")).status, 202)
        await self.served(1)

    async def test_killed_at_the_end(self) -> None:
        """The router's own end waits for that, and a second SIGTERM does not wait for the grace period."""
        self.fleet(self.host("--fork", "--ignore-term"))
        router = await self.serving("--stop-grace", "600", ready=1)
        router.signal("TERM")
        await router.wrote(b"slot here-d0: stopping")
        self.assertEqual(len(self.marked()), 3)
        router.signal("TERM")
        self.assertEqual(await self.ended(router), 0)
        self.assertEqual(self.marked(), set())


class NoisyTests(LiveCase):
    """A replica that says 100 MB at once."""

    async def test_flood(self) -> None:
        """All of it is in the log; the router serves on, and is no bigger for it."""
        self.fleet(self.host("--flood", "100000000"), replicas=())
        router = await self.serving("--initial-replicas", "0")
        before = memory(router.transport.pid)
        self.assertEqual((await self.call("POST", "/replicas")).status, 202)
        await self.served(1, router)
        log = self.work / "logs" / "here-d0.log"
        self.addCleanup(log.unlink)
        self.assertGreater(log.stat().st_size, 99_000_000)
        os.kill(self.pid_of(), signal.SIGKILL)

        async def told() -> Any:
            return [failure for failure in (await self.capacity())["failures"] if failure["log_tail"]]

        (failure,) = await self.until(told, "the last lines of the log")
        self.assertTrue(failure["log_tail"].endswith("\nready"))
        self.assertLess(memory(router.transport.pid) - before, 20_000_000)


class OrphanTests(LiveCase):
    """A replica whose process ends while a child of it keeps standard output and the lock."""

    async def test_exit(self) -> None:
        """The exit is noticed at once, and the child is gone before the slot waits for its replacement."""
        self.fleet(self.host("--fork"))
        router = await self.serving("--health-interval", "5", ready=1)
        (orphan,) = self.marked() - {router.transport.pid, self.pid_of()}
        await self.ask("POST", "/v1/completions", {"leave": True})
        await router.wrote(b"exited with code 0")
        await router.wrote(b"slot here-d0: waiting")
        self.assertFalse(is_alive(orphan))
        replica = await self.replica()
        self.assertEqual((replica["phase"], replica["losses"]), ("failed", 1))
        self.assertEqual((await self.call("GET", "/health")).document["replicas_failed"], 1)


class UnlaunchableTests(LiveCase):
    """Hosts on which nothing comes up."""

    async def launched(self, **keys: Any) -> Answer:
        """Ask for a replica on such a host; a failure is told, and leaves its slot free."""
        self.fleet({**self.host(), **keys})
        self.running = await self.serving("--initial-replicas", "0")
        answer = await self.call("POST", "/replicas", {"slot": "here-d0"})
        if answer.status != 202:
            self.assertEqual(answer.status, 502)
            self.assertEqual(answer.document["capacity"]["free_slots"], ["here-d0"])
        return answer

    async def test_missing(self) -> None:
        """A serving program that does not exist is named."""
        answer = await self.launched(command=["no-such-program"])
        self.assertIn("no-such-program is not found", answer.document["error"]["message"])

    async def test_not_executable(self) -> None:
        """So is one that may not be executed."""
        plain = self.work / "plain"
        plain.write_text("text")
        answer = await self.launched(command=[str(plain)])
        self.assertIn(f"{plain} is not executable", answer.document["error"]["message"])

    async def test_exits_at_once(self) -> None:
        """One that exits with 1 is noticed at once, told with its last lines, and its slot is free again."""
        await self.launched(command=["sh", "-c", "echo cannot load the model; exit 1"])

        async def told() -> Any:
            capacity = await self.capacity()
            return [fault for fault in capacity["failures"] if fault["log_tail"] and capacity["free_slots"]]

        (failure,) = await self.until(told, "the failure of a launch")
        self.assertIn("exited with code 1", failure["reason"])
        self.assertIn("cannot load the model", failure["log_tail"])

    async def test_stranger(self) -> None:
        """A port on which a stranger answers 200 fails the launch; the stranger is never touched."""
        host = self.host()
        stranger = start(self, REPLICA, "--port", str(self.base))
        await stranger.wrote(b"ready")
        answer = await self.launched(port_base=host["port_base"])
        self.assertIn(f"something already answers on 127.0.0.1:{host['port_base']}", answer.text)
        self.running.signal("TERM")
        self.assertEqual(await self.ended(self.running), 0)
        known = await self.call("GET", f"http://127.0.0.1:{host['port_base']}/")
        self.assertEqual(known.document["pid"], stranger.transport.pid)


class ArgumentTests(LiveCase):
    """What is passed on to the replica."""

    async def test_verbatim(self) -> None:
        """serve_args arrive as they are: spaces, quotes, dollars, braces, line ends, other scripts."""
        awkward = [
            "two words",
            'it\'s "quoted"',
            "$HOME `id` $(id)",
            "{device} {port}",
            "a\nb",
            "größe 模型",
            "",
        ]
        program = self.work / "py thon"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {REPLICA} "$@"\n')
        program.chmod(0o755)
        host = self.host(python=str(program), serve_args=awkward)
        del host["command"]
        self.fleet(host)
        await self.serving(ready=1)
        argv = (await self.turn("s"))["argv"]
        self.assertEqual(argv[:2], ["-m", "pypto_serving.cli"])
        self.assertEqual(argv[-len(awkward) :], awkward)


class LostReplicaTests(LiveCase):
    """A replica is killed outright, or hangs."""

    async def test_survivor(self) -> None:
        """Its sessions go on at the other one without a failure, and no request meets the dead one."""
        self.fleet(self.host(devices=2))
        router = await self.serving("--initial-replicas", "2", ready=2)
        homes = {session: (await self.turn(session))["pid"] for session in ("a", "b", "c", "d")}
        lost = self.pid_of("here-d0")
        os.kill(lost, signal.SIGKILL)
        await self.until_gone(lost)
        after = {session: (await self.turn(session))["pid"] for session in homes}
        self.assertEqual(set(after.values()), {self.pid_of("here-d1")})
        await router.wrote(b"slot here-d0: waiting")
        self.assertEqual(json.loads(self.state_file.read_text())["slots"][0]["slot"], "here-d1")

    async def test_hang(self) -> None:
        """One that is there and says nothing for --replace-after is killed, and then replaced."""
        self.fleet(self.host())
        router = await self.serving("--connect-timeout", "0.5", "--replace-after", "1", ready=1)
        hanging = self.pid_of()
        os.kill(hanging, signal.SIGSTOP)
        await router.wrote(b"replica here-d0 is out of rotation")
        await router.wrote(b"slot here-d0: lost: no good answer for")
        await router.wrote(b"slot here-d0: waiting")
        self.assertFalse(is_alive(hanging))
        self.assertGreater((await self.replica())["retry_in_seconds"], 0)
