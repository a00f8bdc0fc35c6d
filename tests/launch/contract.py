"""What every launcher promises, as tests; each place to launch on runs them all."""

from __future__ import annotations

import secrets
from functools import cached_property
from typing import Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import TestCase

from twisted_router.core.slots import Handle, Slot
from twisted_router.errors import LaunchFailed, StopUnconfirmed
from twisted_router.interfaces import ILauncher

#: Seconds a replica is given to end by itself in these tests.
GRACE = 20.0


class Place(Protocol):
    """Somewhere replicas can run, as the contract sees it."""

    slot: Slot

    def launcher(self, *flags: str) -> ILauncher:
        """Make a launcher whose replicas behave as the flags of ``replica.py`` say."""

    async def up(self) -> None:
        """Wait until the next replica runs."""

    def die(self, handle: Handle) -> None:
        """Kill a replica from outside."""

    def stranger(self) -> None:
        """Have somebody else listen on the slot's port until the test ends."""

    async def hold(self) -> None:
        """Have somebody else hold the slot's lock until the test ends."""


class Contract(TestCase):
    """The promises of ``ILauncher``. A subclass makes ``self.place``."""

    place: Place
    timeout = 40

    @cached_property
    def one(self) -> str:
        """An instance that no test beside this one knows, for its replicas are found all over the machine."""
        return f"one-{secrets.token_hex(8)}"

    @cached_property
    def two(self) -> str:
        """Another one."""
        return f"two-{secrets.token_hex(8)}"

    async def started(self, *flags: str) -> tuple[ILauncher, Handle]:
        """Launch a replica and wait until it runs."""
        launcher = self.place.launcher(*flags)
        handle = await launcher.launch(self.place.slot, self.one)
        await self.place.up()
        return launcher, handle


class LauncherContract(Contract):
    """The promises that can be kept even without processes."""

    async def test_a_launched_replica_runs_and_holds_its_lock(self) -> None:
        """A handle names slot, instance, pid and start; the lock is the replica's."""
        launcher, handle = await self.started()
        self.assertEqual((handle.slot, handle.instance), (self.place.slot.name, self.one))
        self.assertIsNotNone(handle.pid)
        self.assertIsNotNone(handle.started)
        self.assertTrue(handle.log_path.endswith(f"{self.place.slot.name}.log"))
        self.assertTrue(await launcher.is_held(self.place.slot))
        self.assertTrue(await launcher.is_running(self.place.slot, self.one, handle))

    async def test_a_stopped_replica_is_gone_and_its_lock_free(self) -> None:
        """A stop fires once nothing runs and the lock is free."""
        launcher, handle = await self.started()
        await launcher.stop(self.place.slot, self.one, handle, GRACE)
        self.assertFalse(await launcher.is_held(self.place.slot))
        self.assertFalse(await launcher.is_running(self.place.slot, self.one, handle))

    async def test_stopping_what_is_gone_succeeds(self) -> None:
        """An instance that has ended already is a successful stop."""
        launcher, handle = await self.started()
        await launcher.stop(self.place.slot, self.one, handle, GRACE)
        await launcher.stop(self.place.slot, self.one, handle, GRACE)
        await launcher.stop(self.place.slot, self.two, None, GRACE)

    async def test_the_marker_alone_finds_a_replica(self) -> None:
        """Without a handle, after a launch that was cut short, the instance's name is enough."""
        launcher, handle = await self.started()
        self.assertTrue(await launcher.is_running(self.place.slot, self.one, None))
        await launcher.stop(self.place.slot, self.one, None, GRACE)
        self.assertFalse(await launcher.is_running(self.place.slot, self.one, handle))

    async def test_a_name_that_begins_alike_is_another_instance(self) -> None:
        """Markers are compared whole."""
        launcher, _ = await self.started()
        self.assertFalse(await launcher.is_running(self.place.slot, self.one[:-1], None))

    async def test_another_launcher_stops_an_adopted_replica(self) -> None:
        """What one router started, the next one can stop."""
        first, handle = await self.started()
        await first.close()
        second = self.place.launcher()
        self.assertTrue(await second.is_running(self.place.slot, self.one, handle))
        await second.stop(self.place.slot, self.one, handle, GRACE)
        self.assertFalse(await second.is_held(self.place.slot))

    async def test_a_second_launch_on_a_held_slot_is_refused(self) -> None:
        """No second router ever puts two replicas on one slot, and the first one is not touched."""
        launcher, handle = await self.started("--deaf")
        error = await self.assertFailure(
            self.place.launcher().launch(self.place.slot, self.two), LaunchFailed
        )
        self.assertIn("lock", str(error))
        self.assertTrue(await launcher.is_running(self.place.slot, self.one, handle))
        self.assertFalse(await launcher.is_running(self.place.slot, self.two, None))

    async def test_a_stranger_on_the_port_fails_the_launch(self) -> None:
        """A port that something answers on is named; nothing is started and nothing stays locked."""
        self.place.stranger()
        launcher = self.place.launcher()
        error = await self.assertFailure(launcher.launch(self.place.slot, self.one), LaunchFailed)
        self.assertIn(str(self.place.slot.port), str(error))
        self.assertFalse(await launcher.is_held(self.place.slot))

    async def test_a_lock_held_by_others_leaves_a_stop_unconfirmed(self) -> None:
        """Whatever holds the lock may hold the card: a stop is not proved before it is free."""
        await self.place.hold()
        launcher = self.place.launcher()
        self.assertTrue(await launcher.is_held(self.place.slot))
        await self.assertFailure(launcher.stop(self.place.slot, self.one, None, 0.0), StopUnconfirmed)

    async def test_a_watch_tells_of_the_end(self) -> None:
        """A process that dies is noticed, with a sentence that names it."""
        launcher, handle = await self.started()
        watch = launcher.watch(handle)
        self.place.die(handle)
        self.assertIn(str(handle.pid), await watch)

    async def test_an_adopted_replica_can_be_watched(self) -> None:
        """The next router notices the end of what it did not start."""
        _, handle = await self.started()
        watch = self.place.launcher().watch(handle)
        self.place.die(handle)
        self.assertIn(str(handle.pid), await watch)

    async def test_a_cancelled_watch_ends(self) -> None:
        """A watch that is given up fails with CancelledError and leaves the replica alone."""
        launcher, handle = await self.started()
        watch = launcher.watch(handle)
        watch.cancel()
        await self.assertFailure(watch, CancelledError)
        self.assertTrue(await launcher.is_running(self.place.slot, self.one, handle))

    async def test_closing_leaves_replicas_running(self) -> None:
        """Closing a launcher ends its watches, not its replicas."""
        launcher, handle = await self.started()
        watch = launcher.watch(handle)
        await launcher.close()
        await self.assertFailure(watch, CancelledError)
        self.assertTrue(await self.place.launcher().is_running(self.place.slot, self.one, handle))

    async def test_an_immediate_exit_is_reported(self) -> None:
        """A replica that ends at once is known at once, by a failed launch or by the watch."""
        launcher = self.place.launcher("--exit", "3")
        launch: Deferred[Handle] = launcher.launch(self.place.slot, self.one)
        try:
            told = await launcher.watch(await launch)
        except LaunchFailed as error:
            told = str(error)
        self.assertIn("exited with code 3", told)
        self.assertFalse(await launcher.is_running(self.place.slot, self.one, None))

    async def test_the_tail_is_the_end_of_the_log(self) -> None:
        """The last lines come, and no more than asked for."""
        launcher, _ = await self.started()
        everything = await launcher.tail(self.place.slot, 100)
        self.assertNotEqual(everything, "")
        self.assertEqual(await launcher.tail(self.place.slot, 1), everything.splitlines()[-1])

    async def test_no_log_is_an_empty_tail(self) -> None:
        """A slot that never ran has no last lines, and that is no error."""
        self.assertEqual(await self.place.launcher().tail(self.place.slot, 5), "")
