"""What more than one room asks of a file here: is it locked or left, would ssh use it as a key."""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import stat


def is_locked(path: str) -> bool:
    """Whether somebody holds a file's lock. Raises OSError when that cannot be seen: no file, no verdict."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(opened)
    return False


def key_problem(path: str) -> str | None:
    """Tell why ssh would not use a private key file, None when it would."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        return f"{path} cannot be used: {error.strerror}"
    if not stat.S_ISREG(mode):
        return f"{path} is not a file"
    if stat.S_IMODE(mode) & 0o077:
        return f"{path} can be read by others (mode {stat.S_IMODE(mode):04o}); ssh refuses it, run chmod 600"
    return None


def remove_left(parent: str, prefix: str, lock: str = "") -> None:
    """Remove our own directories ``parent/prefix*`` whose makers are dead: nobody holds their lock.

    :param lock: the file in each that its maker holds locked; empty where that is the directory itself.
        Such a one shows by its name alone whose it is, so it stays if anything but sockets is in it.
    """
    for path in glob.glob(os.path.join(glob.escape(parent), prefix + "*")):
        try:
            found = os.lstat(path)
            is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
            is_ours = is_ours and (bool(lock) or _holds_only_sockets(path))
            is_left = is_ours and not is_locked(os.path.join(path, lock))
        except OSError:
            # Gone by now, or just being made.
            continue
        if is_left:
            shutil.rmtree(path, ignore_errors=True)


def _holds_only_sockets(path: str) -> bool:
    with os.scandir(path) as entries:
        return all(stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode) for entry in entries)
