"""The launcher without processes keeps the contract, so that tests may rely on it."""

from __future__ import annotations

from twisted_router.core.slots import Handle, Slot
from twisted_router.interfaces import ILauncher

from .contract import LauncherContract
from .memory import MemoryLauncher, MemoryMachine


class MemoryPlace:
    """A machine that is only said to exist."""

    def __init__(self) -> None:
        self.machine = MemoryMachine()
        self.slot = Slot("here-d4", "here", (4,), "127.0.0.1", 8005)

    def launcher(self, *flags: str) -> ILauncher:
        if "--exit" in flags:
            self.machine.exit_code = int(flags[flags.index("--exit") + 1])
        launcher: ILauncher = MemoryLauncher(self.machine)
        return launcher

    async def up(self) -> None:
        pass

    def die(self, handle: Handle) -> None:
        self.machine.end(handle.instance)

    def stranger(self) -> None:
        self.machine.answering.add(self.slot.port)

    async def hold(self) -> None:
        self.machine.held_by_others.add(self.slot.name)


class MemoryLauncherTests(LauncherContract):
    """The contract, over a ``MemoryMachine``."""

    def setUp(self) -> None:
        self.place = MemoryPlace()


del LauncherContract
