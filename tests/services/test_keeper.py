from __future__ import annotations

import gc

from twisted.internet.defer import Deferred, fail, succeed

from tests.services.fakes import GRACE, KeeperTestCase, handle_of
from twisted_router.core.effects import ConnectRefused, Grow, ProbeAnswered
from twisted_router.errors import LaunchFailed, LaunchUncertain, ShuttingDown, StopUnconfirmed
from twisted_router.services.keeper import CLOSE_TIMEOUT, SAVE_AGAIN
from twisted_router.services.presence import Presence
from twisted_router.services.stopping import PULSE


class Launching(KeeperTestCase):
    def test_recorded_first(self) -> None:
        """The state file names the slot before the launcher is asked, and the process once it exists."""
        self.here.at_once = False
        self.keeper.apply(Grow("d1"))
        (first,) = self.store.saved
        self.assertEqual([(slot.slot, slot.handle) for slot in first.slots], [("d1", None)])
        self.here.launching["i1"].callback(handle_of("d1", "i1"))
        self.assertEqual(self.store.saved[-1].slots[0].handle, handle_of("d1", "i1"))

    def test_on_the_slots_own_host(self) -> None:
        """A slot is launched on by its own host's launcher."""
        self.keeper.apply(Grow("far-d1"))
        self.assertEqual((self.here.journal, self.there.did("launch")), ([], [("launch", "far-d1", "i1")]))

    def test_full_disk(self) -> None:
        """Without a record there is no launch; the slot is free again and the reason is the disk."""
        self.store.full = "state file /s cannot be written: No space left on device"
        self.keeper.apply(Grow("d1"))
        self.assertEqual((self.here.journal, self.names()), ([], []))
        (failure,) = self.fleet.snapshot(0.0).capacity.failures
        self.assertEqual(failure.why, self.store.full)

    def test_room_again(self) -> None:
        """As soon as the file can be written, launches work again."""
        self.store.full = "full"
        self.keeper.apply(Grow("d1"))
        self.store.full = None
        self.keeper.apply(Grow("d1"))
        self.assertEqual(self.here.did("launch"), [("launch", "d1", "i2")])

    def test_saved_late(self) -> None:
        """What could not be saved is saved as soon as there is room, without anything else happening."""
        self.keeper.apply(Grow("d1"))
        self.store.full = "full"
        self.successResultOf(self.admin.retire("d1"))
        self.clock.advance(SAVE_AGAIN)
        self.assertEqual([slot.slot for slot in self.store.saved[-1].slots], ["d1"])
        self.store.full = None
        self.clock.advance(SAVE_AGAIN)
        self.assertEqual(self.store.saved[-1].slots, ())
        count = len(self.store.saved)
        self.clock.advance(SAVE_AGAIN * 3)
        self.assertEqual(len(self.store.saved), count)

    def test_certain_failure(self) -> None:
        """A launcher that left nothing behind frees the slot; its reason and the last lines are kept."""
        self.here.at_once = False
        self.keeper.apply(Grow("d1"))
        self.here.launching["i1"].errback(LaunchFailed("exited with code 1 at once\nTraceback\nboom"))
        (failure,) = self.fleet.snapshot(0.0).capacity.failures
        self.assertEqual((failure.why, failure.tail), ("exited with code 1 at once", "Traceback\nboom"))
        self.assertEqual((self.here.did("stop"), self.store.saved[-1].slots), ([], ()))

    def test_uncertain_failure(self) -> None:
        """A launcher that does not know has its instance stopped before the slot is free."""
        self.here.at_once = False
        self.keeper.apply(Grow("d1"))
        self.here.launching["i1"].errback(LaunchUncertain("the connection was lost"))
        self.assertEqual(self.here.did("stop"), [("stop", "d1", "i1", GRACE)])
        self.assertEqual(self.names(), ["d1"])
        self.here.stopping["i1"][0].callback(None)
        self.assertEqual(self.names(), [])

    def test_broken_launcher(self) -> None:
        """A launcher that breaks has perhaps started something: logged, and treated as uncertain."""
        self.here.launch = lambda slot, instance: fail(ValueError("oops"))  # type: ignore[method-assign]
        self.keeper.apply(Grow("d1"))
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.assertEqual(self.here.did("stop"), [("stop", "d1", "i1", GRACE)])

    def test_a_raising_launcher(self) -> None:
        """One that raises instead of returning is no different."""

        def launch(slot: object, instance: str) -> Deferred[object]:
            raise ValueError("oops")

        self.here.launch = launch  # type: ignore[method-assign,assignment]
        self.keeper.apply(Grow("d1"))
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.assertEqual(len(self.here.did("stop")), 1)

    def test_launch_timeout(self) -> None:
        """One that is not ready in time is stopped, without a probe or a request to wake us."""
        self.keeper.apply(Grow("d1"))
        self.clock.advance(599)
        self.assertEqual(self.here.did("stop"), [])
        self.clock.advance(1)
        self.assertEqual(len(self.here.did("stop")), 1)
        self.assertEqual(self.names(), [])

    def test_last_lines(self) -> None:
        """The last lines of one that did not become ready are fetched and shown."""
        self.keeper.apply(Grow("d1"))
        self.clock.advance(600)
        (failure,) = self.fleet.snapshot(0.0).capacity.failures
        self.assertEqual(failure.tail, "last words")


class Watching(KeeperTestCase):
    def test_exit(self) -> None:
        """A process that ends is known at once: out of rotation, stopped for certain, last lines kept."""
        self.keeper.apply(Grow("d1"))
        self.keeper.apply(ProbeAnswered("i1", 200))
        self.here.watching["i1"].callback("exited with code 137")
        (failure,) = self.fleet.snapshot(0.0).capacity.failures
        self.assertEqual((failure.why, failure.tail), ("exited with code 137", "last words"))
        self.assertEqual(self.here.did("stop"), [("stop", "d1", "i1", GRACE)])

    def test_replacement(self) -> None:
        """A lost replica is replaced on its slot after the wait, by itself."""
        self.keeper.apply(Grow("d1"))
        self.keeper.apply(ProbeAnswered("i1", 200))
        self.here.watching["i1"].callback("exited with code 137")
        self.clock.advance(9.9)
        self.assertEqual(len(self.here.did("launch")), 1)
        self.clock.advance(0.2)
        self.assertEqual(self.here.did("launch")[1:], [("launch", "d1", "i2")])

    def test_ends_with_the_instance(self) -> None:
        """An instance that was stopped is not watched any longer."""
        self.keeper.apply(Grow("d1"))
        self.admin.retire("d1")
        self.assertEqual(self.here.did("unwatch"), [("unwatch", "i1")])

    def test_broken_watch(self) -> None:
        """A watch that breaks is logged and says nothing about the process."""
        self.keeper.apply(Grow("d1"))
        self.here.watching["i1"].errback(ValueError())
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.assertEqual(self.names(), ["d1"])


class Proving(KeeperTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.here.at_once = False
        self.keeper.apply(Grow("d1"))
        self.here.launching["i1"].callback(handle_of("d1", "i1"))
        self.retired = self.admin.retire("d1")

    def test_all_three(self) -> None:
        """The stop step succeeded, the address refuses, the lock is free: the slot is free and saved so."""
        self.assertNoResult(self.retired)
        self.here.stopping["i1"][0].callback(None)
        self.assertTrue(self.successResultOf(self.retired).confirmed)
        self.assertEqual((self.names(), self.reserved(), self.store.saved[-1].slots), ([], [], ()))

    def test_stop_step_failed(self) -> None:
        """A stop step that failed reserves the slot, whatever the address shows; the file says so too."""
        self.here.stopping["i1"][0].errback(StopUnconfirmed("processes 7 outlive SIGKILL"))
        self.assertFalse(self.successResultOf(self.retired).confirmed)
        self.assertEqual(self.why(), "processes 7 outlive SIGKILL")
        self.assertEqual(self.store.saved[-1].slots[0].why, "processes 7 outlive SIGKILL")

    def test_broken_stop_step(self) -> None:
        """A launcher that breaks proves nothing."""
        self.here.stopping["i1"][0].errback(ValueError("oops"))
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.assertEqual(self.why(), "ValueError: oops")

    def test_address_falls_silent(self) -> None:
        """An address may go on answering for the grace period, counted from the end of the stop step."""
        self.present["127.0.0.1", 8001] = Presence.PRESENT
        self.clock.advance(GRACE * 2)
        self.here.stopping["i1"][0].callback(None)
        self.clock.pump([PULSE] * int(GRACE / PULSE - 1))
        self.assertNoResult(self.retired)
        self.present.clear()
        self.clock.advance(PULSE)
        self.assertTrue(self.successResultOf(self.retired).confirmed)

    def test_address_answers(self) -> None:
        """An address that still answers when the grace period is over keeps the slot reserved."""
        self.present["127.0.0.1", 8001] = Presence.PRESENT
        self.here.stopping["i1"][0].callback(None)
        self.clock.pump([PULSE] * int(GRACE / PULSE - 1))
        self.assertNoResult(self.retired)
        self.clock.advance(PULSE)
        self.assertFalse(self.successResultOf(self.retired).confirmed)
        self.assertEqual(self.why(), "127.0.0.1:8001 still accepts connections 30 s after the stop step")

    def test_address_unknown(self) -> None:
        """An address that neither accepts nor refuses is not silent."""
        self.present["127.0.0.1", 8001] = Presence.UNKNOWN
        self.here.stopping["i1"][0].callback(None)
        self.clock.pump([PULSE] * int(GRACE / PULSE))
        self.assertFalse(self.successResultOf(self.retired).confirmed)

    def test_lock_held(self) -> None:
        """A silent address with a held lock is an orphan that still loads."""
        self.here.held = lambda: succeed(True)
        self.here.stopping["i1"][0].callback(None)
        self.clock.pump([PULSE] * int(GRACE / PULSE))
        self.assertEqual(self.why(), "a process holds the lock of slot d1 30 s after the stop step")

    def test_lock_unknown(self) -> None:
        """A lock that cannot be looked at until the end proves nothing."""
        self.here.held = lambda: fail(StopUnconfirmed("cannot look at its lock"))
        self.here.stopping["i1"][0].callback(None)
        self.clock.pump([PULSE] * int(GRACE / PULSE))
        self.assertEqual(self.why(), "cannot look at its lock 30 s after the stop step")

    def test_lock_unknown_for_a_moment(self) -> None:
        """A connection that is lost for a moment after the stop does not reserve the slot."""
        self.here.held = lambda: fail(StopUnconfirmed("no connection"))
        self.here.stopping["i1"][0].callback(None)
        self.clock.advance(PULSE)
        self.here.held = lambda: succeed(False)
        self.clock.advance(PULSE)
        self.assertTrue(self.successResultOf(self.retired).confirmed)


class Order(KeeperTestCase):
    def test_probe_at_once(self) -> None:
        """A refused request has the replica probed at once."""
        self.keeper.apply(ConnectRefused("static"))
        self.assertEqual(self.probed, ["static"])

    def test_effects_in_order(self) -> None:
        """What follows from an outcome waits until the effects that led to it are done."""
        self.keeper.apply(Grow("d1"))
        names = [type(effect).__name__ for effect in self.effects]
        self.assertEqual(names[:3], ["Record", "SlotNote", "Launch"])
        self.assertEqual(names[3:5], ["Record", "Watch"])

    def test_drained(self) -> None:
        """A draining replica is stopped when its last request ends, not when a timer comes by."""
        self.keeper.apply(Grow("d1"))
        lease = self.busy()
        retired = self.admin.retire("d1")
        self.clock.advance(200)
        self.assertNoResult(retired)
        lease.release()
        self.clock.advance(0)
        self.assertTrue(self.successResultOf(retired).confirmed)

    def test_drained_unseen(self) -> None:
        """Whatever happens between the end of a last request and the next turn does not put it off."""
        self.keeper.apply(Grow("d1"))
        lease = self.busy()
        retired = self.admin.retire("d1")
        lease.release()
        self.keeper.apply(ProbeAnswered("static", 200))
        self.clock.advance(0)
        self.assertTrue(self.successResultOf(retired).confirmed)

    def test_drain_timeout(self) -> None:
        """A request that does not end keeps its replica for the drain timeout and no longer."""
        self.keeper.apply(Grow("d1"))
        lease = self.busy()
        retired = self.admin.retire("d1")
        self.clock.advance(299.9)
        self.assertNoResult(retired)
        self.clock.advance(0.1)
        self.assertTrue(self.successResultOf(retired).confirmed)
        lease.release()
        self.clock.advance(1)

    def test_held(self) -> None:
        """A Deferred that is handed over is held, and its failure logged with what it was."""
        orphan: Deferred[None] = Deferred()
        self.keeper.watch(orphan, "feeding the cat")
        orphan.errback(ValueError())
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)


class Ending(KeeperTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.keeper.apply(Grow("d1"))
        self.keeper.apply(Grow("d2"))
        self.here.at_once = False

    def test_all_stopped(self) -> None:
        """Every launched replica is stopped, at the same time; static ones are left alone."""
        stopped = self.keeper.stop_replicas()
        self.assertEqual([entry[1] for entry in self.here.did("stop")], ["d1", "d2"])
        self.here.stopping["i1"][0].callback(None)
        self.assertNoResult(stopped)
        self.here.stopping["i2"][0].callback(None)
        self.successResultOf(stopped)
        self.assertEqual([member.name for member in self.fleet.members()], ["static"])

    def test_unconfirmed(self) -> None:
        """A stop that cannot be confirmed ends the waiting too, and is in the file."""
        stopped = self.keeper.stop_replicas()
        self.here.stopping["i1"][0].errback(StopUnconfirmed("no"))
        self.here.stopping["i2"][0].callback(None)
        self.successResultOf(stopped)
        self.successResultOf(self.keeper.close())
        self.assertEqual([slot.slot for slot in self.store.saved[-1].slots], ["d1"])

    def test_during_a_launch(self) -> None:
        """A launch that is under way is awaited and then stopped."""
        self.keeper.apply(Grow("far-d1"))
        self.there.at_once = False
        stopped = self.keeper.stop_replicas()
        for instance in ("i1", "i2"):
            self.here.stopping[instance][0].callback(None)
        self.assertNoResult(stopped)
        self.assertEqual(len(self.there.did("stop")), 1)
        self.there.stopping["i3"][0].callback(None)
        self.successResultOf(stopped)

    def test_no_launch_any_more(self) -> None:
        """From then on nobody gets a replica launched."""
        self.keeper.stop_replicas()
        self.failureResultOf(self.admin.grow(), ShuttingDown)

    def test_hasten(self) -> None:
        """Hastening kills what was only told to stop."""
        self.keeper.stop_replicas()
        self.keeper.hasten()
        self.assertEqual([entry[3] for entry in self.here.did("stop")], [GRACE, GRACE, 0.0, 0.0])

    def test_hasten_drain(self) -> None:
        """Hastening ends a drain first: the replica is told to stop, with its grace period."""
        lease = self.busy()
        self.keeper.stop_replicas()
        self.assertEqual([entry[1] for entry in self.here.did("stop")], ["d2"])
        self.keeper.hasten()
        self.assertIn(("stop", "d1", "i1", GRACE), self.here.did("stop"))
        lease.release()

    def test_hasten_only_a_drain(self) -> None:
        """Ending a drain is something to wait for: nobody is given up."""
        lease = self.busy()
        stopped = self.keeper.stop_replicas()
        self.here.stopping["i2"][0].callback(None)
        self.keeper.hasten()
        self.assertNoResult(stopped)
        self.here.stopping["i1"][0].callback(None)
        self.successResultOf(stopped)
        lease.release()

    def test_hasten_a_proof(self) -> None:
        """Once a replica was told to stop there is nothing to kill: hastening gives the proof up."""
        self.present["127.0.0.1", 8001] = self.present["127.0.0.1", 8002] = Presence.PRESENT
        stopped = self.keeper.stop_replicas()
        for instance in ("i1", "i2"):
            self.here.stopping[instance][0].callback(None)
        self.assertNoResult(stopped)
        self.keeper.hasten()
        self.successResultOf(stopped)
        self.assertEqual(len(self.here.did("stop")), 2)

    def test_give_up(self) -> None:
        """Hastening again gives up: the slots stay in the file as they were, for the next start."""
        stopped = self.keeper.stop_replicas()
        self.keeper.hasten()
        self.assertNoResult(stopped)
        self.keeper.hasten()
        self.successResultOf(stopped)
        self.successResultOf(self.keeper.close())
        self.assertEqual(
            [(slot.slot, slot.reason) for slot in self.store.saved[-1].slots],
            [("d1", None), ("d2", None)],
        )

    def test_failed_kill(self) -> None:
        """A hastened stop that fails leaves the last word to the first one."""
        stopped = self.keeper.stop_replicas()
        self.keeper.hasten()
        for instance in ("i1", "i2"):
            self.here.stopping[instance][1].errback(StopUnconfirmed("busy"))
            self.here.stopping[instance][0].callback(None)
        self.successResultOf(stopped)
        self.assertEqual(self.reserved(), [])
        gc.collect()
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_deletes_that_wait(self) -> None:
        """Whoever still waits for a retirement when the router gives up is told so."""
        retired = self.admin.retire("d1")
        self.keeper.stop_replicas()
        self.keeper.hasten()
        self.keeper.hasten()
        self.failureResultOf(retired, ShuttingDown)

    def test_close_with_waiters(self) -> None:
        """Whoever still waits when the keeper closes is told that nothing will come."""
        retired = self.admin.retire("d1")
        closed = self.keeper.close()
        self.failureResultOf(retired, ShuttingDown)
        self.clock.advance(CLOSE_TIMEOUT)
        self.successResultOf(closed)

    def test_close(self) -> None:
        """The state is saved last, launchers are let go, and the next router may come."""
        self.store.locked = True
        self.successResultOf(self.keeper.close())
        self.assertEqual([slot.slot for slot in self.store.saved[-1].slots], ["d1", "d2"])
        self.assertEqual((self.here.did("close"), self.there.did("close")), ([("close",)], [("close",)]))
        self.assertFalse(self.store.locked)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_close_full_disk(self) -> None:
        """A state that cannot be saved does not keep the rest from being let go."""
        self.store.full = "full"
        self.keeper.apply(Grow("far-d1"))
        self.successResultOf(self.keeper.close())
        self.assertEqual(self.here.did("close"), [("close",)])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_close_hanging(self) -> None:
        """Neither a launcher that hangs nor anything under way keeps the end for more than its bound."""
        self.here.closing = Deferred()
        self.there.closing = fail(ValueError())
        self.keeper.watch(Deferred(), "waiting for ever")
        closed = self.keeper.close()
        self.assertNoResult(closed)
        self.clock.advance(CLOSE_TIMEOUT)
        self.assertNoResult(closed)
        self.clock.advance(CLOSE_TIMEOUT)
        self.successResultOf(closed)
        self.assertEqual(len(self.flushLoggedErrors()), 2)

    def test_nothing_after_the_end(self) -> None:
        """Once closed, no timer brings the keeper back."""
        self.successResultOf(self.keeper.close())
        self.clock.advance(10_000)
        self.assertEqual(self.here.did("stop"), [])


class Detaching(KeeperTestCase):
    detach = True

    def test_left_running(self) -> None:
        """Replicas are left as they are, in the file as they are."""
        self.keeper.apply(Grow("d1"))
        self.successResultOf(self.keeper.stop_replicas())
        self.successResultOf(self.keeper.close())
        self.assertEqual(self.here.did("stop"), [])
        self.assertEqual(self.store.saved[-1].slots[0].handle, handle_of("d1", "i1"))

    def test_launch_under_way(self) -> None:
        """A launch that is under way is awaited, so that the file knows its process."""
        self.here.at_once = False
        self.keeper.apply(Grow("d1"))
        stopped = self.keeper.stop_replicas()
        self.assertNoResult(stopped)
        self.here.launching["i1"].callback(handle_of("d1", "i1"))
        self.successResultOf(stopped)
        self.assertEqual(self.store.saved[-1].slots[0].handle, handle_of("d1", "i1"))

    def test_stop_under_way(self) -> None:
        """A stop that somebody asked for before is brought to its end."""
        self.keeper.apply(Grow("d1"))
        self.here.at_once = False
        self.admin.retire("d1")
        stopped = self.keeper.stop_replicas()
        self.assertNoResult(stopped)
        self.here.stopping["i1"][0].callback(None)
        self.successResultOf(stopped)
        self.assertEqual(self.store.saved[-1].slots, ())

    def test_no_launch_any_more(self) -> None:
        """The leaving router launches nothing any more."""
        self.keeper.stop_replicas()
        self.failureResultOf(self.admin.grow(), ShuttingDown)


class DetachingBySignal(KeeperTestCase):
    def test_leave_running(self) -> None:
        """Asked to on the way out, the keeper leaves replicas running too."""
        self.keeper.apply(Grow("d1"))
        self.keeper.leave_running()
        self.successResultOf(self.keeper.stop_replicas())
        self.assertEqual(self.here.did("stop"), [])
