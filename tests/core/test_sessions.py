from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.core.sessions import PIN_CAP, Pins, usable_id


class UsableIdTests(SynchronousTestCase):
    def test_safe_ids_stay(self) -> None:
        """Up to 128 characters of the safe alphabet are taken as they are."""
        for raw in (b"a", b"9f2c1b7e4a3d5061b8c2e7f04a1d9b63", b"A.b_c:d-e", b"x" * 128):
            self.assertEqual(usable_id(raw), raw.decode())

    def test_blank_is_absent(self) -> None:
        """An empty or blank id counts as none."""
        for raw in (b"", b" ", b"\t  "):
            self.assertIsNone(usable_id(raw))

    def test_padding_goes(self) -> None:
        """White space around an id is not part of it."""
        self.assertEqual(usable_id(b" abc\t"), "abc")

    def test_odd_ids_are_digested(self) -> None:
        """Any other id becomes a safe one, always the same for the same wish, so that affinity holds."""
        for raw in (b"x" * 129, b"a b", b"a\r\nb", "grüße".encode(), b"\xff\x00"):
            digest = usable_id(raw)
            assert digest is not None
            self.assertRegex(digest, r"\A[0-9a-f]{32}\Z")
            self.assertEqual(usable_id(raw), digest)

    def test_odd_ids_stay_apart(self) -> None:
        """Different odd ids become different safe ones."""
        self.assertNotEqual(usable_id(b"a b"), usable_id(b"a  b"))


class PinsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.pins = Pins(ttl=600.0, cap=3)

    def sessions(self) -> list[str]:
        return [pin.session for pin in self.pins]

    def test_idle_time_is_strict(self) -> None:
        """A pin lives through exactly its idle time and not a moment more."""
        self.pins.place("s", "r", 0.0)
        self.assertIsNotNone(self.pins.find("s", 600.0))
        self.assertIsNone(self.pins.find("s", 1200.1))
        self.assertEqual(len(self.pins), 0)

    def test_unknown_session(self) -> None:
        """A session nobody pinned has no pin."""
        self.assertIsNone(self.pins.find("s", 0.0))

    def test_in_flight_keeps_it(self) -> None:
        """A pin with a request under way does not expire, looked up or swept."""
        pin = self.pins.place("s", "r", 0.0)
        pin.inflight = 1
        self.assertEqual(self.pins.sweep(5000.0), 0)
        self.assertIs(self.pins.find("s", 9000.0), pin)

    def test_sweep_takes_the_expired(self) -> None:
        """A sweep forgets what has expired, and only that, and counts it."""
        self.pins.place("a", "r", 0.0)
        self.pins.place("b", "r", 1.0)
        self.pins.place("c", "r", 500.0)
        self.assertEqual(self.pins.sweep(700.0), 2)
        self.assertEqual(self.sessions(), ["c"])

    def test_sweep_of_everything(self) -> None:
        """A sweep may leave nothing."""
        self.pins.place("a", "r", 0.0)
        self.assertEqual(self.pins.sweep(700.0), 1)
        self.assertEqual(self.pins.sweep(700.0), 0)

    def test_least_recently_used_goes(self) -> None:
        """Beyond the cap the pin that was used longest ago goes."""
        for session in "abc":
            self.pins.place(session, "r", 0.0)
        self.pins.find("a", 1.0)
        self.pins.place("d", "r", 2.0)
        self.assertEqual(self.sessions(), ["c", "a", "d"])

    def test_the_100001st_pin(self) -> None:
        """At the cap of 100,000 one more pin evicts exactly the least recently used."""
        pins = Pins(ttl=600.0)
        for number in range(PIN_CAP):
            pins.place(f"s{number}", "r", 0.0)
        self.assertIsNotNone(pins.find("s0", 1.0))
        pins.place("one more", "r", 2.0)
        self.assertEqual(len(pins), 100_000)
        self.assertIsNotNone(pins.find("s0", 3.0))
        self.assertIsNone(pins.find("s1", 3.0))

    def test_expired_go_before_live(self) -> None:
        """An expired pin makes room before any live one has to."""
        self.pins.place("old", "r", 0.0)
        self.pins.place("a", "r", 601.0)
        self.pins.place("b", "r", 601.0)
        self.pins.place("c", "r", 601.0)
        self.assertEqual(self.sessions(), ["a", "b", "c"])

    def test_in_flight_is_not_evicted(self) -> None:
        """A pin with a request under way outlives idle ones at the cap."""
        for session in "abc":
            self.pins.place(session, "r", 0.0)
        busy = self.pins.find("a", 0.0)
        assert busy is not None
        busy.inflight = 1
        self.pins.find("b", 0.0)
        self.pins.find("c", 0.0)
        self.pins.place("d", "r", 1.0)
        self.assertEqual(self.sessions(), ["c", "d", "a"])

    def test_cap_holds_when_all_are_busy(self) -> None:
        """When every pin is in use the new one is not kept: the cap is a cap."""
        for session in "abc":
            self.pins.place(session, "r", 0.0).inflight = 1
        self.pins.place("d", "r", 1.0)
        self.assertEqual(sorted(self.sessions()), ["a", "b", "c"])

    def test_placing_again_moves(self) -> None:
        """A session has one pin: placing it again changes its home."""
        pin = self.pins.place("s", "r", 0.0)
        self.assertIs(self.pins.place("s", "other", 1.0), pin)
        self.assertEqual((pin.home, len(self.pins)), ("other", 1))

    def test_released_stays_gone(self) -> None:
        """The end of a request does not bring back a pin that was released meanwhile."""
        pin = self.pins.place("s", "r", 0.0)
        self.assertTrue(self.pins.release("s"))
        self.assertFalse(self.pins.release("s"))
        self.pins.touch(pin, 1.0)
        self.assertEqual(len(self.pins), 0)

    def test_release_home(self) -> None:
        """Every session of one replica is forgotten at once, no other."""
        self.pins.place("a", "r1", 0.0)
        self.pins.place("b", "r2", 0.0)
        self.pins.place("c", "r1", 0.0)
        self.assertEqual(self.pins.release_home("r1"), 2)
        self.assertEqual(self.sessions(), ["b"])

    def test_restore_goes_behind(self) -> None:
        """Restored pins are older than those already here and never replace one."""
        self.pins.place("new", "r1", 100.0)
        self.pins.restore("new", "r2", 50.0)
        self.pins.restore("b", "r2", 40.0)
        self.pins.restore("a", "r2", 30.0)
        self.pins.restore("beyond the cap", "r2", 20.0)
        self.assertEqual(
            [(pin.session, pin.home, pin.last) for pin in self.pins],
            [("a", "r2", 30.0), ("b", "r2", 40.0), ("new", "r1", 100.0)],
        )

    def test_newest(self) -> None:
        """The pin that was used last, while there is one."""
        self.assertIsNone(self.pins.newest())
        self.pins.place("a", "r", 0.0)
        self.pins.place("b", "r", 1.0)
        found = self.pins.find("a", 2.0)
        self.assertIs(self.pins.newest(), found)

    def test_copied(self) -> None:
        """A copy has every pin and stays as it is when one is released."""
        self.pins.place("a", "r", 0.0)
        self.pins.place("b", "r", 1.0)
        copied = self.pins.copied()
        self.pins.release("a")
        self.assertEqual(sorted(pin.session for pin in copied), ["a", "b"])
