"""Where ssh's sockets lie."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.launch.sockets import PREFIX, SocketDirectory

#: A router that makes its directory, puts a socket there and is killed.
KILLED = """
import os, socket, sys
from twisted_router.launch.sockets import SocketDirectory
directory = SocketDirectory(sys.argv[1])
path = os.path.abspath(directory.path)
os.chdir(path)
socket.socket(socket.AF_UNIX).bind("socket")
print(path, flush=True)
os.kill(os.getpid(), 9)
"""


class SocketDirectoryTests(SynchronousTestCase):
    """A private directory that goes with the router."""

    def setUp(self) -> None:
        self.temporary = self.mktemp()
        os.mkdir(self.temporary)

    def made(self) -> SocketDirectory:
        directory = SocketDirectory(self.temporary)
        self.addCleanup(directory.remove)
        return directory

    def test_private(self) -> None:
        """Nobody else can look into it, and its name says whose it is."""
        path = self.made().path
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o700)
        self.assertEqual(os.listdir(self.temporary), [os.path.basename(path)])
        self.assertTrue(os.path.basename(path).startswith(PREFIX))

    def test_short(self) -> None:
        """In the usual place there is room for a socket whose name ssh makes up."""
        directory = SocketDirectory(tempfile.gettempdir())
        self.addCleanup(directory.remove)
        self.assertLess(len(os.path.basename(directory.path)) + len("/tmp//") + 40 + 18, 108)

    def test_several(self) -> None:
        """Each host of a router has one, whoever comes later."""
        first, second = self.made(), self.made()
        self.assertTrue(os.path.isdir(first.path) and os.path.isdir(second.path))

    def test_removed(self) -> None:
        """It goes with what is in it; a second time nothing happens."""
        directory = self.made()
        open(os.path.join(directory.path, "socket"), "w").close()
        directory.remove()
        self.made()
        directory.remove()
        self.assertEqual(len(os.listdir(self.temporary)), 1)

    def test_killed(self) -> None:
        """What a killed router left is removed by the next one, and nothing of a living one is."""
        living = self.made()
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        ended = subprocess.run(
            [sys.executable, "-c", KILLED, self.temporary],
            capture_output=True,
            env={**os.environ, "PYTHONPATH": root},
        )
        self.assertEqual(ended.returncode, -signal.SIGKILL, ended.stderr)
        left = ended.stdout.decode().strip()
        self.assertTrue(os.path.isdir(left))
        self.made()
        self.assertFalse(os.path.exists(left))
        self.assertTrue(os.path.isdir(living.path))
