"""Which launcher a host gets."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from typing import Any

from ..config.model import HostConfig
from ..interfaces import ILauncher
from .local import LocalLauncher


def make_launcher(
    host: HostConfig,
    reactor: Any,
    now: Callable[[], float],
    state_dir: str,
    open_files: int | None = None,
) -> ILauncher:
    """Give a host its launcher: local without ``ssh``, else what ``ssh_client`` says.

    Where that says nothing it is OpenSSH if the program is there, Conch if not.

    :param now: seconds on the monotonic clock.
    :param state_dir: where local logs and locks go by default.
    :param open_files: soft limit on open files of local replicas, if not the router's own.
    """
    if host.ssh is None:
        return LocalLauncher(host, reactor, now, state_dir, open_files)
    client = host.ssh_client or ("openssh" if shutil.which("ssh") else "conch")
    if client == "conch":
        from .conch import ConchLauncher

        return ConchLauncher(host, reactor)
    from .openssh import OpenSSHLauncher
    from .sockets import SocketDirectory

    return OpenSSHLauncher(host, reactor, SocketDirectory(tempfile.gettempdir()))
