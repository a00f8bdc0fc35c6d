"""How many clients are let in."""

from __future__ import annotations

import json
import resource

from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tests.web.scene import OK, Caller, Router, post
from twisted_router.web.limits import Doors, Shut, raise_open_files


class Planning(SynchronousTestCase):
    """From the limit on open files to numbers."""

    def test_two_for_each(self) -> None:
        """Clients, their replicas' connections and the probes fit, with descriptors to spare."""
        for soft in (48, 256, 1024, 20_000, 1 << 20):
            for replicas in (1, 200):
                doors = Doors.of(None, soft, replicas)
                self.assertGreaterEqual(doors.most, 1)
                if soft > 2 * replicas:
                    self.assertLess(2 * doors.most + replicas + 13, doors.full)
                    self.assertLess(doors.full + doors.told, doors.shut + 1)
                if soft >= 1024:
                    self.assertGreater(2 * doors.most, soft // 2)
                self.assertTrue(doors.full < doors.shut < soft)

    def test_asked_for(self) -> None:
        """What the operator wants is taken, as far as there are descriptors; a warning says where not."""
        said: list[LogEvent] = []
        globalLogPublisher.addObserver(said.append)
        self.addCleanup(globalLogPublisher.removeObserver, said.append)
        self.assertEqual(Doors.of(7, 20_000, 1).most, 7)
        self.assertEqual(said, [])
        self.assertEqual(Doors.of(70_000, 1024, 1).most, Doors.of(None, 1024, 1).most)
        (warning,) = said
        self.assertIn("70000", formatEvent(warning))

    def test_raised(self) -> None:
        """The soft limit becomes the hard one; what it was is known only if it was another."""
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        low = min(256, before[1])
        resource.setrlimit(resource.RLIMIT_NOFILE, (low, before[1]))
        found = raise_open_files()
        self.assertEqual(resource.getrlimit(resource.RLIMIT_NOFILE), (before[1], before[1]))
        self.assertEqual((found.soft, found.original), (before[1], low))
        self.assertIsNone(raise_open_files().original)


class Counting(SynchronousTestCase):
    """One more, one fewer."""

    def test_most(self) -> None:
        """Beyond the most clients there is a reason, far beyond it not even that."""
        doors = Doors(2, 1000, 1100, 64)
        self.assertEqual([doors.enter(5), doors.enter(6)], [None, None])
        for _ in range(64):
            problem = doors.enter(7)
            self.assertIn("--max-connections", "" if problem is None else problem.message)
        with self.assertRaises(Shut):
            doors.enter(8)

    def test_left(self) -> None:
        """A client that leaves makes room for one."""
        doors = Doors(1, 1000, 1100, 64)
        doors.enter(5)
        self.assertIsNotNone(doors.enter(6))
        doors.leave()
        doors.leave()
        self.assertIsNone(doors.enter(6))

    def test_said_once(self) -> None:
        """The log says when it begins and when it is over, not how often it happens."""
        said: list[LogEvent] = []
        globalLogPublisher.addObserver(said.append)
        self.addCleanup(globalLogPublisher.removeObserver, said.append)
        doors = Doors(10, 1000, 1100, 64)
        for _ in range(60):
            doors.enter(5)
        for _ in range(60):
            doors.leave()
        self.assertEqual(
            [formatEvent(event) for event in said],
            [
                "turning clients away: 10 clients are connected already (--max-connections)",
                "clients are let in again: 9 are connected",
            ],
        )

    def test_descriptors(self) -> None:
        """A high descriptor is refused with a reason, a very high one without."""
        doors = Doors(100, 40, 44, 64)
        self.assertIsNone(doors.enter(39))
        problem = doors.enter(40)
        self.assertIn("descriptors", "" if problem is None else problem.message)
        with self.assertRaises(Shut):
            doors.enter(44)


class AtTheDoor(SynchronousTestCase):
    """What a client sees."""

    def setUp(self) -> None:
        self.router = Router("a", doors=Doors(2, 1000, 1100, 64))

    def assert_served(self, caller: Caller) -> None:
        before = len(caller.heard)
        caller.say(post())
        self.router.reply("a", OK)
        self.assertTrue(caller.heard[before:].startswith(b"HTTP/1.1 200 "), caller.heard)

    def test_turned_away(self) -> None:
        """One too many is told 503 and closed, without a request, and the others are served as ever."""
        first, second = self.router.call(), self.router.call()
        third = self.router.call()
        told = third.answer()
        self.assertEqual(
            (told.status, told.field("Retry-After"), told.field("Connection")), (503, "1", "close")
        )
        self.assertEqual(json.loads(told.body)["error"]["code"], "overloaded")
        self.assertTrue(third.line.half_closed)
        third.say(post())
        self.assertEqual(self.router.notes.begun, 0)
        self.assert_served(first)
        self.assert_served(second)

    def test_room_again(self) -> None:
        """Once a client and the one turned away have left, the next is served."""
        first, _, third = self.router.call(), self.router.call(), self.router.call()
        third.leave()
        first.leave()
        self.assert_served(self.router.call())

    def test_lingers(self) -> None:
        """One that is turned away and stays is cut off, and so is counted no longer."""
        self.router.call()
        self.router.call()
        third = self.router.call()
        self.router.clock.advance(5)
        self.router.clock.advance(0)
        self.assertTrue(third.line.aborted)
        self.assertEqual(self.router.site.doors.inside, 2)

    def test_crowd(self) -> None:
        """Of a crowd only some are told, the rest just closed; none stays counted."""
        callers = [self.router.call() for _ in range(200)]
        told = [caller for caller in callers if caller.heard]
        self.assertEqual((len(told), sum(caller.line.gone for caller in callers)), (64, 134))
        for caller in callers:
            caller.leave()
        self.assertEqual(self.router.site.doors.inside, 0)
