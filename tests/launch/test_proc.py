"""Who is who under /proc."""

from __future__ import annotations

import os
import signal
import subprocess

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.launch import proc


class ProcTests(SynchronousTestCase):
    """Processes are told apart by pid and start, and found by marker, group and session."""

    def start(self, *argv: str, env: dict[str, str] | None = None, own_session: bool = False) -> proc.Process:
        child = subprocess.Popen(argv, env=env, start_new_session=own_session)

        def reap() -> None:
            child.kill()
            child.wait()

        self.addCleanup(reap)
        seen = proc.status(child.pid)
        assert seen is not None
        return seen.process

    def test_a_name_may_hold_anything(self) -> None:
        """Parentheses, spaces and newlines in a program's name do not shift the fields."""
        directory = self.mktemp()
        os.mkdir(directory)
        odd = os.path.join(directory, ") Z 1\n (x")
        os.symlink("/bin/sleep", odd)
        process = self.start(odd, "60")
        seen = proc.status(process.pid)
        assert seen is not None
        self.assertTrue(seen.alive)
        self.assertEqual(seen.group, os.getpgrp())

    def test_a_zombie_is_not_alive(self) -> None:
        """What has ended and only waits to be reaped holds nothing any more."""
        process = self.start("/bin/true")
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        self.assertFalse(proc.is_alive(process))

    def test_another_start_is_another_process(self) -> None:
        """The same pid with another start time is not taken for it, nor signalled."""
        process = self.start("/bin/sleep", "60")
        stranger = proc.Process(process.pid, f"1{process.started}")
        self.assertFalse(proc.is_alive(stranger))
        proc.send(stranger, signal.SIGKILL)
        self.assertTrue(proc.is_alive(process))

    def test_nobody(self) -> None:
        """A pid that does not exist is nobody; signalling it is no error."""
        process = self.start("/bin/sleep", "60")
        os.kill(process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        proc.send(process, signal.SIGTERM)
        self.assertIsNone(proc.status(1 << 22))

    def test_markers_are_whole(self) -> None:
        """An instance whose name only begins alike is another one."""
        process = self.start("/bin/sleep", "60", env={"PYPTO_ROUTER_INSTANCE": "test-proc-12"})
        self.assertEqual(proc.members("test-proc-12", None), {process})
        self.assertEqual(proc.members("test-proc-1", None), frozenset())

    def test_a_group_counts_only_with_its_leader(self) -> None:
        """Members of the leader's group are the instance's, unless the leader is another process by now."""
        leader = self.start("/bin/sh", "-c", "sleep 60 & exec sleep 60", own_session=True)
        self.assertIn(leader, proc.members("test-proc-none", leader))
        stale = proc.Process(leader.pid, f"1{leader.started}")
        self.assertEqual(proc.members("test-proc-none", stale), frozenset())
        for member in proc.members("test-proc-none", leader):
            proc.send(member, signal.SIGKILL)
