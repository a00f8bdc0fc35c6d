"""The two files a slot has on this machine: its lock and its log."""

from __future__ import annotations

import fcntl
import os

#: Bytes from the end of a log that are looked at.
LOG_WINDOW = 64 * 1024


def take_lock(path: str) -> int | None:
    """Open a lock file and lock it; the descriptor holds the lock. None when somebody else has it.

    Raises OSError when the file cannot be opened.
    """
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Out of the way of 0 to 3, onto which it is copied in the child.
        lock = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, 16)
    finally:
        os.close(opened)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def open_log(path: str) -> int:
    """Open a log for appending. Raises OSError."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def last_lines(path: str, lines: int) -> str:
    """The last lines of a file, read from its end; empty when it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_WINDOW))
            data = file.read(LOG_WINDOW)
    except OSError:
        return ""
    return "\n".join(data.decode("utf-8", "replace").splitlines()[-lines:]) if lines > 0 else ""
