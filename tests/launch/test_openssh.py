"""Replicas by way of the system's ssh."""

from __future__ import annotations

import os
import tempfile

from twisted.internet import reactor

from twisted_router.config.model import HostConfig
from twisted_router.interfaces import ILauncher
from twisted_router.launch.openssh import OpenSSHLauncher
from twisted_router.launch.sockets import SocketDirectory

from .contract import LauncherContract
from .processes import ProcessContract
from .ssh_contract import SshContract, SshPlace


class OpenSSHLauncherTests(SshContract, LauncherContract, ProcessContract):
    """The whole contract, over the system's ssh."""

    def ssh_launcher(self, host: HostConfig) -> ILauncher:
        launcher: ILauncher = OpenSSHLauncher(host, reactor, SocketDirectory(tempfile.gettempdir()))
        return launcher


class OpenSSHConfigTests(SshPlace):
    """What only the system's ssh does."""

    def ssh_launcher(self, host: HostConfig) -> ILauncher:
        sockets = SocketDirectory(tempfile.gettempdir())
        self.control_dir = sockets.path
        launcher: ILauncher = OpenSSHLauncher(host, reactor, sockets)
        return launcher

    async def test_an_alias_behind_a_jump_host(self) -> None:
        """ssh_config names the host, its port, its key and the way to it."""
        text = (
            f"Host node jump\n HostName 127.0.0.1\n Port {self.sshd.port}\n User {self.sshd.user}\n"
            f" IdentityFile {self.sshd.identity}\n UserKnownHostsFile {self.sshd.known_hosts}\n"
            "Host node\n ProxyJump jump\n"
        )
        config = self.sshd.write("ssh_config", text)
        settings = {"ssh": "node", "ssh_config": config, "identity_file": None, "known_hosts": None}
        launcher = self.place.launcher_of(self.place.configured(**settings))
        self.assertFalse(await launcher.is_held(self.place.slot))
        self.assertEqual(self.sshd.logins, 2)

    async def test_closing_leaves_no_connection_behind(self) -> None:
        """The shared connection ends with the launcher, and its directory goes."""
        launcher, _ = await self.started()
        self.assertEqual(len(os.listdir(self.control_dir)), 1)
        await launcher.close()
        self.assertFalse(os.path.exists(self.control_dir))

    async def test_a_configuration_that_cannot_be_read(self) -> None:
        """It is named as what is wrong."""
        self.assertIn("ssh configuration", await self.fails(ssh_config="/no/such/config"))

    async def test_ssh_is_missing(self) -> None:
        """Without the program there is one line that says so."""
        self.patch(os, "environ", {**os.environ, "PATH": "/nowhere"})
        self.assertIn("program ssh is missing", await self.fails())


del LauncherContract, ProcessContract, SshContract, SshPlace
