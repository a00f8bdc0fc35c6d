"""Tests for ``twisted_router.disk``."""

from __future__ import annotations

import fcntl
import os

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.disk import is_locked, key_problem


class LockTests(SynchronousTestCase):
    """``is_locked`` sees another's lock and takes none itself."""

    def test_held(self) -> None:
        """A file is locked until whoever locked it lets go."""
        path = self.mktemp()
        held = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(held, fcntl.LOCK_EX)
        self.assertTrue(is_locked(path))
        os.close(held)
        self.assertFalse(is_locked(path))

    def test_looking_keeps_nobody_out(self) -> None:
        """Having looked leaves no lock behind."""
        path = self.mktemp()
        held = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self.addCleanup(os.close, held)
        self.assertFalse(is_locked(path))
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.assertTrue(is_locked(path))

    def test_missing(self) -> None:
        """A file that is not there has no verdict."""
        self.assertRaises(FileNotFoundError, is_locked, self.mktemp())


class KeyTests(SynchronousTestCase):
    """``key_problem`` says what ssh would dislike about a private key."""

    def key(self, mode: int) -> str:
        path = self.mktemp()
        with open(path, "w"):
            os.chmod(path, mode)
        return str(path)

    def test_good(self) -> None:
        """A file only its owner can read is fine."""
        self.assertIsNone(key_problem(self.key(0o600)))

    def test_open(self) -> None:
        """A file others can read is refused by ssh."""
        path = self.key(0o640)
        self.assertEqual(
            key_problem(path), f"{path} can be read by others (mode 0640); ssh refuses it, run chmod 600"
        )

    def test_absent(self) -> None:
        """A file that is not there."""
        self.assertEqual(key_problem("nowhere"), "nowhere cannot be used: No such file or directory")

    def test_directory(self) -> None:
        """Something that is no file."""
        self.assertEqual(key_problem(os.curdir), ". is not a file")
