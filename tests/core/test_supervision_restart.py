from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.config.model import HostConfig
from twisted_router.core.effects import (
    Adopted,
    Grow,
    Hasten,
    Launch,
    Launched,
    ProbeAnswered,
    ProcessExited,
    Reclaimed,
    ReleaseSlot,
    Retire,
    Retired,
    ShutdownBegan,
    Stop,
    StopConfirmed,
    Unreachable,
    Unrouted,
    Watch,
)
from twisted_router.core.records import Reservation
from twisted_router.errors import Conflict, NotFound, ShuttingDown

from .scene import Scene, handle_of, kinds, only, record_of


class AdoptionTests(SynchronousTestCase):
    def test_taken_before_it_is_asked(self) -> None:
        """A recorded slot is taken before anything is asked of it, and listed to be asked."""
        scene = Scene()
        scene.reclaim(record_of("old"))
        self.assertEqual(scene.view().capacity.free_slots, ("node-d1",))
        self.assertEqual([member.instance for member in scene.fleet.to_adopt()], ["old"])
        self.assertEqual(scene.phases(), {"node-d0": "starting"})
        self.assertEqual(scene.apply(ProbeAnswered("old", 200)), ())

    def test_healthy(self) -> None:
        """Status 200: adopted and routable at once, watched, no model load."""
        scene = Scene()
        scene.reclaim(record_of("old"))
        effects = scene.apply(Adopted("old", True))
        self.assertEqual(kinds(effects), ["Routed", "Watch", "Record"])
        self.assertEqual(only(effects, Watch).handle, record_of("old").handle)
        self.assertEqual(scene.ask()[0].member.instance, "old")
        self.assertEqual(scene.fleet.to_adopt(), ())

    def test_another_answer(self) -> None:
        """Any other answer: adopted unroutable, promoted by the poller, within the launch timeout."""
        scene = Scene()
        scene.reclaim(record_of("old"))
        self.assertEqual(kinds(scene.apply(Adopted("old", False))), ["Watch", "Record"])
        self.assertEqual(scene.phases(), {"node-d0": "starting"})
        self.assertEqual(scene.fleet.next_deadline(), scene.now + 600)
        self.assertIn("Routed", kinds(scene.apply(ProbeAnswered("old", 200))))
        self.assertEqual(scene.fleet.record(scene.now).launch_times, ())

    def test_no_answer(self) -> None:
        """No answer: not adopted, reserved as unreachable-at-startup, again on the disk."""
        scene = Scene()
        scene.reclaim(record_of("old"))
        effects = scene.apply(Unreachable("old", "connection refused"))
        self.assertEqual(kinds(effects), ["Record", "Retired"])
        (listed,) = scene.view().capacity.unconfirmed
        self.assertEqual(listed.reason.value, "unreachable-at-startup")
        self.assertEqual(scene.phases(), {})
        (record,) = scene.fleet.record(scene.now).slots
        self.assertEqual((record.reason, record.why), (Reservation.UNREACHABLE, "connection refused"))

    def test_adopted_ones_are_replaced(self) -> None:
        """An adopted replica that dies is replaced like any other."""
        scene = Scene()
        scene.reclaim(record_of("old"))
        scene.apply(Adopted("old", True))
        scene.apply(ProcessExited("old", "gone"))
        scene.apply(StopConfirmed("old"))
        self.assertEqual(only(scene.due(), Launch).slot.name, "node-d0")

    def test_more_than_the_ceiling(self) -> None:
        """Replicas adopted beyond a lowered ceiling go on serving; a lost one of them is not replaced."""
        scene = Scene(most=1)
        scene.reclaim(record_of("a"), record_of("b", "node-d1", 1))
        scene.apply(Adopted("a", True))
        scene.apply(Adopted("b", True))
        self.assertEqual(scene.initial(), ())
        self.assertEqual(scene.view().ready, 2)
        scene.apply(ProcessExited("a", "gone"))
        scene.apply(StopConfirmed("a"))
        self.assertIsNone(scene.fleet.next_deadline())
        scene.apply(ProcessExited("b", "gone"))
        scene.apply(StopConfirmed("b"))
        self.assertEqual(only(scene.due(), Launch).slot.name, "node-d1")

    def test_reservations_survive(self) -> None:
        """A reserved slot is reserved after a restart, for the same reason and since the same time."""
        scene = Scene()
        scene.reclaim(record_of("old", reason=Reservation.STOP_UNCONFIRMED, why="x", age=50.0))
        self.assertEqual(scene.fleet.to_adopt(), ())
        (listed,) = scene.view().capacity.unconfirmed
        self.assertEqual(
            (listed.instance, listed.reason, listed.why, listed.age),
            ("old", Reservation.STOP_UNCONFIRMED, "x", 50.0),
        )
        scene.apply(ReleaseSlot("node-d0", "old"))
        self.assertEqual(scene.view().capacity.free_slots, ("node-d0", "node-d1"))

    def test_slot_left_the_config(self) -> None:
        """A recorded slot that the file no longer has is listed, kept on disk, and left alone."""
        scene = Scene()
        gone = record_of("old", "node-d7", 7, reason=Reservation.UNREACHABLE, why="x", age=5.0)
        plain = record_of("older", "node-d8", 8, age=5.0)
        scene.reclaim(gone, plain)
        first, second = scene.view().capacity.unconfirmed
        self.assertEqual((first.slot, first.reason, first.age), ("node-d7", Reservation.LEFT_CONFIG, 5.0))
        self.assertIn("unreachable-at-startup: x", first.why)
        self.assertNotIn("before that", second.why)
        self.assertEqual(scene.fleet.record(scene.now).slots, (gone, plain))
        self.assertEqual(scene.apply(ShutdownBegan()), ())

    def test_left_slots_are_released(self) -> None:
        """A person may release it, named with its instance."""
        scene = Scene()
        scene.reclaim(record_of("old", "node-d7", 7))
        self.assertRaises(NotFound, scene.apply, ReleaseSlot("node-d7", "other"))
        self.assertRaises(NotFound, scene.apply, ReleaseSlot("node-d9", "old"))
        self.assertEqual(kinds(scene.apply(ReleaseSlot("node-d7", "old"))), ["Record"])
        self.assertEqual(scene.view().capacity.unconfirmed, ())

    def test_same_name_other_cards(self) -> None:
        """A slot that was cut differently is not the recorded one, and waits until that is released."""
        wide = (HostConfig("node", (0, 1), devices_per_replica=2, model="/m"),)
        scene = Scene(wide)
        scene.reclaim(record_of("old"), record_of("old1", "node-d1", 1))
        self.assertEqual([each.slot for each in scene.view().capacity.unconfirmed], ["node-d0", "node-d1"])
        self.assertEqual(scene.view().capacity.free_slots, ())
        self.assertRaises(Conflict, scene.apply, Grow())
        scene.apply(ReleaseSlot("node-d0", "old"))
        self.assertRaises(Conflict, scene.apply, Grow("node-d0"))
        scene.apply(ReleaseSlot("node-d1", "old1"))
        self.assertEqual(scene.grow().slot.devices, (0, 1))

    def test_one_slot_twice(self) -> None:
        """A second record of a slot does not push out the first: both are kept."""
        scene = Scene()
        scene.reclaim(record_of("a"), record_of("b"))
        self.assertEqual([member.instance for member in scene.fleet.to_adopt()], ["a"])
        self.assertEqual([each.instance for each in scene.view().capacity.unconfirmed], ["b"])

    def test_launch_that_was_never_answered(self) -> None:
        """A record without a process still takes its slot; it may have been launched."""
        scene = Scene()
        launch = scene.grow()
        (record,) = scene.fleet.record(scene.now).slots
        self.assertIsNone(record.handle)
        later = Scene()
        later.apply(Reclaimed(record))
        later.apply(Unreachable(launch.instance, "refused"))
        self.assertEqual(later.view().capacity.unconfirmed[0].instance, launch.instance)


class ShutdownTests(SynchronousTestCase):
    def test_everything_at_once(self) -> None:
        """Every launched replica is retired at the same time, static ones are not touched."""
        scene = Scene(static=("a",))
        scene.serve()
        scene.launch()
        effects = scene.apply(ShutdownBegan())
        self.assertEqual([each.instance for each in effects if isinstance(each, Stop)], ["i0", "i1"])
        self.assertNotIn("a", [each.name for each in effects if isinstance(each, Unrouted)])

    def test_no_launch_any_more(self) -> None:
        """Nothing is launched once the shutdown has begun, by nobody."""
        scene = Scene(initial=2)
        scene.apply(ShutdownBegan())
        self.assertRaises(ShuttingDown, scene.apply, Grow())
        self.assertEqual(scene.initial(), ())

    def test_launch_under_way(self) -> None:
        """A launch under way is stopped as soon as it can be."""
        scene = Scene()
        launch = scene.grow()
        scene.apply(ShutdownBegan())
        self.assertEqual(kinds(scene.apply(Launched(handle_of(launch)))), ["Record", "Stop"])

    def test_reclaimed_not_yet_asked(self) -> None:
        """A reclaimed replica that nobody has asked yet is ours, and is stopped."""
        scene = Scene()
        scene.reclaim(record_of("old"))
        self.assertEqual(only(scene.apply(ShutdownBegan()), Stop).instance, "old")
        self.assertEqual(scene.apply(Adopted("old", True)), ())

    def test_waiting_for_replacement(self) -> None:
        """A replica that waits for its replacement is over, detached or not."""
        for detach in (False, True):
            scene = Scene()
            instance = scene.serve()
            scene.apply(ProcessExited(instance, "x"))
            scene.apply(StopConfirmed(instance))
            self.assertTrue(only(scene.apply(ShutdownBegan(detach)), Retired).confirmed)
            self.assertIsNone(scene.fleet.next_deadline())

    def test_loss_during_the_shutdown(self) -> None:
        """What is lost during the shutdown is not replaced."""
        scene = Scene()
        instance = scene.serve()
        scene.apply(ShutdownBegan(detach=True))
        scene.apply(ProcessExited(instance, "x"))
        scene.apply(StopConfirmed(instance))
        self.assertIsNone(scene.fleet.next_deadline())

    def test_detach(self) -> None:
        """Detached replicas go on serving and stay on record for the next router."""
        scene = Scene()
        instance = scene.serve()
        self.assertEqual(scene.apply(ShutdownBegan(detach=True)), ())
        self.assertEqual([each.instance for each in scene.fleet.record(scene.now).slots], [instance])
        self.assertEqual(scene.ask()[0].member.instance, instance)

    def test_hasten(self) -> None:
        """A second wish to end stops what still drains, and nothing else."""
        scene = Scene()
        first = scene.serve()
        scene.ask()
        scene.serve()
        scene.apply(Retire(first))
        effects = scene.apply(Hasten())
        self.assertEqual([each.instance for each in effects if isinstance(each, Stop)], [first])
