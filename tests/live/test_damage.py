"""State files that cannot be used, and disks that are full."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from twisted.trial.unittest import SkipTest

from tests.programs import Watched, start

from .scene import LiveCase, is_alive, script

#: In a mount namespace of its own, which is gone with the process: a disk of 64 KB, then the router.
ON_A_SMALL_DISK = (
    "import os, sys; os.execvp('unshare', ['unshare', '--map-root-user', '--mount', 'sh', '-c',"
    ' \'mount -t tmpfs -o size=64k small "$0" && exec "$@"\', *sys.argv[1:]])'
)


class DamagedTests(LiveCase):
    """A replica runs, and the file that says so is no longer what it was."""

    async def setUp(self) -> None:  # type: ignore[override]  # trial waits for it
        super().setUp()
        self.fleet(self.host())
        first = await self.serving("--detach-on-exit", ready=1)
        self.replica = self.pid_of()
        first.signal("TERM")
        await self.ended(first)
        self.good = self.state_file.read_bytes()

    async def refused(self) -> None:
        """The start ends with 1, names file and way out, launches nothing, and leaves the replica alone."""
        router = self.router()
        self.assertEqual(await self.ended(router), 1)
        self.assertNotIn(b"Traceback", router.err)
        (line,) = [line for line in router.err.decode().splitlines() if ": error: " in line]
        for word in (str(self.state_file), "nothing is started", "move the file away"):
            self.assertIn(word, line)
        self.assertEqual(self.loads(), 1)
        self.assertEqual(self.marked(), {self.replica})

    async def test_content(self) -> None:
        """Cut off, empty, NULs, a list: the file stays as it is."""
        for content in (self.good[: len(self.good) // 2], b"", bytes(len(self.good)), b"[]"):
            self.state_file.write_bytes(content)
            await self.refused()
            self.assertEqual(self.state_file.read_bytes(), content)

    async def test_unreadable(self) -> None:
        """Something that cannot be read stays where it is."""
        self.state_file.unlink()
        self.state_file.mkdir()
        await self.refused()
        self.assertTrue(self.state_file.is_dir())


class FullDiskTests(LiveCase):
    """The state directory is on a file system that fills up."""

    def setUp(self) -> None:
        super().setUp()
        try:
            able = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "x", str(self.work)]
            subprocess.run(able, check=True, capture_output=True, timeout=10)
        except (OSError, subprocess.SubprocessError) as problem:
            raise SkipTest(f"no file system can be mounted here: {problem}") from problem
        self.disk = self.work / "disk"
        self.disk.mkdir()
        self.state_file = self.disk / "state.json"

    def router(self, *more: str) -> Watched:
        argv = (str(self.disk), script("pypto-serving-router"), *self.flags(*more))
        return start(self, "-c", ON_A_SMALL_DISK, *argv, env=self.env)

    async def test_full(self) -> None:
        """Launches are refused with the reason, the old file stays, serving goes on; room ends all that."""
        self.fleet(self.host(devices=2, log_dir=str(self.work / "logs")))
        router = await self.serving(ready=1)
        seen = Path(f"/proc/{router.transport.pid}/root{self.state_file}")
        before = seen.read_bytes()
        filler = seen.with_name("filler")
        with open(filler, "wb", buffering=0) as file, self.assertRaises(OSError):
            while True:
                file.write(bytes(4096))
        refused = await self.call("POST", "/replicas")
        self.assertEqual(refused.status, 502)
        self.assertIn("No space left on device", refused.document["error"]["message"])
        self.assertIn(str(self.state_file), refused.document["error"]["message"])
        self.assertEqual(refused.document["capacity"]["free_slots"], ["here-d1"])
        self.assertEqual(seen.read_bytes(), before)
        self.assertEqual(json.loads(before)["slots"][0]["slot"], "here-d0")
        self.assertFalse((self.work / "logs" / "here-d1.log").exists(), "a replica was launched")
        self.assertTrue(is_alive((await self.turn("s"))["pid"]))
        os.unlink(filler)
        self.assertEqual((await self.call("POST", "/replicas")).status, 202)
        await self.served(2, router)
        self.assertEqual(len(json.loads(seen.read_bytes())["slots"]), 2)
        router.signal("TERM")
        self.assertEqual(await self.ended(router), 0)
        self.assertEqual(self.marked(), set())
