"""Replicas on this machine."""

from __future__ import annotations

from twisted.internet import reactor

from twisted_router.launch.local import LocalLauncher

from .contract import LauncherContract
from .places import RealPlace
from .processes import ProcessContract


class LocalLauncherTests(LauncherContract, ProcessContract):
    """The contract, with real processes here."""

    place: RealPlace

    def setUp(self) -> None:
        self.place = RealPlace(self, reactor, lambda host: LocalLauncher(host, reactor, self.mktemp()))


del LauncherContract, ProcessContract
