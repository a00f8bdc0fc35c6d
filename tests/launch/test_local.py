"""Replicas on this machine."""

from __future__ import annotations

import json
import os
import resource
import sys
from time import monotonic
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorProcess
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_router.config.model import HostConfig
from twisted_router.core.slots import Handle
from twisted_router.errors import LaunchFailed
from twisted_router.interfaces import ILauncher
from twisted_router.launch import proc
from twisted_router.launch.local import LocalLauncher

from . import places
from .contract import GRACE, Contract, LauncherContract
from .places import RealPlace
from .processes import ProcessContract

ROUTER = os.path.join(os.path.dirname(places.REPLICA), "router.py")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(places.REPLICA)))


class _Router(ProcessProtocol):
    """Another router, in a process of its own."""

    def __init__(self) -> None:
        self.told: Deferred[dict[str, Any]] = Deferred()
        self.heard = self.errors = b""
        self.ended: Deferred[None] = Deferred()

    def outReceived(self, data: bytes) -> None:
        self.heard += data
        if self.heard.endswith(b"\n") and not self.told.called:
            self.told.callback(json.loads(self.heard))

    def errReceived(self, data: bytes) -> None:
        self.errors += data

    def processEnded(self, reason: Failure) -> None:
        if not self.told.called:
            self.told.errback(RuntimeError(self.errors.decode()))
        self.ended.callback(None)


@implementer(IReactorProcess)
class Reaping:
    """The reactor, where a process is over, and known to be, before anybody can look at it."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def spawnProcess(self, *args: Any, **kwargs: Any) -> Any:
        transport = self._reactor.spawnProcess(*args, **kwargs)
        if transport.pid is not None:
            os.waitid(os.P_PID, transport.pid, os.WEXITED | os.WNOWAIT)
            transport.reapProcess()
        return transport


class Local(Contract):
    """A place on this machine."""

    place: RealPlace

    def setUp(self) -> None:
        self.ahead = self.jump = 0.0
        self.place = RealPlace(self, reactor, self.local_launcher)

    def now(self) -> float:
        """The monotonic clock, from its second reading on ahead by ``jump`` seconds."""
        reading, self.ahead = monotonic() + self.ahead, self.jump
        return reading

    def local_launcher(self, host: HostConfig) -> ILauncher:
        launcher: ILauncher = LocalLauncher(host, reactor, self.now, self.mktemp())
        return launcher


class LocalLauncherTests(Local, LauncherContract, ProcessContract):
    """The whole contract, with processes here."""


class ChildTests(Local):
    """What more can be seen of one's own children."""

    async def test_how_a_child_ended_is_told(self) -> None:
        """The signal is named, and the child is reaped."""
        launcher, handle = await self.started()
        watch = launcher.watch(handle)
        self.place.die(handle)
        self.assertEqual(await watch, f"process {handle.pid} was killed by SIGKILL")
        assert handle.pid is not None
        self.assertIsNone(proc.status(handle.pid))

    async def test_a_child_that_ended_before_it_was_watched(self) -> None:
        """Its end is not forgotten."""
        launcher, handle = await self.started()
        watch = launcher.watch(handle)
        self.place.die(handle)
        self.assertEqual(await launcher.watch(handle), await watch)

    async def test_the_lock_goes_with_the_replica(self) -> None:
        """We hold nothing of it: a replica that dies frees its lock without a stop."""
        launcher, handle = await self.started()
        watch = launcher.watch(handle)
        self.place.die(handle)
        await watch
        self.assertFalse(await launcher.is_held(self.place.slot))

    async def test_our_secrets_are_not_inherited(self) -> None:
        """What is in the environment for the router alone does not reach a replica."""
        self.patch(os, "environ", {**os.environ, "PYPTO_ROUTER_ADMIN_TOKEN": "secret", "NOTIFY_SOCKET": "/s"})
        launcher = self.place.launcher()
        await launcher.launch(self.place.slot, self.one)
        env = (await self.place.caller()).about["env"]
        self.assertNotIn("PYPTO_ROUTER_ADMIN_TOKEN", env)
        self.assertNotIn("NOTIFY_SOCKET", env)

    async def test_a_grace_period_by_the_clock_given(self) -> None:
        """How long a replica has had to stop is read from the clock handed in, and SIGKILL follows."""
        launcher = self.place.launcher("--ignore-term")
        handle = await launcher.launch(self.place.slot, self.one)
        replica = await self.place.caller()
        self.jump = 3600.0
        await launcher.stop(self.place.slot, self.one, handle, 3600)
        await replica.ended

    async def test_a_flood_of_output_costs_us_nothing(self) -> None:
        """100 MB at once go to the log, not through us."""
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        launcher, _ = await self.started("--flood", "100", "--say", "done")
        self.assertGreater(os.path.getsize(self.place.log), 100 << 20)
        self.assertEqual(await launcher.tail(self.place.slot, 1), "done")
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 10 << 10)

    async def test_what_earlier_launches_wrote_stays(self) -> None:
        """The log is appended to, and a line says whose output follows."""
        launcher, handle = await self.started()
        await launcher.stop(self.place.slot, self.one, handle, GRACE)
        await launcher.launch(self.place.slot, self.two)
        await self.place.up()
        lines = (await launcher.tail(self.place.slot, 10)).splitlines()
        self.assertEqual([line.split()[-1] for line in lines], [self.one, "hello", self.two, "hello"])

    async def test_a_launch_that_fails_frees_its_lock(self) -> None:
        """After a refused launch the slot can be tried again."""
        self.place.stranger()
        launcher = self.place.launcher()
        await self.assertFailure(launcher.launch(self.place.slot, self.one), LaunchFailed)
        self.assertFalse(await launcher.is_held(self.place.slot))


class WrapperTests(Local):
    """A wrapper's end is not always its charge's."""

    async def watched(self, wrapper: tuple[str, ...]) -> tuple[ILauncher, Handle]:
        launcher = self.place.launcher_of(self.place.configured(launch_wrapper=wrapper))
        return launcher, await launcher.launch(self.place.slot, self.one)

    async def test_a_wrapper_that_fails_is_told(self) -> None:
        """A broker that refuses ends the launch with its exit code, at once or later."""
        try:
            launcher, handle = await self.watched(("/bin/sh", "-c", "exit 4"))
            told = await launcher.watch(handle)
        except LaunchFailed as error:  # it was gone before we could look
            told = str(error)
        self.assertIn("exited with code 4", told)

    async def test_a_wrapper_that_is_done_before_we_look(self) -> None:
        """One that ends well at once has not failed: its charge is watched and stopped all the same."""
        host = self.place.configured(launch_wrapper=("/bin/sh", "-c", 'setsid sh -c "$1" & exit 0', "sh"))
        launcher = LocalLauncher(host, Reaping(reactor), self.now, self.mktemp())
        self.addCleanup(launcher.close)
        handle = await launcher.launch(self.place.slot, self.one)
        self.assertIsNone(handle.pid)
        charge = await self.place.caller()
        watch = launcher.watch(handle)
        await launcher.stop(self.place.slot, self.one, handle, GRACE)
        await charge.ended
        self.assertIn(self.one, await watch)

    async def test_a_wrapper_that_is_done_leaves_its_charge_watched(self) -> None:
        """The watch fires when the process with the marker is gone."""
        launcher, handle = await self.watched(("/bin/sh", "-c", 'setsid sh -c "$1" & exit 0', "sh"))
        charge = await self.place.caller()
        watch = launcher.watch(handle)
        self.assertTrue(await launcher.is_running(self.place.slot, self.one, handle))
        await self.place.reap(charge)
        self.assertIn(self.one, await watch)


class RouterDeathTests(Local):
    """A replica outlives the router that launched it."""

    async def test_kill_9(self) -> None:
        """With the router killed and its output closed, the replica runs, is watched, and can be stopped."""
        router = _Router()
        home, port = str(self.place.home.port), str(self.place.slot.port)
        argv = [sys.executable, ROUTER, home, port, str(self.place.host.log_dir), self.one]
        process = reactor.spawnProcess(router, argv[0], argv, env={**os.environ, "PYTHONPATH": ROOT})
        told = await router.told
        replica = await self.place.caller()
        process.signalProcess("KILL")
        await router.ended
        launcher = self.place.launcher()
        handle = Handle(self.place.slot.name, self.one, told["pid"], told["started"], told["log"])
        self.assertTrue(await launcher.is_running(self.place.slot, self.one, handle))
        self.assertTrue(await launcher.is_held(self.place.slot))
        watch = launcher.watch(handle)
        await launcher.stop(self.place.slot, self.one, handle, GRACE)
        await replica.ended
        self.assertIn(str(handle.pid), await watch)


del Local, LauncherContract, ProcessContract, Contract
