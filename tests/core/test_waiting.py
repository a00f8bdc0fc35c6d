"""Who waits, in which order, for how long."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.core.waiting import LOOK, Hold, WaitingRoom


def always(_):
    return True


class WaitingRoomTests(SynchronousTestCase):
    def enter(self, room, what, rank=0, patience=60.0, now=0.0):
        return room.enter(what, Hold.COLD, now, patience, rank)

    def take_all(self, room):
        taken = []
        while (waiter := room.take(always)) is not None:
            taken.append(waiter.what)
        return taken

    def test_order_of_arrival(self):
        """Equals go in the order they came."""
        room = WaitingRoom(10)
        for what in "abc":
            self.enter(room, what)
        self.assertEqual(self.take_all(room), ["a", "b", "c"])

    def test_rank(self):
        """Smaller ranks go first."""
        room = WaitingRoom(10)
        for what, rank in (("new", 0), ("old", -5), ("older", -9), ("old too", -5)):
            self.enter(room, what, rank)
        self.assertEqual(self.take_all(room), ["older", "old", "old too", "new"])

    def test_bounded(self):
        """A full room lets nobody in until somebody left; a room of size 0 never does."""
        room = WaitingRoom(2)
        first = self.enter(room, "a")
        self.enter(room, "b")
        self.assertIsNone(self.enter(room, "c"))
        room.leave(first)
        self.assertIsNotNone(self.enter(room, "c"))
        self.assertIsNone(self.enter(WaitingRoom(0), "a"))

    def test_leave_once(self):
        """Leaving twice frees one place."""
        room = WaitingRoom(2)
        waiter = self.enter(room, "a")
        self.enter(room, "b")
        self.assertTrue(room.leave(waiter))
        self.assertFalse(room.leave(waiter))
        self.assertEqual(len(room), 1)

    def test_not_admitted(self):
        """One that cannot go yet does not stop those behind it, and keeps its place."""
        room = WaitingRoom(10)
        for what in ("big", "small"):
            self.enter(room, what)
        self.assertEqual(room.take(lambda what: what == "small").what, "small")
        self.assertIsNone(room.take(lambda what: what == "small"))
        self.assertEqual(self.take_all(room), ["big"])

    def test_look_is_bounded(self):
        """However many wait, only those at the front are asked."""
        room = WaitingRoom(1000)
        for number in range(1000):
            self.enter(room, number, rank=number // 20)
        asked = []
        room.take(lambda what: asked.append(what))
        self.assertEqual(asked, list(range(LOOK)))

    def test_expire(self):
        """At its deadline a waiter is handed back, the earliest first; the others stay."""
        room = WaitingRoom(10)
        self.enter(room, "late", patience=20.0)
        self.enter(room, "soon", patience=5.0)
        self.enter(room, "later", patience=60.0)
        self.assertEqual(room.next_deadline(), 5.0)
        self.assertEqual(room.expire(4.9), [])
        self.assertEqual([waiter.what for waiter in room.expire(20.0)], ["soon", "late"])
        self.assertEqual(room.next_deadline(), 60.0)
        self.assertEqual(len(room), 1)

    def test_expired_ones_left(self):
        """Who has left has no deadline."""
        room = WaitingRoom(10)
        room.leave(self.enter(room, "a"))
        self.assertIsNone(room.next_deadline())
        self.assertEqual(room.expire(1000.0), [])

    def test_half_of_ten_thousand(self):
        """Ten thousand queue, half of them leave: the others go in order, and nothing is kept."""
        room = WaitingRoom(10_000)
        waiters = [self.enter(room, number) for number in range(10_000)]
        for waiter in waiters[::2]:
            room.leave(waiter)
        self.assertEqual(self.take_all(room), list(range(1, 10_000, 2)))
        self.assertEqual(len(room), 0)
        self.assertLessEqual(len(room._deadlines), 64)
        self.assertEqual(room._ranks, {})
