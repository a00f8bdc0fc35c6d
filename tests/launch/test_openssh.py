"""Replicas by way of the system's ssh."""

from __future__ import annotations

import tempfile

from twisted.internet import reactor

from twisted_router.config.model import HostConfig
from twisted_router.interfaces import ILauncher
from twisted_router.launch.openssh import OpenSSHLauncher

from .contract import LauncherContract
from .processes import ProcessContract
from .ssh_contract import SshContract


class OpenSSHLauncherTests(SshContract, LauncherContract, ProcessContract):
    """The whole contract, over the system's ssh."""

    def ssh_launcher(self, host: HostConfig) -> ILauncher:
        launcher: ILauncher = OpenSSHLauncher(host, reactor, tempfile.mkdtemp(prefix="pypto-test-"))
        return launcher


del LauncherContract, ProcessContract, SshContract
