"""Replicas by way of the system's ssh."""

from __future__ import annotations

import tempfile

from attrs import evolve
from twisted.internet import reactor

from twisted_router.launch.openssh import OpenSSHLauncher

from .contract import LauncherContract
from .places import RealPlace
from .processes import ProcessContract
from .sshd import Sshd


class OpenSSHLauncherTests(LauncherContract, ProcessContract):
    """The contract, over ssh."""

    place: RealPlace

    async def setUp(self) -> None:
        self.sshd = Sshd(reactor, self.mktemp())
        await self.sshd.start()
        self.addCleanup(self.sshd.stop)
        self.place = RealPlace(
            self, reactor, lambda host: OpenSSHLauncher(host, reactor, tempfile.mkdtemp(prefix="t-"))
        )
        self.place.host = evolve(
            self.place.host,
            ssh=self.sshd.destination,
            identity_file=self.sshd.identity,
            known_hosts=self.sshd.known_hosts,
        )


del LauncherContract, ProcessContract
