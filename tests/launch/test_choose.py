"""Which launcher a host gets."""

from __future__ import annotations

import os

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.config.model import HostConfig
from twisted_router.launch.choose import make_launcher
from twisted_router.launch.conch import ConchLauncher
from twisted_router.launch.local import LocalLauncher
from twisted_router.launch.openssh import OpenSSHLauncher


class ChoiceTests(SynchronousTestCase):
    """By ``ssh`` and ``ssh_client``."""

    def made(self, ssh: str | None, client: str | None = None) -> object:
        clock = Clock()
        launcher = make_launcher(
            HostConfig("n", (0,), ssh=ssh, ssh_client=client), clock, clock.seconds, self.mktemp()
        )
        if isinstance(launcher, OpenSSHLauncher):
            self.successResultOf(launcher.close())
        return type(launcher)

    def test_the_routers_own_machine(self) -> None:
        """Without ``ssh`` it is the local one, whatever the client."""
        self.assertIs(self.made(None, "conch"), LocalLauncher)

    def test_what_was_asked_for(self) -> None:
        """A named client is taken."""
        self.assertIs(self.made("node", "conch"), ConchLauncher)
        self.assertIs(self.made("node", "openssh"), OpenSSHLauncher)

    def test_what_is_there(self) -> None:
        """Unnamed, it is OpenSSH where the program exists, else Conch."""
        directory = self.mktemp()
        os.mkdir(directory)
        self.patch(os, "environ", {**os.environ, "PATH": directory})
        self.assertIs(self.made("node"), ConchLauncher)
        with open(os.path.join(directory, "ssh"), "w", encoding="utf-8"):
            os.chmod(os.path.join(directory, "ssh"), 0o755)
        self.assertIs(self.made("node"), OpenSSHLauncher)
