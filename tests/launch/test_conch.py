"""Replicas by way of Twisted's own ssh."""

from __future__ import annotations

from twisted.internet import reactor

from twisted_router.config.model import HostConfig
from twisted_router.interfaces import ILauncher
from twisted_router.launch.conch import ConchLauncher

from .contract import LauncherContract
from .processes import ProcessContract
from .ssh_contract import SshContract


class ConchLauncherTests(SshContract, LauncherContract, ProcessContract):
    """The whole contract, over Twisted's own ssh."""

    def ssh_launcher(self, host: HostConfig) -> ILauncher:
        launcher: ILauncher = ConchLauncher(host, reactor)
        return launcher


del LauncherContract, ProcessContract, SshContract
