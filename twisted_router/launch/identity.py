"""What both ssh clients need to know before they connect: keys and where they may lie."""

from __future__ import annotations

import os
import stat


def identity_problem(path: str) -> str | None:
    """Say why a private key cannot be used as it lies there, None when it can."""
    try:
        found = os.stat(os.path.expanduser(path))
    except OSError as error:
        return f"identity file {path}: {(error.strerror or str(error)).lower()}"
    if not stat.S_ISREG(found.st_mode):
        return f"identity file {path} is no file"
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        return f"identity file {path} is open to others (mode {mode:04o}); run chmod 600 {path}"
    return None
