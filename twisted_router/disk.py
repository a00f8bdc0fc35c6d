"""What more than one room asks of a file here: is its lock held, would ssh use it as a key."""

from __future__ import annotations

import fcntl
import os
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
