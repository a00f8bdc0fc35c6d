from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.core.effects import (
    ConnectRefused,
    Phase,
    ProbeAnswered,
    ProbeNow,
    ProbeSilent,
    Retire,
    Routed,
    SessionFinished,
    Silence,
    Unrouted,
)
from twisted_router.core.policies.vocabulary import Reason
from twisted_router.core.records import PinRecord
from twisted_router.core.wish import Wish
from twisted_router.errors import Conflict, NoReplicaReady, NotFound

from .scene import Scene, record_of


def static(*names: str, **more: object) -> Scene:
    """A fleet of replicas that exist already."""
    return Scene((), static=names or ("a", "b"), **more)  # type: ignore[arg-type]


def load(scene: Scene, instance: str, requests: int) -> None:
    """Give a replica requests that do not end."""
    for _ in range(requests):
        member = scene.member(instance)
        member.leases.add(object())  # type: ignore[arg-type]


class AffinityTests(SynchronousTestCase):
    def home(self, scene: Scene) -> str:
        choice, lease = scene.ask("s")
        lease.release()
        return choice.member.instance

    def test_slack_boundary(self) -> None:
        """With the slack of 8 a pin is kept at 8 more outstanding requests and lost at 9."""
        for extra, reason, stays in ((8, Reason.PINNED, True), (9, Reason.OVER_SLACK, False)):
            scene = static()
            home = self.home(scene)
            load(scene, home, extra)
            choice, _ = scene.ask("s")
            self.assertEqual((choice.reason, choice.member.instance == home), (reason, stays), extra)

    def test_slack_zero_never_decides(self) -> None:
        """With a slack of 0 the pin never decides, not even at equal load."""
        scene = static(slack=0)
        home = self.home(scene)
        choice, _ = scene.ask("s")
        self.assertEqual(choice.reason, Reason.AFFINITY_OFF)
        self.assertNotEqual(choice.member.instance, home)
        self.assertEqual(scene.view().affinity_hits, 0)

    def test_lost_pin_settles_in_the_new_home(self) -> None:
        """A session that was moved stays where it went when its old home is idle again."""
        scene = static()
        home = self.home(scene)
        load(scene, home, 9)
        moved, lease = scene.ask("s")
        lease.release()
        scene.member(home).leases.clear()
        choice, _ = scene.ask("s")
        self.assertEqual((choice.reason, choice.member), (Reason.PINNED, moved.member))

    def test_stream_longer_than_the_ttl(self) -> None:
        """A pin outlives its idle time while a request of the session runs, and counts from its end."""
        scene = static(ttl=600.0)
        choice, lease = scene.ask("s")
        for _ in range(5):
            scene.now += 500.0
            scene.fleet.sweep(scene.now)
        lease.release(good=True)
        scene.now += 600.0
        scene.fleet.sweep(scene.now)
        again, lease = scene.ask("s")
        self.assertEqual((again.reason, again.member), (Reason.PINNED, choice.member))
        lease.release()
        scene.now += 600.1
        self.assertEqual(scene.ask("s")[0].reason, Reason.UNKNOWN_SESSION)

    def test_40_concurrent_first_turns(self) -> None:
        """40 first turns with one id, all under way at once, land on one replica."""
        scene = static("a", "b", "c", slack=40)
        chosen = {scene.ask("s")[0].member.instance for _ in range(40)}
        self.assertEqual(len(chosen), 1)

    def test_new_sessions_take_turns(self) -> None:
        """Idle replicas are filled in turn, so that conversations do not pile up on the first."""
        scene = static("a", "b", "c")
        chosen = [scene.ask(f"s{n}", known=False)[0].member.name for n in range(6)]
        self.assertEqual(chosen, ["a", "b", "c", "a", "b", "c"])

    def test_minted_ids_are_not_looked_up(self) -> None:
        """A session minted for this request has no home, and gets one."""
        scene = static()
        choice, lease = scene.ask("minted", known=False)
        lease.release()
        self.assertEqual(choice.reason, Reason.NO_SESSION)
        self.assertEqual(scene.ask("minted")[0].reason, Reason.PINNED)

    def test_counters(self) -> None:
        """Every choice counts as routed, those the pin decided as hits."""
        scene = static()
        self.home(scene)
        self.home(scene)
        self.home(scene)
        view = scene.view()
        self.assertEqual((view.routed, view.affinity_hits, view.sessions, view.rejected), (3, 2, 1, 0))

    def test_unroutable_home(self) -> None:
        """A session whose replica is out of rotation falls back to a live one and settles there."""
        scene = static()
        home = self.home(scene)
        scene.silence(home)
        choice, lease = scene.ask("s")
        lease.release()
        self.assertEqual(choice.reason, Reason.HOME_GONE)
        scene.apply(ProbeAnswered(home, 200))
        self.assertEqual(scene.ask("s")[0].member, choice.member)

    def test_silent_through_the_outage(self) -> None:
        """A session that asked nothing while its replica was out finds it again."""
        scene = static()
        home = self.home(scene)
        scene.silence(home)
        scene.apply(ProbeAnswered(home, 200))
        choice, _ = scene.ask("s")
        self.assertEqual((choice.reason, choice.member.instance), (Reason.PINNED, home))

    def test_finished_session(self) -> None:
        """A client's word that a conversation is over releases its pin."""
        scene = static()
        self.home(scene)
        self.assertEqual(scene.apply(SessionFinished("s")), ())
        self.assertEqual(scene.ask("s")[0].reason, Reason.UNKNOWN_SESSION)


class RefusedConnectionTests(SynchronousTestCase):
    def test_moves_once(self) -> None:
        """A refused request goes to another replica, where its session now lives; the hit is taken back."""
        scene = static()
        first, lease = scene.ask("s")
        lease.release()
        second, lease = scene.ask("s")
        lease.release()
        moved = scene.fleet.pick_other(second, scene.now)
        assert moved is not None
        self.assertIsNot(moved.member, first.member)
        self.assertEqual(moved.reason, Reason.CONNECT_REFUSED)
        self.assertEqual(scene.view().affinity_hits, 0)
        self.assertEqual((first.member.routed, moved.member.routed), (1, 1))
        self.assertEqual(moved.pin.home, moved.member.instance)

    def test_without_a_hit(self) -> None:
        """Moving a request that no pin decided takes no hit back."""
        scene = static()
        choice, _ = scene.ask("s")
        self.assertIsNotNone(scene.fleet.pick_other(choice, scene.now))
        self.assertEqual(scene.view().affinity_hits, 0)

    def test_nowhere_to_go(self) -> None:
        """With one routable replica there is no other."""
        scene = static("a")
        choice, _ = scene.ask("s")
        self.assertIsNone(scene.fleet.pick_other(choice, scene.now))

    def test_counts_as_a_miss(self) -> None:
        """A refused connection is one missed probe and asks for another at once."""
        scene = static()
        self.assertEqual(scene.apply(ConnectRefused("a")), (ProbeNow("a"),))
        self.assertEqual(scene.apply(ConnectRefused("a")), (Unrouted("a", "refused"), ProbeNow("a")))

    def test_stranger(self) -> None:
        """A refused connection of a replica that is gone changes nothing."""
        self.assertEqual(static().apply(ConnectRefused("gone")), ())


class LeaseTests(SynchronousTestCase):
    def test_given_back_once(self) -> None:
        """However often a lease is released, the load goes down by one."""
        scene = static("a")
        choice, lease = scene.ask("s")
        scene.ask("t")
        lease.release()
        lease.release(good=True)
        self.assertEqual((choice.member.outstanding, choice.pin.inflight), (1, 0))

    def test_left_by_an_exception(self) -> None:
        """A lease is given back when the block it guards fails."""
        scene = static("a")
        choice, lease = scene.ask("s")

        def fail() -> None:
            with lease:
                raise ValueError

        self.assertRaises(ValueError, fail)
        self.assertEqual(choice.member.outstanding, 0)

    def test_good_traffic_is_dated(self) -> None:
        """Only a completed good answer dates the replica's good traffic."""
        scene = static("a")
        choice, lease = scene.ask("s")
        lease.release()
        self.assertIsNone(choice.member.good)
        choice, lease = scene.ask("s")
        scene.now += 5
        lease.release(good=True)
        self.assertEqual(choice.member.good, scene.now)


class HealthTests(SynchronousTestCase):
    def test_routable_from_the_start(self) -> None:
        """A static replica is offered work before it has answered, in phase starting."""
        scene = static("a")
        self.assertEqual(scene.ask()[0].member.name, "a")
        self.assertEqual(scene.phases(), {"a": "starting"})

    def test_first_answer(self) -> None:
        """The first good answer makes a static replica ready; it was in rotation already."""
        scene = static("a")
        self.assertEqual(scene.apply(ProbeAnswered("a", 200)), ())
        self.assertEqual(scene.phases(), {"a": "ready"})

    def test_two_misses(self) -> None:
        """Two misses in a row take a replica out, whatever kind they are; one does not."""
        for miss, why in (
            (ProbeAnswered("a", 503), "status 503"),
            (ProbeSilent("a", Silence.REFUSED), "refused"),
            (ProbeSilent("a", Silence.TIMED_OUT), "timed-out"),
            (ProbeSilent("a", Silence.BROKEN), "broken"),
            (ProbeSilent("a", Silence.BROKEN, "TLS: expired"), "broken: TLS: expired"),
        ):
            scene = static()
            self.assertEqual(scene.apply(miss), ())
            self.assertEqual(scene.apply(miss), (Unrouted("a", why),))
            self.assertEqual(scene.apply(miss), ())

    def test_in_a_row(self) -> None:
        """A good answer between two misses starts the count again."""
        scene = static()
        for event in (ProbeAnswered("a", 503), ProbeAnswered("a", 200), ProbeAnswered("a", 503)):
            self.assertEqual(scene.apply(event), ())
        self.assertTrue(scene.replica("a").ready)

    def test_one_success(self) -> None:
        """One good answer brings a replica back."""
        scene = static()
        scene.apply(ProbeAnswered("a", 200))
        scene.silence("a")
        self.assertEqual(scene.phases()["a"], "failed")
        self.assertEqual(scene.apply(ProbeAnswered("a", 200)), (Routed("a"),))
        self.assertEqual(scene.phases()["a"], "ready")

    def test_nothing_routable(self) -> None:
        """With everything out a request is rejected and counted."""
        scene = static("a")
        scene.silence("a")
        self.assertRaises(NoReplicaReady, scene.fleet.pick, Wish("s", "s"), scene.now)
        self.assertEqual(scene.view().rejected, 1)
        self.assertEqual((scene.view().ready, scene.view().failed), (0, 0))

    def test_busy_is_not_dead(self) -> None:
        """A probe that times out does not count while good traffic is at most the veto old."""
        scene = static("a", "b", veto=10.0)
        scene.ask()[1].release(good=True)
        scene.now += 10
        self.assertEqual(scene.silence("a", Silence.TIMED_OUT), ())
        self.assertTrue(scene.replica("a").ready)
        scene.now += 0.1
        scene.silence("a", Silence.TIMED_OUT)
        self.assertFalse(scene.replica("a").ready)

    def test_refusal_is_not_excused(self) -> None:
        """Good traffic excuses only a probe that timed out."""
        scene = static("a")
        scene.ask()[1].release(good=True)
        scene.silence("a", Silence.REFUSED)
        self.assertFalse(scene.replica("a").ready)

    def test_veto_off(self) -> None:
        """Without the veto a probe that timed out counts at once."""
        scene = static("a", veto=0.0)
        scene.ask()[1].release(good=True)
        scene.silence("a", Silence.TIMED_OUT)
        self.assertFalse(scene.replica("a").ready)

    def test_strangers(self) -> None:
        """Verdicts on a replica that is gone change nothing."""
        scene = static("a")
        self.assertEqual(scene.apply(ProbeAnswered("gone", 200)), ())
        self.assertEqual(scene.apply(ProbeSilent("gone", Silence.REFUSED)), ())

    def test_time_in_phase(self) -> None:
        """A view says how long a static replica has been in its phase, once that is known."""
        scene = static("a")
        self.assertIsNone(scene.replica("a").age)
        scene.apply(ProbeAnswered("a", 200))
        scene.apply(ProbeAnswered("a", 200), after=5)
        self.assertEqual(scene.replica("a").age, 5)
        scene.silence("a")
        scene.now += 7
        self.assertEqual(scene.replica("a").age, 7)


class RetirableTests(SynchronousTestCase):
    def test_static(self) -> None:
        """A static replica is never stopped."""
        scene = static("a")
        self.assertRaises(Conflict, scene.fleet.retirable, "a")
        self.assertEqual(scene.apply(Retire("a")), ())
        self.assertEqual(scene.phases(), {"a": "starting"})

    def test_unknown(self) -> None:
        """There is nothing to retire under an unknown name, nor on a free slot."""
        scene = Scene()
        self.assertRaises(NotFound, scene.fleet.retirable, "x")
        self.assertRaises(NotFound, scene.fleet.retirable, "node-d0")

    def test_owned(self) -> None:
        """A launched replica is retired by its instance."""
        scene = Scene()
        instance = scene.serve("node-d0")
        self.assertEqual(scene.fleet.retirable("node-d0"), instance)


class PinRecordTests(SynchronousTestCase):
    def test_there_and_back(self) -> None:
        """Pins survive a restart as idle times, in their order, whatever the new clock says."""
        scene = static("a", "b")
        homes = {}
        for session in ("s1", "s2", "s3"):
            choice, lease = scene.ask(session)
            lease.release()
            homes[session] = choice.member.name
            scene.now += 10
        records = [pin.record(scene.now) for pin in scene.pins]
        self.assertEqual([(r.session, r.idle) for r in records], [("s1", 30.0), ("s2", 20.0), ("s3", 10.0)])
        later = static("a", "b")
        later.now = 5.0
        self.assertEqual(later.fleet.restore_pins(records, later.now), 3)
        self.assertEqual([pin.record(later.now) for pin in later.pins], records)
        for session, home in homes.items():
            choice, _ = later.ask(session)
            self.assertEqual((choice.reason, choice.member.name), (Reason.PINNED, home))

    def test_only_to_who_is_here(self) -> None:
        """Pins of replicas that did not come back are dropped, expired ones too."""
        scene = static("a")
        restored = scene.fleet.restore_pins(
            (PinRecord("s", "gone", 1.0), PinRecord("t", "a", 601.0), PinRecord("u", "a", 1.0)), scene.now
        )
        self.assertEqual(restored, 1)
        self.assertEqual([pin.session for pin in scene.pins], ["u"])

    def test_reclaimed_homes(self) -> None:
        """Pins to reclaimed replicas are restored before anybody knows whether these answer."""
        scene = Scene()
        scene.reclaim(record_of("old"))
        self.assertEqual(scene.fleet.restore_pins((PinRecord("s", "old", 1.0),), scene.now), 1)


class PhaseTests(SynchronousTestCase):
    def test_words(self) -> None:
        """The manual's four words."""
        self.assertEqual([phase.value for phase in Phase], ["starting", "ready", "draining", "failed"])
