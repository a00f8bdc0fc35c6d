"""A slot that loses every replica, from the first loss until it is given up."""

from __future__ import annotations

from twisted_router.core.effects import Grow, ProbeAnswered
from twisted_router.errors import LaunchFailed

from .fakes import KeeperTestCase


class AbandonmentTests(KeeperTestCase):
    """Three losses in a row."""

    def lose(self, instance: str) -> None:
        """A replica gets ready, and its process ends."""
        self.keeper.apply(ProbeAnswered(instance, 200))
        self.here.watching[instance].callback("exited with code 137")

    def launches(self) -> list[object]:
        return [instance for _, _, instance in self.here.did("launch")]

    def give_up(self) -> None:
        self.keeper.apply(Grow("d1"))
        self.lose("i1")
        self.clock.advance(10.0)
        self.lose("i2")
        self.clock.advance(20.0)
        self.lose("i3")

    def test_doubled_waits(self) -> None:
        """10 s to the second attempt, 20 s to the third."""
        self.keeper.apply(Grow("d1"))
        self.lose("i1")
        self.clock.advance(9.9)
        self.assertEqual(self.launches(), ["i1"])
        self.clock.advance(0.1)
        self.assertEqual(self.launches(), ["i1", "i2"])
        self.lose("i2")
        self.clock.advance(19.9)
        self.assertEqual(self.launches(), ["i1", "i2"])
        self.clock.advance(0.1)
        self.assertEqual(self.launches(), ["i1", "i2", "i3"])

    def test_given_up(self) -> None:
        """After the third the slot is free and abandoned, not launched on again, and no longer on record."""
        self.give_up()
        capacity = self.fleet.snapshot(0.0).capacity
        self.assertEqual(capacity.abandoned, ("d1",))
        self.assertIn("d1", capacity.free_slots)
        self.assertEqual([record.slot for record in self.store.saved[-1].slots], [])
        self.clock.advance(3600.0)
        self.assertEqual(self.launches(), ["i1", "i2", "i3"])

    def test_failed_replacement_counts(self) -> None:
        """A replacement that could not be launched is a loss like any other."""
        self.keeper.apply(Grow("d1"))
        self.lose("i1")
        self.here.at_once = False
        self.clock.advance(10.0)
        self.here.launching["i2"].errback(LaunchFailed("the card is gone"))
        self.clock.advance(20.0)
        self.here.launching["i3"].errback(LaunchFailed("the card is gone"))
        self.assertEqual(self.fleet.snapshot(0.0).capacity.abandoned, ("d1",))

    def test_a_person_uses_it(self) -> None:
        """A person who names it gets it, and the count begins anew."""
        self.give_up()
        self.successResultOf(self.admin.grow("d1"))
        self.lose("i4")
        self.assertEqual(self.fleet.snapshot(0.0).capacity.abandoned, ())
        self.clock.advance(10.0)
        self.assertEqual(self.launches()[-1], "i5")
