"""The wall clock is set back under a running router."""

from __future__ import annotations

import os
import signal

from .scene import LiveCase

#: Read by the interpreter at its start: as soon as the file exists, it is an hour earlier.
AN_HOUR_BACK = """
import os, time
def shifted(real=time.time):
    return real() - 3600 * os.path.exists({file!r})
time.time = shifted
"""


class SteppedBackTests(LiveCase):
    """An hour, at once."""

    async def setUp(self) -> None:  # type: ignore[override]  # trial waits for it
        super().setUp()
        self.stepped = self.work / "stepped"
        modules = self.work / "modules"
        modules.mkdir()
        (modules / "sitecustomize.py").write_text(AN_HOUR_BACK.format(file=str(self.stepped)))
        self.env["PYTHONPATH"] = os.pathsep.join([str(modules), self.env.get("PYTHONPATH", "")]).rstrip(":")

    async def test_timers(self) -> None:
        """Probes and deadlines go on: a hang is found, an endless launch is given up and killed."""
        self.fleet(self.host("--ignore-term", "--load", "60"), self.host(name="other", first=1))
        flags = ("--launch-timeout", "4", "--initial-replicas", "2", "--health-interval", "0.5")
        router = await self.serving(*flags, "--connect-timeout", "0.5", ready=1)
        self.stepped.touch()
        hanging = self.pid_of("other-d1")
        os.kill(hanging, signal.SIGSTOP)
        await router.wrote(b"replica other-d1 is out of rotation: ")
        await router.wrote(b"not ready within 4 s")
        await router.wrote(b"slot here-d0: free")
        os.kill(hanging, signal.SIGCONT)
        await self.served(1, router)
        self.assertEqual(self.loads("other-d1"), 1)
        router.signal("TERM")
        self.assertEqual(await self.ended(router), 0)
