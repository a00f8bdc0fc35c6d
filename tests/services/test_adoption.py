from __future__ import annotations

from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectionRefusedError

from tests.services.fakes import KeeperTestCase, handle_of
from twisted_router.core.effects import Phase, ProbeAnswered
from twisted_router.core.members import Member
from twisted_router.core.records import FleetRecord, LaunchTime, PinRecord, Reservation, SlotRecord
from twisted_router.core.wish import Wish
from twisted_router.errors import Conflict, StateFileError
from twisted_router.services.adoption import Adoption
from twisted_router.services.presence import Presence

TIMEOUT = 5.0


def record(slot: str, port: int, instance: str, **more: object) -> SlotRecord:
    handle = handle_of(slot, instance)
    return SlotRecord(slot, instance, (port - 8000,), "127.0.0.1", port, handle, **more)  # type: ignore[arg-type]


class AdoptionTestCase(KeeperTestCase):
    initial = 1

    def setUp(self) -> None:
        super().setUp()
        self.adoption = Adoption(
            self.fleet,
            self.keeper,
            self.store,
            self.probe,
            self.knock,
            self.clock,
            self.clock.seconds,
            timeout=TIMEOUT,
        )
        self.asked: dict[str, Deferred[int]] = {}

    def probe(self, member: Member) -> Deferred[int]:
        self.asked[member.name] = Deferred()
        return self.asked[member.name]

    def crashed(self, *slots: SlotRecord, pins: tuple[PinRecord, ...] = ()) -> None:
        """An earlier router has left this behind."""
        self.store.saved.append(FleetRecord(slots))
        self.store.pins = pins

    def phases(self) -> dict[str, Phase]:
        return {view.name: view.phase for view in self.fleet.snapshot(0.0).replicas if view.owned}


class Reclaiming(AdoptionTestCase):
    def test_before_anything_is_asked(self) -> None:
        """Recorded slots are taken at once: nothing is probed, nothing launched, nothing free by accident."""
        self.crashed(record("d1", 8001, "a"), record("d2", 8002, "b"))
        self.adoption.reclaim()
        self.assertEqual((self.asked, self.here.journal), ({}, []))
        self.assertEqual(self.fleet.snapshot(0.0).capacity.free_slots, ("far-d1",))
        self.failureResultOf(self.admin.grow("d1"), Conflict)

    def test_locked(self) -> None:
        """The file is locked before it is read."""
        self.adoption.reclaim()
        self.assertTrue(self.store.locked)

    def test_unusable_file(self) -> None:
        """A file that cannot be used ends the start with nothing taken."""

        def load() -> FleetRecord:
            raise StateFileError("damaged")

        self.store.load = load  # type: ignore[method-assign]
        self.assertRaises(StateFileError, self.adoption.reclaim)
        self.assertEqual((self.names(), self.store.saved), ([], []))

    def test_reservations(self) -> None:
        """What was reserved stays reserved, with its reason, and is not asked."""
        self.crashed(record("d1", 8001, "a", reason=Reservation.STOP_UNCONFIRMED, why="it hangs", age=99.0))
        self.adoption.reclaim()
        self.successResultOf(self.adoption.adopt())
        self.assertEqual((self.reserved(), self.why()), ([("d1", "stop-unconfirmed")], "it hangs"))
        self.assertEqual(self.asked, {})

    def test_slot_left_the_config(self) -> None:
        """A recorded slot that the configuration has lost is reported and left alone, but not forgotten."""
        self.crashed(record("old-d7", 8007, "a"))
        self.adoption.reclaim()
        self.successResultOf(self.adoption.adopt())
        self.assertEqual(self.reserved(), [("old-d7", "slot-left-config")])
        self.assertEqual([slot.slot for slot in self.store.saved[-1].slots], ["d1", "old-d7"])
        self.assertEqual(self.here.did("stop"), [])

    def test_launch_times(self) -> None:
        """How long launches took is known again."""
        times = (LaunchTime("here", "m", 130.0),)
        self.store.saved.append(FleetRecord((), times))
        self.adoption.reclaim()
        self.assertEqual(self.fleet.record(0.0).launch_times, times)


class Adopting(AdoptionTestCase):
    def test_healthy(self) -> None:
        """Health 200: adopted, routable at once, watched, and launched by nobody."""
        self.crashed(record("d1", 8001, "a"))
        self.adoption.reclaim()
        adopted = self.adoption.adopt()
        self.assertNoResult(adopted)
        self.asked["d1"].callback(200)
        self.successResultOf(adopted)
        self.assertEqual(self.phases(), {"d1": Phase.READY})
        self.assertEqual((self.here.did("watch"), self.here.did("launch")), ([("watch", "d1", "a")], []))

    def test_other_answer(self) -> None:
        """Anything else that answers: adopted, not routable until a probe is good."""
        self.crashed(record("d1", 8001, "a"))
        self.adoption.reclaim()
        self.adoption.adopt()
        self.asked["d1"].callback(503)
        self.assertEqual(self.phases(), {"d1": Phase.STARTING})
        self.keeper.apply(ProbeAnswered("a", 200))
        self.assertEqual(self.phases(), {"d1": Phase.READY})

    def test_listens_but_hangs(self) -> None:
        """One that accepts a connection and says nothing is there: adopted, not routable."""
        self.crashed(record("d1", 8001, "a"))
        self.present["127.0.0.1", 8001] = Presence.PRESENT
        self.adoption.reclaim()
        adopted = self.adoption.adopt()
        self.clock.advance(TIMEOUT)
        self.successResultOf(adopted)
        self.assertEqual(self.phases(), {"d1": Phase.STARTING})

    def test_nothing_answers(self) -> None:
        """Nothing answers: not adopted, the slot stays reserved, in the file too, and is not launched on."""
        self.crashed(record("d1", 8001, "a"))
        self.present["127.0.0.1", 8001] = Presence.UNKNOWN
        self.adoption.reclaim()
        adopted = self.adoption.adopt()
        self.asked["d1"].errback(ConnectionRefusedError())
        self.successResultOf(adopted)
        self.assertEqual(self.reserved(), [("d1", "unreachable-at-startup")])
        self.assertEqual(self.store.saved[-1].slots[0].reason, Reservation.UNREACHABLE)
        self.assertEqual(self.here.did("stop"), [])

    def test_a_hang_delays_nobody(self) -> None:
        """A host that hangs delays neither another's adoption nor anything beyond its own bound."""
        self.crashed(record("d1", 8001, "a"), record("d2", 8002, "b"))
        self.adoption.reclaim()
        adopted = self.adoption.adopt()
        self.asked["d2"].callback(200)
        self.assertEqual(self.phases()["d2"], Phase.READY)
        self.assertNoResult(adopted)
        self.clock.advance(TIMEOUT)
        self.successResultOf(adopted)
        self.assertEqual(self.reserved(), [("d1", "unreachable-at-startup")])

    def test_broken_probe(self) -> None:
        """A probe that breaks is no answer."""
        self.crashed(record("d1", 8001, "a"))
        self.adoption._probe = lambda member: fail(ValueError("odd"))
        self.adoption.reclaim()
        self.successResultOf(self.adoption.adopt())
        self.assertEqual(self.why(), "odd")


class Initial(AdoptionTestCase):
    initial = 2

    def test_first_start(self) -> None:
        """Without anything recorded the initial replicas are launched."""
        self.adoption.reclaim()
        self.successResultOf(self.adoption.adopt())
        self.assertEqual([entry[1] for entry in self.here.did("launch")], ["d1", "d2"])

    def test_adopted_ones_count(self) -> None:
        """Adopted replicas count towards the initial ones, and nothing is launched before each verdict."""
        self.crashed(record("d1", 8001, "a"))
        self.adoption.reclaim()
        self.adoption.adopt()
        self.assertEqual(self.here.did("launch"), [])
        self.asked["d1"].callback(200)
        self.assertEqual([entry[1] for entry in self.here.did("launch")], ["d2"])

    def test_stopped_meanwhile(self) -> None:
        """A router that stops while it adopts launches nothing more and stops what it took back."""
        self.crashed(record("d1", 8001, "a"))
        self.adoption.reclaim()
        self.adoption.adopt()
        stopped = self.keeper.stop_replicas()
        self.successResultOf(stopped)
        self.asked["d1"].callback(200)
        self.assertEqual((self.here.did("launch"), len(self.here.did("stop"))), ([], 1))


class Pinned(AdoptionTestCase):
    def test_restored(self) -> None:
        """Conversations return to their adopted or static replica, as idle as they were."""
        self.crashed(
            record("d1", 8001, "a"),
            pins=(PinRecord("s1", "a", 10.0), PinRecord("s2", "static", 0.0)),
        )
        self.adoption.reclaim()
        self.assertEqual(
            [(pin.session, pin.home, pin.last) for pin in self.pins],
            [("s1", "a", -10.0), ("s2", "static", 0.0)],
        )
        self.adoption.adopt()
        self.asked["d1"].callback(200)
        self.assertEqual(self.fleet.pick(Wish("s1", "s1"), 0.0).member.instance, "a")

    def test_home_gone(self) -> None:
        """Pins of a replica that was not adopted, or is unknown, are released."""
        self.crashed(record("d1", 8001, "a"), pins=(PinRecord("s1", "a", 0.0), PinRecord("s2", "z", 0.0)))
        self.adoption.reclaim()
        self.assertEqual([pin.session for pin in self.pins], ["s1"])
        self.adoption.adopt()
        self.asked["d1"].errback(ConnectionRefusedError())
        self.assertEqual(len(self.pins), 0)
