"""Tests for ``twisted_router.disk``."""

from __future__ import annotations

import fcntl
import os

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.disk import is_locked, key_problem, remove_left


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


class LeftTests(SynchronousTestCase):
    """``remove_left`` removes what the dead have left, and nothing else."""

    def setUp(self) -> None:
        self.parent = self.mktemp()

    def make(self, name: str, lock: str | None = None) -> str:
        path = os.path.join(self.parent, name)
        os.makedirs(path)
        if lock is not None:
            os.close(os.open(os.path.join(path, lock), os.O_CREAT | os.O_WRONLY))
        return path

    def hold(self, path: str) -> None:
        held = os.open(path, os.O_RDONLY)
        self.addCleanup(os.close, held)
        fcntl.flock(held, fcntl.LOCK_EX)

    def test_by_a_file(self) -> None:
        """A directory whose lock nobody holds goes with all in it; one held, or without a lock yet, stays."""
        self.make("x-left", "lock")
        self.hold(os.path.join(self.make("x-held", "lock"), "lock"))
        self.make("x-new")
        remove_left(self.parent, "x-", "lock")
        self.assertEqual(sorted(os.listdir(self.parent)), ["x-held", "x-new"])

    def test_by_itself(self) -> None:
        """Without a lock file it is the directory that is locked."""
        self.make("x-left")
        self.hold(self.make("x-held"))
        remove_left(self.parent, "x-")
        self.assertEqual(os.listdir(self.parent), ["x-held"])

    def test_somebody_elses(self) -> None:
        """What has such a name and holds no lock file may be anybody's: with a file in it, it stays."""
        key = os.path.join(self.make("x-keys", "id_ed25519"), "id_ed25519")
        remove_left(self.parent, "x-")
        self.assertTrue(os.path.exists(key))

    def test_others(self) -> None:
        """Other names, files, links and directories of other users are none of ours."""
        self.make("y-1")
        os.symlink(self.make("elsewhere"), os.path.join(self.parent, "x-link"))
        os.close(os.open(os.path.join(self.parent, "x-file"), os.O_CREAT | os.O_WRONLY))
        remove_left(self.parent, "x-")
        self.make("x-theirs")
        self.patch(os, "getuid", lambda: os.stat(self.parent).st_uid + 1)
        remove_left(self.parent, "x-")
        self.assertEqual(
            sorted(os.listdir(self.parent)), ["elsewhere", "x-file", "x-link", "x-theirs", "y-1"]
        )
