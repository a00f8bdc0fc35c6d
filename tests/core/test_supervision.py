from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.config.model import HostConfig
from twisted_router.core.effects import (
    Adopted,
    Grow,
    Launch,
    Launched,
    LaunchFailed,
    Note,
    ProbeAnswered,
    ProbeSilent,
    ProcessExited,
    Record,
    ReleaseSlot,
    Retire,
    Retired,
    Silence,
    Stop,
    StopConfirmed,
    StopUnconfirmed,
    TailRead,
    Unreachable,
    Unrouted,
    Watch,
)
from twisted_router.core.records import Reservation
from twisted_router.core.slots import Handle
from twisted_router.errors import Conflict, NoReplicaReady, NotFound

from .scene import Scene, handle_of, kinds, only, record_of

#: Four cards: one here, three there.
HOSTS = (
    HostConfig("far", (0, 1, 2), ssh="user@far", model="/m"),
    HostConfig("near", (4,), model="/m"),
)


class GrowTests(SynchronousTestCase):
    def test_taken_before_it_is_spawned(self) -> None:
        """The slot is taken and recorded at once, so that two requests never share one."""
        scene = Scene()
        effects = scene.apply(Grow())
        self.assertEqual(kinds(effects), ["Record", "Launch"])
        self.assertEqual(scene.view().capacity.free_slots, ("node-d1",))
        self.assertEqual([each.instance for each in scene.fleet.record(scene.now).slots], ["i0"])
        self.assertEqual(scene.grow().slot.name, "node-d1")

    def test_local_first(self) -> None:
        """Slots are filled in order, the local machine first."""
        scene = Scene(HOSTS)
        self.assertEqual(
            [scene.grow().slot.name for _ in range(4)], ["near-d4", "far-d0", "far-d1", "far-d2"]
        )

    def test_full(self) -> None:
        """A full pool refuses, and nothing has changed."""
        scene = Scene()
        scene.grow()
        scene.grow()
        before = scene.view()
        self.assertRaises(Conflict, scene.apply, Grow())
        self.assertEqual(scene.view(), before)

    def test_cap(self) -> None:
        """--max-replicas is a ceiling below the declared devices."""
        scene = Scene(most=1)
        scene.grow()
        self.assertRaises(Conflict, scene.apply, Grow())
        self.assertEqual(scene.view().capacity.ceiling, 1)

    def test_no_hosts(self) -> None:
        """Without hosts there is nothing to launch on."""
        self.assertRaises(Conflict, Scene((), static=("a",)).apply, Grow())

    def test_wanted_slot(self) -> None:
        """A person may name the slot; a taken one is refused, an unknown one is not found."""
        scene = Scene()
        self.assertEqual(scene.grow("node-d1").slot.name, "node-d1")
        self.assertRaises(Conflict, scene.apply, Grow("node-d1"))
        self.assertRaises(NotFound, scene.apply, Grow("node-d9"))

    def test_not_routable_yet(self) -> None:
        """A launched replica is in the table at once, starting, and gets no request."""
        scene = Scene()
        scene.launch()
        self.assertEqual(scene.phases(), {"node-d0": "starting"})
        self.assertRaises(NoReplicaReady, scene.ask)

    def test_launched(self) -> None:
        """The process is recorded and watched."""
        scene = Scene()
        handle = handle_of(launch := scene.grow())
        effects = scene.apply(Launched(handle))
        self.assertEqual(effects[:2], (Record(), Watch(launch.slot, handle)))
        self.assertEqual(scene.fleet.record(scene.now).slots[0].handle, handle)

    def test_promoted_by_the_poller(self) -> None:
        """The first good answer puts it into rotation."""
        scene = Scene()
        instance = scene.serve()
        self.assertEqual(scene.phases(), {"node-d0": "ready"})
        self.assertEqual(scene.ask()[0].member.instance, instance)

    def test_stranger_on_the_port(self) -> None:
        """A good answer before the process exists is somebody else's and promotes nothing."""
        scene = Scene()
        launch = scene.grow()
        self.assertEqual(scene.apply(ProbeAnswered(launch.instance, 200)), ())
        self.assertEqual(scene.phases(), {"node-d0": "starting"})

    def test_misses_while_loading(self) -> None:
        """A loading replica may miss as many probes as it likes."""
        scene = Scene()
        instance = scene.launch()
        for _ in range(5):
            self.assertEqual(scene.silence(instance), ())
        self.assertEqual(scene.phases(), {"node-d0": "starting"})

    def test_good_answers_in_service(self) -> None:
        """A healthy replica that stays healthy is no news."""
        scene = Scene()
        instance = scene.serve()
        self.assertEqual(scene.apply(ProbeAnswered(instance, 200)), ())

    def test_shared_cards(self) -> None:
        """Two hosts that name one card of one machine never have it both."""
        hosts = (
            HostConfig("a", (0, 1), model="/m", devices_per_replica=2),
            HostConfig("b", (1, 2), model="/n", port_base=9000),
        )
        scene = Scene(hosts)
        self.assertEqual(scene.grow().slot.name, "a-d0")
        self.assertEqual(scene.view().capacity.free_slots, ("b-d2",))
        self.assertRaises(Conflict, scene.apply, Grow("b-d1"))
        self.assertEqual(scene.grow().slot.name, "b-d2")
        self.assertRaises(Conflict, scene.apply, Grow())


class InitialTests(SynchronousTestCase):
    def test_spills_over(self) -> None:
        """Three replicas: one here, two there, all launched at once."""
        scene = Scene(HOSTS, initial=3)
        launches = [each.slot.name for each in scene.initial() if isinstance(each, Launch)]
        self.assertEqual(launches, ["near-d4", "far-d0", "far-d1"])

    def test_default(self) -> None:
        """One is launched when hosts are declared."""
        self.assertEqual(kinds(Scene().initial()), ["Record", "Launch"])

    def test_adopted_ones_count(self) -> None:
        """What was adopted need not be launched."""
        scene = Scene(initial=2)
        scene.reclaim(record_of("old"))
        scene.apply(Adopted("old", True))
        self.assertEqual(
            [each.slot.name for each in scene.initial() if isinstance(each, Launch)], ["node-d1"]
        )

    def test_reserved_ones_take_room(self) -> None:
        """A slot that may be held is neither launched on nor made up for beyond the pool."""
        scene = Scene(initial=2)
        scene.reclaim(record_of("old"))
        scene.apply(Unreachable("old", "connection refused"))
        self.assertEqual(
            [each.slot.name for each in scene.initial() if isinstance(each, Launch)], ["node-d1"]
        )

    def test_no_hosts(self) -> None:
        """Without hosts nothing is launched."""
        self.assertEqual(Scene((), static=("a",)).initial(), ())


class FailedLaunchTests(SynchronousTestCase):
    def test_certain(self) -> None:
        """A launch that left nothing behind gives its slot back at once, with the reason kept."""
        scene = Scene()
        launch = scene.grow()
        effects = scene.apply(LaunchFailed(launch.instance, "no such program", "sh: not found"), after=2)
        self.assertEqual(kinds(effects), ["Record", "Retired"])
        self.assertEqual(only(effects, Retired), Retired("node-d0", "i0", True, "no such program"))
        self.assertEqual(scene.view().capacity.free_slots, ("node-d0", "node-d1"))
        (failure,) = scene.view().capacity.failures
        self.assertEqual((failure.why, failure.tail, failure.age), ("no such program", "sh: not found", 0))

    def test_uncertain(self) -> None:
        """A launch that may have left something is stopped before its slot is free."""
        scene = Scene()
        launch = scene.grow()
        effects = scene.apply(LaunchFailed(launch.instance, "ssh hung", certain=False))
        self.assertEqual(only(effects, Stop), Stop(launch.slot, launch.instance, None))
        self.assertEqual(scene.view().capacity.free_slots, ("node-d1",))
        scene.apply(StopConfirmed(launch.instance))
        self.assertEqual(scene.view().capacity.free_slots, ("node-d0", "node-d1"))

    def test_not_replaced(self) -> None:
        """A launch that a person asked for is not tried again."""
        scene = Scene()
        scene.apply(LaunchFailed(scene.grow().instance, "x"))
        self.assertIsNone(scene.fleet.next_deadline())

    def test_exit_while_loading(self) -> None:
        """A replica that exits while loading has failed at once; a stop shows that nothing of it is left."""
        scene = Scene()
        instance = scene.launch()
        effects = scene.apply(ProcessExited(instance, "exited with code 1", "bad model"), after=3)
        self.assertEqual(kinds(effects), ["Stop"])
        self.assertEqual(scene.phases(), {"node-d0": "draining"})
        scene.apply(StopConfirmed(instance))
        self.assertEqual(scene.view().capacity.failures[0].tail, "bad model")
        self.assertEqual(scene.phases(), {})

    def test_launch_timeout(self) -> None:
        """A replica not ready within the launch timeout is stopped without draining, and its slot freed."""
        scene = Scene()
        instance = scene.launch()
        self.assertEqual(scene.tick(after=599.9), ())
        effects = scene.tick(after=0.1)
        self.assertEqual(kinds(effects), ["Stop"])
        self.assertNotIn(Note.DRAINING, scene.notes())
        self.assertEqual(scene.replica("node-d0").why, "not ready within 600 s")
        scene.apply(StopConfirmed(instance))
        self.assertEqual(scene.view().capacity.free_slots, ("node-d0", "node-d1"))

    def test_late_launcher(self) -> None:
        """A launcher that takes longer than the launch timeout is waited for; then the replica is stopped."""
        scene = Scene()
        launch = scene.grow()
        self.assertEqual(scene.tick(after=601), ())
        self.assertEqual(kinds(scene.apply(Launched(handle_of(launch)))), ["Record", "Watch", "Stop"])

    def test_tail_read_later(self) -> None:
        """The last lines may be fetched after the failure; those of another instance are not taken."""
        scene = Scene()
        instance = scene.launch()
        scene.due()
        self.assertEqual(scene.apply(TailRead("other", "lines")), ())
        self.assertEqual(scene.view().capacity.failures[0].tail, "")
        scene.apply(TailRead(instance, "lines"))
        self.assertEqual(scene.view().capacity.failures[0].tail, "lines")


class RetireTests(SynchronousTestCase):
    def test_drains_first(self) -> None:
        """It takes no new session, its pins are released at once, requests under way may end."""
        scene = Scene(static=("other",))
        instance = scene.serve()
        scene.silence("other")
        _, lease = scene.ask("s")
        scene.apply(ProbeAnswered("other", 200))
        effects = scene.apply(Retire(instance))
        self.assertEqual(kinds(effects), ["Unrouted"])
        self.assertEqual(scene.phases()["node-d0"], "draining")
        self.assertEqual(len(scene.pins), 0)
        self.assertEqual(scene.ask("s")[0].member.name, "other")
        lease.release()
        self.assertEqual(kinds(scene.tick()), ["Stop"])

    def test_planned(self) -> None:
        """Leaving rotation because a person asks is planned; by death or silence it is not."""
        scene = Scene()
        self.assertTrue(only(scene.apply(Retire(scene.serve())), Unrouted).planned)
        scene = Scene()
        self.assertFalse(
            only(scene.apply(ProcessExited(scene.serve(), "exited with code 1")), Unrouted).planned
        )
        scene = Scene()
        self.assertFalse(only(scene.silence(scene.serve()), Unrouted).planned)

    def test_wakes(self) -> None:
        """The last request to end says that something is due; the one before does not."""
        scene = Scene()
        instance = scene.serve()
        woken: list[float] = []
        scene.fleet.wake = lambda: woken.append(scene.now)
        _, first = scene.ask("a")
        _, second = scene.ask("b")
        scene.apply(Retire(instance))
        first.release()
        self.assertEqual(woken, [])
        second.release()
        self.assertEqual(woken, [scene.now])

    def test_nobody_to_wake(self) -> None:
        """Without anybody who performs effects the end of a request is still just that."""
        scene = Scene()
        instance = scene.serve()
        _, lease = scene.ask("a")
        scene.apply(Retire(instance))
        lease.release()
        self.assertEqual(scene.member(instance).outstanding, 0)

    def test_idle(self) -> None:
        """A replica without requests is stopped at once."""
        scene = Scene()
        instance = scene.serve()
        effects = scene.apply(Retire(instance))
        self.assertEqual(kinds(effects), ["Unrouted", "Stop"])
        self.assertEqual(only(effects, Stop).handle, Handle("node-d0", "i0", 4711, "99", "/log/node-d0.log"))

    def test_drain_timeout(self) -> None:
        """Requests that do not end are waited for until the drain timeout."""
        scene = Scene()
        instance = scene.serve()
        scene.ask()
        scene.apply(Retire(instance))
        self.assertEqual(scene.tick(after=299), ())
        self.assertEqual(kinds(scene.tick(after=1)), ["Stop"])

    def test_confirmed(self) -> None:
        """A confirmed stop frees the slot and says so to whoever waits, after it is on the disk."""
        scene = Scene()
        instance = scene.serve()
        scene.apply(Retire(instance))
        effects = scene.apply(StopConfirmed(instance))
        self.assertEqual(
            effects[:2],
            (Record(), Retired("node-d0", instance, True, "its retirement was asked for")),
        )
        self.assertEqual(scene.phases(), {})
        self.assertEqual(scene.fleet.record(scene.now).slots, ())

    def test_unconfirmed(self) -> None:
        """An unconfirmed stop reserves the slot: out of the table, listed, never launched on."""
        scene = Scene(most=2)
        instance = scene.serve()
        scene.apply(Retire(instance))
        effects = scene.apply(StopUnconfirmed(instance, "the port still answers"))
        self.assertEqual(
            only(effects, Retired), Retired("node-d0", instance, False, "the port still answers")
        )
        scene.now += 8
        (listed,) = scene.view().capacity.unconfirmed
        self.assertEqual(
            (listed.slot, listed.instance, listed.reason, listed.why, listed.age),
            ("node-d0", instance, Reservation.STOP_UNCONFIRMED, "the port still answers", 8),
        )
        self.assertEqual(scene.phases(), {})
        self.assertEqual(scene.grow().slot.name, "node-d1")
        self.assertRaises(Conflict, scene.apply, Grow())
        self.assertRaises(Conflict, scene.fleet.retirable, "node-d0")
        self.assertIsNone(scene.fleet.next_deadline())

    def test_concurrent(self) -> None:
        """A second retirement of an instance shares the first: one stop, one end."""
        scene = Scene()
        instance = scene.serve()
        scene.apply(Retire(instance))
        self.assertEqual(scene.apply(Retire(instance)), ())
        self.assertEqual(scene.fleet.retirable("node-d0"), instance)
        scene.apply(StopConfirmed(instance))
        stops = [each for each in scene.said if isinstance(each, Stop | Retired)]
        self.assertEqual(len(stops), 2)

    def test_keyed_on_the_instance(self) -> None:
        """The slot's next replica is not touched by what is still said about the last one."""
        scene = Scene()
        old = scene.serve("node-d0")
        scene.apply(Retire(old))
        scene.apply(StopConfirmed(old))
        new = scene.serve("node-d0")
        before = scene.view()
        for event in (
            Retire(old),
            Launched(Handle("node-d0", old, 1, "1", "/log")),
            LaunchFailed(old, "x"),
            LaunchFailed(old, "x", certain=False),
            StopConfirmed(old),
            StopUnconfirmed(old, "x"),
            ProcessExited(old, "x"),
            Adopted(old, True),
            Unreachable(old, "x"),
            ProbeAnswered(old, 200),
            ProbeSilent(old, Silence.REFUSED),
        ):
            self.assertEqual(scene.apply(event), (), event)
        self.assertEqual((scene.view(), scene.member(new).ready), (before, True))

    def test_late_events(self) -> None:
        """What cannot follow any more changes nothing, even when it names the right instance."""
        scene = Scene()
        instance = scene.serve()
        before = scene.view()
        for event in (
            Launched(Handle("node-d0", instance, 1, "1", "/log")),
            LaunchFailed(instance, "x"),
            StopConfirmed(instance),
            StopUnconfirmed(instance, "x"),
            Adopted(instance, False),
            Unreachable(instance, "x"),
        ):
            self.assertEqual(scene.apply(event), (), event)
        self.assertEqual(scene.view(), before)

    def test_while_it_is_launched(self) -> None:
        """A launch under way is stopped as soon as the launcher has answered, not before."""
        scene = Scene()
        launch = scene.grow()
        self.assertEqual(kinds(scene.apply(Retire(launch.instance))), [])
        self.assertEqual(scene.phases(), {"node-d0": "draining"})
        self.assertEqual(scene.apply(Retire(launch.instance)), ())
        effects = scene.apply(Launched(handle_of(launch)))
        self.assertEqual(kinds(effects), ["Record", "Stop"])
        self.assertEqual(only(effects, Stop).handle, handle_of(launch))

    def test_while_its_launch_fails(self) -> None:
        """A launch under way that fails by itself has nothing left to stop."""
        scene = Scene()
        launch = scene.grow()
        scene.apply(Retire(launch.instance))
        effects = scene.apply(LaunchFailed(launch.instance, "x"))
        self.assertEqual(kinds(effects), ["Record", "Retired"])
        self.assertTrue(only(effects, Retired).confirmed)

    def test_while_its_launch_is_uncertain(self) -> None:
        """A launch under way that may have left something is stopped."""
        scene = Scene()
        launch = scene.grow()
        scene.apply(Retire(launch.instance))
        self.assertEqual(kinds(scene.apply(LaunchFailed(launch.instance, "x", certain=False))), ["Stop"])

    def test_while_loading(self) -> None:
        """A loading replica has no requests and is stopped at once."""
        scene = Scene()
        instance = scene.launch()
        self.assertEqual(kinds(scene.apply(Retire(instance))), ["Stop"])

    def test_refused_connections_while_draining(self) -> None:
        """Misses of a draining replica change nothing about it."""
        scene = Scene()
        instance = scene.serve()
        scene.ask()
        scene.apply(Retire(instance))
        self.assertEqual(scene.silence(instance), ())
        self.assertEqual(scene.phases(), {"node-d0": "draining"})


class ReleaseTests(SynchronousTestCase):
    def reserved(self) -> Scene:
        scene = Scene()
        instance = scene.serve()
        scene.apply(Retire(instance))
        scene.apply(StopUnconfirmed(instance, "no answer"))
        return scene

    def test_released(self) -> None:
        """A person's word frees the slot, and that is recorded."""
        scene = self.reserved()
        self.assertEqual(kinds(scene.apply(ReleaseSlot("node-d0", "i0"))), ["Record"])
        self.assertEqual(scene.view().capacity.unconfirmed, ())
        self.assertEqual(scene.fleet.record(scene.now).slots, ())
        self.assertEqual(scene.grow().slot.name, "node-d0")

    def test_wrong_instance(self) -> None:
        """The word has to be about this reservation."""
        scene = self.reserved()
        self.assertRaises(Conflict, scene.apply, ReleaseSlot("node-d0", "other"))
        self.assertEqual(len(scene.view().capacity.unconfirmed), 1)

    def test_not_reserved(self) -> None:
        """Only a reserved slot is released; an unknown one is not found."""
        scene = Scene()
        instance = scene.serve()
        self.assertRaises(Conflict, scene.apply, ReleaseSlot("node-d0", instance))
        self.assertRaises(NotFound, scene.apply, ReleaseSlot("node-d9", "x"))

    def test_a_lost_one_is_not_replaced(self) -> None:
        """A slot released after a lost replica is free, for whoever asks for it."""
        scene = Scene()
        instance = scene.serve()
        scene.apply(ProcessExited(instance, "killed"))
        scene.apply(StopUnconfirmed(instance, "x"))
        scene.apply(ReleaseSlot("node-d0", instance))
        self.assertIsNone(scene.fleet.next_deadline())
        self.assertEqual(scene.view().capacity.free_slots, ("node-d0", "node-d1"))
