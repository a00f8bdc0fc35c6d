"""Launched replicas and the limit on open files."""

from __future__ import annotations

import re
import resource
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.launch.proc import limit_open_files


class OpenFiles(SynchronousTestCase):
    def test_soft_only(self) -> None:
        """A child gets the soft limit it would have had without us, and keeps its hard one."""
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.addCleanup(child.communicate, b"\n")
        limit_open_files(child.pid, 77)
        with open(f"/proc/{child.pid}/limits", encoding="ascii") as file:
            found = re.search(r"Max open files +(\d+) +(\d+)", file.read())
        assert found is not None
        self.assertEqual((int(found[1]), int(found[2])), (77, hard))

    def test_gone(self) -> None:
        """A child that has ended already is nobody's problem."""
        child = subprocess.Popen([sys.executable, "-c", ""])
        child.wait()
        self.assertIsNone(limit_open_files(child.pid, 77))
