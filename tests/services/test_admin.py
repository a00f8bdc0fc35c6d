from __future__ import annotations

from twisted.internet.defer import CancelledError, fail, succeed

from tests.services.fakes import KeeperTestCase, handle_of
from twisted_router.core.effects import ProbeAnswered
from twisted_router.core.wish import Wish
from twisted_router.errors import Conflict, LaunchFailed, NotFound, StopUnconfirmed
from twisted_router.services.presence import Presence


class Growing(KeeperTestCase):
    def test_accepted(self) -> None:
        """Growing is done once the launcher has started the replica, and tells which."""
        self.here.at_once = False
        growing = self.admin.grow()
        self.assertNoResult(growing)
        self.here.launching["i1"].callback(handle_of("d1", "i1"))
        order = self.successResultOf(growing)
        self.assertEqual((order.slot.name, order.instance), ("d1", "i1"))

    def test_wanted_slot(self) -> None:
        """A person may name the slot."""
        self.assertEqual(self.successResultOf(self.admin.grow("d2")).slot.name, "d2")

    def test_full(self) -> None:
        """A full pool and an unknown slot are refused and nothing is launched."""
        self.failureResultOf(self.admin.grow("nowhere"), NotFound)
        for _ in self.slots:
            self.successResultOf(self.admin.grow())
        self.failureResultOf(self.admin.grow(), Conflict)
        self.assertEqual(len(self.here.did("launch") + self.there.did("launch")), len(self.slots))

    def test_failed(self) -> None:
        """A launch that fails is told with the launcher's whole sentence and the last lines."""
        self.here.at_once = False
        growing = self.admin.grow()
        self.here.launching["i1"].errback(LaunchFailed("exited at once\nboom"))
        self.assertEqual(self.failureResultOf(growing, LaunchFailed).value.message, "exited at once\nboom")

    def test_full_disk(self) -> None:
        """With a full disk the caller is told that it is the state file."""
        self.store.full = "state file /s cannot be written: No space left on device"
        failure = self.failureResultOf(self.admin.grow(), LaunchFailed)
        self.assertEqual(failure.value.message, self.store.full)

    def test_caller_gone(self) -> None:
        """A caller that leaves does not stop the launch."""
        self.here.at_once = False
        growing = self.admin.grow()
        growing.cancel()
        self.failureResultOf(growing, CancelledError)
        self.here.launching["i1"].callback(handle_of("d1", "i1"))
        self.assertEqual((self.names(), self.here.did("stop")), (["d1"], []))


class Retiring(KeeperTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.successResultOf(self.admin.grow("d1"))
        self.here.at_once = False

    def test_shared(self) -> None:
        """Concurrent wishes share one retirement and get the same answer."""
        retired = [self.admin.retire("d1") for _ in range(3)]
        self.assertEqual(len(self.here.did("stop")), 1)
        self.here.stopping["i1"][0].callback(None)
        self.assertEqual([self.successResultOf(one).confirmed for one in retired], [True] * 3)

    def test_caller_gone(self) -> None:
        """One who leaves cancels neither the retirement nor the others' waiting."""
        leaving, staying = self.admin.retire("d1"), self.admin.retire("d1")
        leaving.cancel()
        self.failureResultOf(leaving, CancelledError)
        self.here.stopping["i1"][0].callback(None)
        self.assertTrue(self.successResultOf(staying).confirmed)

    def test_during_launch(self) -> None:
        """A replica retired while it is launched is stopped as soon as its launcher has answered."""
        self.admin.grow("d2")
        retired = self.admin.retire("d2")
        self.assertEqual(self.here.did("stop"), [])
        self.here.launching["i2"].callback(handle_of("d2", "i2"))
        self.here.stopping["i2"][0].callback(None)
        self.assertTrue(self.successResultOf(retired).confirmed)

    def test_unconfirmed(self) -> None:
        """An unconfirmed stop is told with its reason."""
        retired = self.admin.retire("d1")
        self.here.stopping["i1"][0].errback(StopUnconfirmed("it hangs"))
        outcome = self.successResultOf(retired)
        self.assertEqual((outcome.confirmed, outcome.why), (False, "it hangs"))

    def test_not_to_be_retired(self) -> None:
        """Static replicas are not ours to stop, unknown ones nobody's, reserved ones wait for release."""
        self.failureResultOf(self.admin.retire("static"), Conflict)
        self.failureResultOf(self.admin.retire("d2"), NotFound)
        self.admin.retire("d1")
        self.here.stopping["i1"][0].errback(StopUnconfirmed("it hangs"))
        self.failureResultOf(self.admin.retire("d1"), Conflict)

    def test_next_instance(self) -> None:
        """Who waits for one instance is not answered by the end of the next one on the same slot."""
        first = self.admin.retire("d1")
        self.here.stopping["i1"][0].callback(None)
        self.successResultOf(first)
        self.here.at_once = True
        self.successResultOf(self.admin.grow("d1"))
        self.here.at_once = False
        second = self.admin.retire("d1")
        self.assertNoResult(second)
        self.here.stopping["i2"][0].callback(None)
        self.assertEqual(self.successResultOf(second).instance, "i2")


class Releasing(KeeperTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.successResultOf(self.admin.grow("d1"))
        self.here.at_once = False
        self.admin.retire("d1")
        self.here.stopping["i1"][0].errback(StopUnconfirmed("it hangs"))

    def refused(self) -> str:
        failure = self.failureResultOf(self.admin.release("d1", "i1"), Conflict)
        self.assertEqual(self.reserved(), [("d1", "stop-unconfirmed")])
        return failure.value.message  # type: ignore[no-any-return]

    def test_free(self) -> None:
        """A slot with a silent address, a free lock and no process is freed, in the file too."""
        self.successResultOf(self.admin.release("d1", "i1"))
        self.assertEqual((self.reserved(), self.store.saved[-1].slots), ([], ()))

    def test_somebody_there(self) -> None:
        """While the address is not silent the slot stays reserved, and the caller is told what to do."""
        for presence in (Presence.PRESENT, Presence.UNKNOWN):
            self.present["127.0.0.1", 8001] = presence
            message = self.refused()
            self.assertIn(presence.value, message)
            self.assertIn("force", message)

    def test_lock_held(self) -> None:
        """While the lock is held the slot stays reserved."""
        self.here.held = lambda: succeed(True)
        self.assertIn("lock", self.refused())

    def test_process_left(self) -> None:
        """While a process of the instance is left the slot stays reserved."""
        self.here.running = lambda: succeed(True)
        self.assertIn("processes of instance i1", self.refused())

    def test_cannot_look(self) -> None:
        """A host that cannot be looked at is not an empty one."""
        for look in ("held", "running"):
            setattr(self.here, look, lambda: fail(StopUnconfirmed("host here does not answer")))
            self.assertIn("host here does not answer", self.refused())
            setattr(self.here, look, lambda: succeed(False))

    def test_force(self) -> None:
        """With force nobody looks."""
        self.present["127.0.0.1", 8001] = Presence.PRESENT
        self.here.held = self.here.running = lambda: succeed(True)
        self.successResultOf(self.admin.release("d1", "i1", force=True))
        self.assertEqual(self.reserved(), [])

    def test_wrong_reservation(self) -> None:
        """Another instance, another slot and a slot that is not reserved are refused, with force too."""
        for force in (False, True):
            self.failureResultOf(self.admin.release("d1", "i9", force), Conflict)
            self.failureResultOf(self.admin.release("d2", "i1", force), Conflict)
            self.failureResultOf(self.admin.release("d9", "i1", force), NotFound)
        self.assertEqual(self.reserved(), [("d1", "stop-unconfirmed")])

    def test_launch_again(self) -> None:
        """A freed slot can be launched on again."""
        self.successResultOf(self.admin.release("d1", "i1"))
        self.here.at_once = True
        self.assertEqual(self.successResultOf(self.admin.grow("d1")).instance, "i2")


class Sessions(KeeperTestCase):
    def test_end(self) -> None:
        """A conversation that is ended has no home any more."""
        self.successResultOf(self.admin.grow("d1"))
        self.keeper.apply(ProbeAnswered("i1", 200))
        self.fleet.pick(Wish("s", "s"), 0.0)
        self.admin.end_session("s")
        self.assertEqual(len(self.pins), 0)
