from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.core.effects import (
    Grow,
    Launch,
    LaunchFailed,
    Note,
    ProbeAnswered,
    ProcessExited,
    Retire,
    Retired,
    SlotNote,
    StopConfirmed,
    StopUnconfirmed,
)
from twisted_router.core.places import Rules
from twisted_router.errors import Conflict

from .scene import Scene, kinds, only


class DeathTests(SynchronousTestCase):
    def test_sequence(self) -> None:
        """Silent for 30 s means dead: drained, stopped, and after 10 s launched on the same devices."""
        scene = Scene(static=("other",))
        instance = scene.serve()
        scene.silence(instance)
        self.assertEqual(scene.phases()["node-d0"], "failed")
        self.assertEqual(scene.view().failed, 1)
        self.assertEqual(scene.tick(after=29.9), ())
        self.assertEqual(kinds(scene.tick(after=0.1)), ["Stop"])
        self.assertEqual(scene.phases()["node-d0"], "draining")
        self.assertEqual(scene.replica("node-d0").why, "no good answer for 30 s (refused)")
        effects = scene.apply(StopConfirmed(instance), after=5)
        self.assertEqual(kinds(effects), ["Record", "Retired"])
        self.assertEqual(scene.tick(after=9.9), ())
        launch = only(scene.tick(after=0.1), Launch)
        self.assertEqual((launch.slot.name, launch.slot.devices), ("node-d0", (0,)))
        self.assertNotEqual(launch.instance, instance)

    def test_shown_while_it_waits(self) -> None:
        """Until it is launched again a lost replica shows as failed, owned, and keeps its slot."""
        scene = Scene(most=2)
        instance = scene.serve()
        scene.apply(ProcessExited(instance, "killed by signal 9"))
        scene.apply(StopConfirmed(instance))
        scene.now += 4
        shown = scene.replica("node-d0")
        self.assertEqual(
            (shown.phase.value, shown.ready, shown.owned, shown.retry_in, shown.age, shown.losses, shown.why),
            ("failed", False, True, 6.0, 4.0, 1, "killed by signal 9"),
        )
        self.assertEqual(scene.view().capacity.owned, 1)
        self.assertEqual(scene.view().capacity.free_slots, ("node-d1",))
        self.assertEqual(scene.fleet.record(scene.now).slots, ())
        self.assertEqual(scene.grow().slot.name, "node-d1")
        self.assertRaises(Conflict, scene.apply, Grow())

    def test_recovers(self) -> None:
        """One good answer in time and nothing is replaced; its sessions find it again."""
        scene = Scene()
        instance = scene.serve()
        choice, lease = scene.ask("s")
        lease.release()
        scene.silence(instance)
        scene.tick(after=20)
        self.assertEqual(kinds(scene.apply(ProbeAnswered(instance, 200))), ["Routed"])
        self.assertIsNone(scene.fleet.next_deadline())
        self.assertEqual(scene.ask("s")[0].pin, choice.pin)

    def test_good_traffic_vetoes_death(self) -> None:
        """A replica that completes answers is not dead while they are at most the veto old."""
        scene = Scene()
        instance = scene.serve()
        _, lease = scene.ask("s")
        scene.silence(instance)
        scene.now += 25
        lease.release(good=True)
        self.assertEqual(scene.fleet.next_deadline(), scene.now + 10)
        self.assertEqual(scene.tick(after=9.9), ())
        self.assertEqual(kinds(scene.tick(after=0.1)), ["Stop"])

    def test_old_traffic_does_not(self) -> None:
        """Traffic from before the silence does not put off death."""
        scene = Scene()
        instance = scene.serve()
        scene.ask("s")[1].release(good=True)
        scene.silence(instance)
        self.assertEqual(scene.fleet.next_deadline(), scene.now + 30)

    def test_drained_like_any_other(self) -> None:
        """Requests still under way on a dead replica get the drain timeout; its pins go at once."""
        scene = Scene()
        instance = scene.serve()
        scene.ask("s")
        scene.silence(instance)
        self.assertEqual(kinds(scene.tick(after=30)), [])
        self.assertEqual((scene.phases()["node-d0"], len(scene.pins)), ("draining", 0))
        self.assertEqual(kinds(scene.tick(after=300)), ["Stop"])

    def test_exit_is_known_at_once(self) -> None:
        """A process seen to end is dead without waiting, in service or silent."""
        for silent in (False, True):
            scene = Scene()
            instance = scene.serve()
            if silent:
                scene.silence(instance)
            effects = scene.apply(ProcessExited(instance, "exited with code 1", "oom"))
            self.assertEqual(kinds(effects), ["Stop"] if silent else ["Unrouted", "Stop"])
            scene.apply(StopConfirmed(instance))
            self.assertEqual(scene.view().capacity.failures[0].tail, "oom")
            self.assertEqual(scene.fleet.next_deadline(), scene.now + 10)

    def test_exit_during_a_drain(self) -> None:
        """A replica that exits while it is retired is not replaced."""
        scene = Scene()
        instance = scene.serve()
        scene.ask("s")
        scene.apply(Retire(instance))
        self.assertEqual(scene.apply(ProcessExited(instance, "exited with code 0")), ())
        scene.due()
        scene.apply(StopConfirmed(instance))
        self.assertIsNone(scene.fleet.next_deadline())

    def test_unconfirmed_is_never_launched_onto(self) -> None:
        """A dead replica whose stop is not confirmed leaves its slot reserved."""
        scene = Scene()
        instance = scene.serve()
        scene.silence(instance)
        scene.due()
        scene.apply(StopUnconfirmed(instance, "ssh: timed out"))
        self.assertIsNone(scene.fleet.next_deadline())
        self.assertEqual(scene.view().capacity.unconfirmed[0].slot, "node-d0")

    def test_retired_while_it_is_replaced(self) -> None:
        """Who retires a replica that is being replaced means that it should not come back."""
        for stop_first in (False, True):
            scene = Scene()
            instance = scene.serve()
            scene.apply(ProcessExited(instance, "killed"))
            if stop_first:
                scene.apply(StopConfirmed(instance))
                self.assertEqual(scene.fleet.retirable("node-d0"), instance)
                effects = scene.apply(Retire(instance))
            else:
                scene.apply(Retire(instance))
                effects = scene.apply(StopConfirmed(instance))
            self.assertTrue(only(effects, Retired).confirmed)
            self.assertIsNone(scene.fleet.next_deadline())
            self.assertEqual(scene.view().capacity.free_slots, ("node-d0", "node-d1"))
            self.assertEqual(scene.phases(), {})


class LossesTests(SynchronousTestCase):
    def lose(self, scene: Scene, instance: str) -> None:
        """Let a serving replica die and be stopped."""
        scene.apply(ProcessExited(instance, "killed"))
        scene.apply(StopConfirmed(instance))

    def abandoned(self) -> Scene:
        """A fleet whose first slot was given up."""
        scene = Scene()
        instance = scene.serve("node-d0")
        self.lose(scene, instance)
        for _ in range(2):
            instance = scene.relaunch(scene.due())
            self.lose(scene, instance)
        return scene

    def test_three_in_a_row(self) -> None:
        """Waits double from 10 s, and the third loss in a row gives the slot up."""
        scene = Scene()
        instance = scene.serve("node-d0")
        for wait in (10, 20):
            self.lose(scene, instance)
            self.assertEqual(scene.fleet.next_deadline(), scene.now + wait)
            instance = scene.relaunch(scene.due())
        self.lose(scene, instance)
        self.assertIsNone(scene.fleet.next_deadline())
        capacity = scene.view().capacity
        self.assertEqual((capacity.abandoned, capacity.free_slots), (("node-d0",), ("node-d0", "node-d1")))
        self.assertEqual(scene.notes()[-1], Note.ABANDONED)

    def test_failed_replacement_is_a_loss(self) -> None:
        """A replacement that does not come up counts, whether it never started or had to be stopped."""
        scene = Scene()
        self.lose(scene, scene.serve())
        launch = only(scene.due(), Launch)
        scene.apply(LaunchFailed(launch.instance, "x"))
        self.assertEqual(scene.fleet.next_deadline(), scene.now + 20)
        launch = only(scene.due(), Launch)
        scene.apply(LaunchFailed(launch.instance, "x", certain=False))
        scene.apply(StopConfirmed(launch.instance))
        self.assertEqual(scene.view().capacity.abandoned, ("node-d0",))

    def test_short_service_does_not_reset(self) -> None:
        """Ready for less than ten minutes is not proof: a crash loop that gets ready each time ends."""
        scene = Scene()
        self.lose(scene, scene.serve())
        instance = scene.relaunch(scene.due())
        scene.now += 599
        self.lose(scene, instance)
        self.assertEqual(scene.fleet.next_deadline(), scene.now + 20)

    def test_ten_minutes_reset(self) -> None:
        """A replica that served ten minutes starts the count anew."""
        scene = Scene()
        self.lose(scene, scene.serve())
        instance = scene.relaunch(scene.due())
        scene.now += 600
        self.lose(scene, instance)
        self.assertEqual(scene.fleet.next_deadline(), scene.now + 10)

    def test_silence_is_no_service(self) -> None:
        """The time a replica is silent before it counts as dead is not service."""
        scene = Scene(rules=Rules(replace_after=700))
        self.lose(scene, scene.serve())
        instance = scene.relaunch(scene.due())
        scene.silence(instance)
        scene.due()
        scene.apply(StopConfirmed(instance))
        self.assertEqual(scene.fleet.next_deadline(), scene.now + 20)

    def test_people_prefer_others(self) -> None:
        """POST takes any other free slot before an abandoned one, and then that."""
        scene = self.abandoned()
        self.assertEqual(scene.grow().slot.name, "node-d1")
        self.assertEqual(scene.grow().slot.name, "node-d0")

    def test_ready_again(self) -> None:
        """An abandoned slot that serves again is an ordinary one, with its count at zero."""
        scene = self.abandoned()
        instance = scene.serve("node-d0")
        self.assertEqual(scene.view().capacity.abandoned, ())
        self.lose(scene, instance)
        self.assertEqual(scene.fleet.next_deadline(), scene.now + 10)

    def test_still_broken(self) -> None:
        """An abandoned slot whose next launch fails is abandoned still."""
        scene = self.abandoned()
        launch = scene.grow("node-d0")
        self.assertEqual(scene.view().capacity.abandoned, ())
        scene.apply(LaunchFailed(launch.instance, "x"))
        self.assertEqual(scene.view().capacity.abandoned, ("node-d0",))
        self.assertIsNone(scene.fleet.next_deadline())

    def test_a_restart_uses_it(self) -> None:
        """Nothing about a given-up slot is written down: a restart will use it."""
        self.assertEqual(self.abandoned().fleet.record(0.0).slots, ())


class NoteTests(SynchronousTestCase):
    def test_a_whole_life(self) -> None:
        """What an operator reads of a replica that is launched, lost, replaced and retired."""
        scene = Scene()
        instance = scene.serve()
        scene.silence(instance)
        scene.due()
        scene.apply(StopConfirmed(instance))
        instance = scene.relaunch(scene.due())
        scene.apply(Retire(instance))
        scene.apply(StopConfirmed(instance))
        self.assertEqual(
            [note.value for note in scene.notes()],
            "launching launched ready lost draining stopping waiting"
            " launching launched ready draining stopping free".split(),
        )

    def test_wait_is_told(self) -> None:
        """How long a replacement waits is part of the note."""
        scene = Scene()
        instance = scene.serve()
        scene.apply(ProcessExited(instance, "killed"))
        effects = scene.apply(StopConfirmed(instance))
        self.assertIn(SlotNote("node-d0", instance, Note.WAITING, "killed", 10.0), effects)
