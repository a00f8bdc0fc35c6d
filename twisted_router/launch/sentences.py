"""What an operator reads when an ssh host cannot be used: the same words whichever client found out."""

from __future__ import annotations

HOST_KEY_CHANGED = "its host key is not the known one; compare it, and correct known_hosts if it is right"
HOST_KEY_UNKNOWN = "its host key is not known; compare it, and add it to known_hosts if it is right"
KEY_REFUSED = "it refuses our key; see identity_file, and authorized_keys over there"
UNREACHABLE = "it cannot be reached"
SILENT = "its ssh server does not answer"
CONNECTION_LOST = "the connection was lost"


def too_long(seconds: float) -> str:
    """Say that a step was given up."""
    return f"no end of this step within {seconds:g} s"
