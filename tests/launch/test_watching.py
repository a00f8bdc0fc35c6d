"""Noticing the end of what is not our child."""

from __future__ import annotations

import contextlib
import os
import subprocess

from twisted.internet import reactor
from twisted.internet.defer import CancelledError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase, TestCase

from twisted_router.launch import proc
from twisted_router.launch.watching import looked_for, process_end


class DescriptorTests(TestCase):
    """By pidfd: at once and without looking."""

    timeout = 30

    def setUp(self) -> None:
        self.child = subprocess.Popen(["/bin/sleep", "60"])
        seen = proc.status(self.child.pid)
        assert seen is not None
        self.process = seen.process

    def tearDown(self) -> None:
        self.child.kill()
        self.child.wait()

    def descriptors(self) -> int:
        """How many pidfds we have open."""
        links = []
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):
                links.append(os.readlink(f"/proc/self/fd/{name}"))
        return sum("pidfd" in link for link in links)

    async def test_the_end(self) -> None:
        """The end of the process fires the watch and closes the descriptor."""
        watch = process_end(reactor, self.process)
        self.assertEqual(self.descriptors(), 1)
        self.child.kill()
        await watch
        self.assertEqual(self.descriptors(), 0)

    async def test_a_process_that_is_another_by_now(self) -> None:
        """A reused pid means that ours has ended."""
        await process_end(reactor, proc.Process(self.process.pid, f"1{self.process.started}"))

    async def test_cancelled(self) -> None:
        """A watch that is given up closes its descriptor."""
        watch = process_end(reactor, self.process)
        watch.cancel()
        await self.assertFailure(watch, CancelledError)
        self.assertEqual(self.descriptors(), 0)

    async def test_no_descriptor_to_be_had(self) -> None:
        """Where the kernel gives none, looking once a second does."""
        clock = Clock()

        def refuse(*args: object) -> int:
            raise OSError

        self.patch(os, "pidfd_open", refuse)
        watch = process_end(clock, self.process)
        clock.advance(1)
        self.assertNoResult(watch)
        self.child.kill()
        self.child.wait()
        clock.advance(1)
        self.assertIsNone(self.successResultOf(watch))


class LookingTests(SynchronousTestCase):
    """By a look each second."""

    def test_looking_ends_with_the_watch(self) -> None:
        """Neither the end nor a cancel leaves a timer behind."""
        clock = Clock()
        there = [True]
        watch = looked_for(clock, lambda: there[0])
        there[0] = False
        clock.advance(1)
        self.successResultOf(watch)
        given_up = looked_for(clock, lambda: True)
        given_up.cancel()
        self.failureResultOf(given_up, CancelledError)
        self.assertEqual(clock.getDelayedCalls(), [])
