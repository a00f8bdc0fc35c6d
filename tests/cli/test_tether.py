"""What is tied to a file ends with the file's holder."""

from __future__ import annotations

import os

from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.programs import start
from twisted_router.cli.tether import hold
from twisted_router.disk import is_locked

TETHER = ("-m", "twisted_router.cli.tether")
SIM = ("twisted_router.sim", "--port", "0")


class HoldTests(SynchronousTestCase):
    """A held file."""

    def test_held(self) -> None:
        """It is held from the moment it has its name until its holder lets go."""
        path = self.mktemp()
        held = hold(path)
        self.assertTrue(is_locked(path))
        os.close(held)
        self.assertFalse(is_locked(path))


class TetherTests(TestCase):
    """A program that is tied to a file."""

    timeout = 60

    async def test_ends_with_its_holder(self) -> None:
        """It runs as long as the file is held and ends by itself when it is not."""
        path = os.path.abspath(self.mktemp())
        held = hold(path)
        tied = start(self, *TETHER, path, *SIM)
        await tied.wrote(b"ready on ")
        self.assertFalse(tied.ended.called)
        os.close(held)
        self.assertEqual(await tied.ended, 1)

    async def test_session_of_its_own(self) -> None:
        """It leads a session, so that what a terminal sends its holder does not reach it."""
        path = os.path.abspath(self.mktemp())
        self.addCleanup(os.close, hold(path))
        tied = start(self, *TETHER, path, *SIM)
        await tied.wrote(b"ready on ")
        pid = tied.transport.pid
        self.assertEqual(os.getsid(pid), pid)

    async def test_too_late(self) -> None:
        """Without the file it does not begin, and says so."""
        tied = start(self, *TETHER, os.path.abspath(self.mktemp()), *SIM)
        self.assertEqual(await tied.ended, 1)
        self.assertIn(b"No such file or directory: what twisted_router.sim was started for is over", tied.err)
