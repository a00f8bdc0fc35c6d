from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.core.effects import (
    Launched,
    LaunchFailed,
    Phase,
    ProbeAnswered,
    ProcessExited,
    Retire,
    StopConfirmed,
)
from twisted_router.core.records import FleetRecord, LaunchTime, SlotRecord
from twisted_router.core.snapshot import CapacityView, ReplicaView

from .scene import Scene, handle_of, record_of


class ReplicaReportTests(SynchronousTestCase):
    def test_ready(self) -> None:
        """What is shown of a launched replica in service."""
        scene = Scene()
        instance = scene.serve()
        scene.ask()
        scene.now += 3
        self.assertEqual(
            scene.replica("node-d0"),
            ReplicaView(
                "node-d0", instance, "http://127.0.0.1:8001", True, Phase.READY, False, True, 1, 1, age=3.0
            ),
        )

    def test_ready_stays_true_while_draining(self) -> None:
        """A draining replica is still ready, but does not count as such."""
        scene = Scene()
        instance = scene.serve()
        scene.ask()
        scene.apply(Retire(instance))
        shown = scene.replica("node-d0")
        self.assertEqual((shown.ready, shown.draining, shown.phase), (True, True, Phase.DRAINING))
        self.assertEqual(scene.view().ready, 0)

    def test_time_in_phase(self) -> None:
        """A change of phase starts the time anew; draining and being stopped are one phase."""
        scene = Scene()
        instance = scene.serve()
        scene.ask()
        scene.now += 5
        scene.silence(instance)
        self.assertEqual(scene.replica("node-d0").age, 0)
        scene.tick(after=30)
        scene.tick(after=300)
        scene.now += 2
        self.assertEqual(scene.replica("node-d0").age, 302)

    def test_eta(self) -> None:
        """A launch says how long it has been going, and what is left after the last of its kind."""
        scene = Scene()
        first = scene.grow("node-d0")
        scene.now += 20
        self.assertEqual((scene.replica("node-d0").elapsed, scene.replica("node-d0").eta), (20, None))
        scene.apply(Launched(handle_of(first)))
        scene.apply(ProbeAnswered(first.instance, 200), after=110)
        self.assertIsNone(scene.replica("node-d0").elapsed)
        scene.launch("node-d1")
        scene.now += 30
        self.assertEqual((scene.replica("node-d1").elapsed, scene.replica("node-d1").eta), (30, 100))
        scene.now += 500
        self.assertEqual(scene.replica("node-d1").eta, 0)

    def test_adopted_has_no_eta(self) -> None:
        """Nobody knows when an adopted replica began to load."""
        scene = Scene()
        scene.reclaim(record_of("old"))
        self.assertIsNone(scene.replica("node-d0").elapsed)


class CapacityReportTests(SynchronousTestCase):
    def test_without_hosts(self) -> None:
        """A router that only routes has no capacity."""
        self.assertEqual(Scene((), static=("a",)).view().capacity, CapacityView())

    def test_in_service(self) -> None:
        """Owned, ceiling and what is free."""
        scene = Scene()
        scene.serve()
        capacity = scene.view().capacity
        self.assertEqual((capacity.owned, capacity.ceiling, capacity.free_slots), (1, 2, ("node-d1",)))

    def test_failure(self) -> None:
        """A failure is listed with the seconds that have passed since."""
        scene = Scene()
        scene.apply(LaunchFailed(scene.grow().instance, "x"))
        scene.now += 7
        self.assertEqual(scene.view().capacity.failures[0].age, 7)


class RecordTests(SynchronousTestCase):
    def test_empty(self) -> None:
        """A fleet that has launched nothing has nothing to record."""
        self.assertEqual(Scene(static=("a",)).fleet.record(0.0), FleetRecord())

    def test_every_state_that_may_hold_a_card(self) -> None:
        """A slot is on record from before its launch until after its confirmed stop."""
        scene = Scene()
        launch = scene.grow()
        handle = handle_of(launch)

        def held() -> list[tuple[str, object]]:
            return [(each.instance, each.handle) for each in scene.fleet.record(scene.now).slots]

        self.assertEqual(held(), [("i0", None)])
        for event in (Launched(handle), ProbeAnswered("i0", 200), ProcessExited("i0", "killed")):
            scene.apply(event)
            self.assertEqual(held(), [("i0", handle)], event)
        scene.apply(StopConfirmed("i0"))
        self.assertEqual(held(), [])

    def test_what_is_written(self) -> None:
        """A record carries devices, address, port, process and its age."""
        scene = Scene()
        launch = scene.grow("node-d1")
        scene.apply(Launched(handle_of(launch)))
        scene.now += 4
        self.assertEqual(
            scene.fleet.record(scene.now).slots,
            (SlotRecord("node-d1", "i0", (1,), "127.0.0.1", 8002, handle_of(launch), age=4.0),),
        )

    def test_launch_times(self) -> None:
        """How long launches took survives a restart, by host and model."""
        scene = Scene()
        instance = scene.launch()
        scene.apply(ProbeAnswered(instance, 200), after=130)
        record = scene.fleet.record(scene.now)
        self.assertEqual(record.launch_times, (LaunchTime("node", "/m", 130.0),))
        later = Scene()
        later.fleet.restore_times(record)
        later.launch()
        self.assertEqual(later.replica("node-d0").eta, 130)
