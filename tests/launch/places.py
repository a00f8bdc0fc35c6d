"""Real places to launch on: this machine, and this machine again by way of ssh."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from twisted_router.config.model import HostConfig
from twisted_router.core.slots import Handle, Slot
from twisted_router.interfaces import ILauncher
from twisted_router.launch import proc

from .home import Caller, Home
from .sshd import program

REPLICA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "replica.py")


class _Holder(ProcessProtocol):
    """A process that holds a lock and says so."""

    def __init__(self) -> None:
        self.holding: Deferred[None] = Deferred()
        self.ended: Deferred[None] = Deferred()

    def outReceived(self, data: bytes) -> None:
        self.holding.callback(None)

    def processEnded(self, reason: Failure) -> None:
        self.ended.callback(None)


class RealPlace:
    """One slot for scripted replicas; whatever they leave behind is killed when the test ends.

    :ivar make: makes a launcher out of a host.
    """

    def __init__(self, case: TestCase, reactor: Any, make: Callable[[HostConfig], ILauncher]) -> None:
        self._case = case
        self._reactor = reactor
        self._make = make
        self._callers: list[Caller] = []
        self.directory = os.path.abspath(case.mktemp())
        os.makedirs(self.directory)
        self.home = Home(reactor)
        case.addCleanup(self._clean)
        with socket.create_server(("127.0.0.1", 0)) as found:
            port = found.getsockname()[1]
        self.host = HostConfig(
            name="here", devices=(4,), port_base=port - 4, log_dir=os.path.join(self.directory, "logs")
        )
        self.slot = Slot("here-d4", "here", (4,), "127.0.0.1", port)
        self.lock = os.path.join(self.directory, "logs", "here-d4.lock")
        self.log = os.path.join(self.directory, "logs", "here-d4.log")

    def launcher(self, *flags: str) -> ILauncher:
        return self.launcher_of(self.configured(*flags))

    def launcher_of(self, host: HostConfig) -> ILauncher:
        """Make a launcher for a host, closed when the test ends."""
        launcher = self._make(host)
        self._case.addCleanup(launcher.close)
        return launcher

    def configured(self, *flags: str, **settings: Any) -> HostConfig:
        """The host, its replicas with these flags, and other settings changed."""
        command = (sys.executable, REPLICA, "--home", str(self.home.port), "--port", "{port}", *flags)
        return evolve(self.host, **{"command": command, **settings})

    async def caller(self) -> Caller:
        """Wait for the next process that phones home."""
        caller = await self.home.next()
        self._callers.append(caller)
        return caller

    async def up(self) -> None:
        await self.caller()

    def die(self, handle: Handle) -> None:
        assert handle.pid is not None
        os.kill(handle.pid, signal.SIGKILL)

    def stranger(self) -> None:
        listener = socket.create_server(("127.0.0.1", self.slot.port))
        self._case.addCleanup(listener.close)

    async def hold(self) -> None:
        os.makedirs(os.path.dirname(self.lock), exist_ok=True)
        holder = _Holder()
        argv = [program("flock", "util-linux"), self.lock, "/bin/sh", "-c", "echo held; exec cat"]
        process = self._reactor.spawnProcess(holder, argv[0], argv)

        async def release() -> None:
            process.closeStdin()
            await holder.ended

        self._case.addCleanup(release)
        await holder.holding

    async def reap(self, caller: Caller) -> None:
        """Kill a process that phoned home, if it has not ended."""
        seen = proc.status(caller.about["pid"])
        if not caller.ended.called and seen is not None:
            proc.send(seen.process, signal.SIGKILL)
            await caller.ended

    async def _clean(self) -> None:
        for caller in [*self._callers, *self.home.callers]:
            await self.reap(caller)
        await self.home.close()
