"""The router under twistd, in the background: pidfile, log, signals."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from time import monotonic

from tests.programs import start

from .scene import LiveCase, is_alive, script


class DaemonCase(LiveCase):
    """Starts ``twistd pypto-router``."""

    def setUp(self) -> None:
        super().setUp()
        self.pidfile = self.work / "router.pid"
        self.log = self.work / "router.log"

    async def twistd(self, *more: str) -> tuple[int, str]:
        """Have twistd go into the background: its exit code, and what it said."""
        own = ["--pidfile", str(self.pidfile), "--logfile", str(self.log), "--rundir", str(self.work)]
        parent = start(self, script("twistd"), *own, "pypto-router", *self.flags(*more), env=self.env)
        code = await self.ended(parent)
        return code, (parent.out + parent.err).decode()

    async def daemon(self, *more: str, ready: int = 0) -> int:
        """Start a router that serves; its pid."""
        code, said = await self.twistd(*more)
        self.assertEqual(code, 0, said)
        await self.served(ready)
        return int(self.pidfile.read_text())


class LifeTests(DaemonCase):
    """From the start to the end."""

    async def test_life(self) -> None:
        """It serves and logs; SIGTERM ends an idle one within 2 s, and its pidfile goes with it."""
        self.fleet(self.host())
        pid = await self.daemon("--initial-replicas", "0")
        self.assertEqual((await self.call("GET", "/liveness")).status, 200)
        asked = monotonic()
        os.kill(pid, signal.SIGTERM)
        await self.until_gone(pid)
        self.assertLess(monotonic() - asked, 2.0)
        self.assertFalse(self.pidfile.exists())
        self.assertIn("got SIGTERM, stopping", self.log.read_text())

    async def test_port_in_use(self) -> None:
        """A port that is taken fails the command itself; nothing stays in the background."""
        self.fleet(self.host())
        with socket.create_server(("127.0.0.1", self.port)):
            code, said = await self.twistd()
        self.assertNotEqual(code, 0)
        self.assertIn("CannotListenError", said)
        await self.until_gone(*self.marked())
        self.assertFalse(self.pidfile.exists())
        self.assertFalse((self.work / "logs").exists(), "a replica was launched")

    async def test_state_file(self) -> None:
        """So does a state file that cannot be used; the log says which, and what to do."""
        self.fleet(self.host())
        self.state_file.write_text("[]")
        code, said = await self.twistd()
        self.assertEqual(code, 1)
        self.assertIn("StateFileError", said)
        await self.until_note(self.log, f"state file {self.state_file} cannot be used")
        await self.until_gone(*self.marked())
        self.assertFalse(self.pidfile.exists())
        self.assertFalse((self.work / "logs").exists(), "a replica was launched")

    async def test_second_sigterm(self) -> None:
        """SIGTERM waits for requests under way, a second one does not."""
        self.fleet(self.host())
        pid = await self.daemon(ready=1)
        rest = await self.hold("s")
        os.kill(pid, signal.SIGTERM)
        await self.until_note(self.log, "waiting for requests under way: 1")
        self.assertTrue(is_alive(pid))
        os.kill(pid, signal.SIGTERM)
        await self.until_gone(pid)
        self.assertNotIn("end", str(await rest.addErrback(lambda failure: failure.value)))
        self.assertEqual(self.marked(), set())

    async def test_sigquit(self) -> None:
        """SIGQUIT leaves the replica to the next router, which adopts it; SIGTERM then ends both."""
        self.fleet(self.host())
        first = await self.daemon(ready=1)
        replica = (await self.turn("s"))["pid"]
        os.kill(first, signal.SIGQUIT)
        await self.until_gone(first)
        self.assertEqual(self.marked(), {replica})
        second = await self.daemon(ready=1)
        self.assertEqual((await self.turn("s"))["pid"], replica)
        os.kill(second, signal.SIGTERM)
        await self.until_gone(second, replica)
        self.assertEqual(self.marked(), set())

    async def test_exit_noticed(self) -> None:
        """The exit of a replica is seen at once in the background too, and it is replaced where it was."""
        self.fleet(self.host())
        await self.daemon("--health-interval", "5", ready=1)
        before = self.recorded()
        os.kill(self.pid_of(), signal.SIGKILL)
        await self.until_note(self.log, "was killed by SIGKILL")
        await self.until_note(self.log, "slot here-d0: waiting")
        self.assertEqual((await self.replica())["phase"], "failed")
        await self.served(1)
        after = self.recorded()
        self.assertNotEqual(after["instance"], before["instance"])
        self.assertEqual((after["devices"], after["port"]), (before["devices"], before["port"]))
        self.assertEqual(self.loads(), 2)

    async def test_sigterm_right_after_the_start(self) -> None:
        """A daemon that is told to end as soon as its parent returns leaves nothing behind."""
        self.fleet(self.host(devices=2))
        self.assertEqual(await self.twistd("--initial-replicas", "2"), (0, ""))
        pid = int(self.pidfile.read_text())
        os.kill(pid, signal.SIGTERM)
        await self.until_gone(pid)
        self.assertEqual(self.marked(), set())
        self.assertFalse(self.pidfile.exists())


class PidfileTests(DaemonCase):
    """What lies where the pidfile is to go."""

    async def refused(self, content: str) -> str:
        """Start over this pidfile, in vain; what was said."""
        self.fleet(self.host())
        self.pidfile.write_text(content)
        code, said = await self.twistd()
        self.assertNotEqual(code, 0)
        self.assertEqual(self.pidfile.read_text(), content)
        self.assertEqual(self.marked(), set())
        self.assertFalse((self.work / "logs").exists(), "a replica was launched")
        return said

    async def test_empty(self) -> None:
        """An empty pidfile stops the start and is named."""
        self.assertIn(str(self.pidfile), await self.refused(""))

    async def test_garbage(self) -> None:
        """So does one that holds no number."""
        self.assertIn(str(self.pidfile), await self.refused("router\n"))

    async def test_live_stranger(self) -> None:
        """A pidfile that names somebody who lives stops the start; nobody is signalled."""
        stranger = start(self, "-c", "input()", fds={0: "w", 1: "r", 2: "r"})
        pid = stranger.transport.pid
        self.assertIn(str(pid), await self.refused(f"{pid}\n"))
        self.assertFalse(stranger.ended.called)

    async def test_dead(self) -> None:
        """One that names a process that is gone is taken over."""
        gone = start(self, "-c", "")
        pid = gone.transport.pid
        await self.ended(gone)
        self.fleet(self.host())
        self.pidfile.write_text(f"{pid}\n")
        daemon = await self.daemon("--initial-replicas", "0")
        self.assertEqual(Path(self.pidfile).read_text(), str(daemon))
