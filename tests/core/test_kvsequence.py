"""Numbered messages: gaps, repetitions, restarts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.fuzz.profile import effort
from twisted_router.core.kvsequence import (
    HELD_MOST,
    REPLAY_MOST,
    REPLAY_PAUSE,
    Apply,
    Ask,
    Following,
    Missed,
    Restarted,
)


def payload(number: int) -> bytes:
    return b"%d" % number


class FollowingTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.following = Following(can_ask=True)

    def hear(self, *numbers: int, now: float = 0.0) -> list[object]:
        return [step for number in numbers for step in self.following.heard(number, payload(number), now)]

    def repeat(self, *numbers: int) -> list[object]:
        return [step for number in numbers for step in self.following.replayed(number, payload(number))]

    def applied(self, *numbers: int) -> list[object]:
        return [Apply(payload(number)) for number in numbers]


class OrderTests(FollowingTestCase):
    def test_in_order(self) -> None:
        """What comes in its order is applied."""
        self.assertEqual(self.hear(0, 1, 2), self.applied(0, 1, 2))

    def test_gap(self) -> None:
        """What is missing is asked for, and what comes meanwhile waits for it."""
        self.hear(0)
        self.assertEqual(self.hear(3, 4), [Ask(1)])
        self.assertEqual(self.repeat(1, 2, 3), self.applied(1, 2, 3))
        self.assertEqual(list(self.following.replay_over()), self.applied(4))
        self.assertEqual(self.hear(5), self.applied(5))

    def test_late_twin(self) -> None:
        """A message that was repeated before it was heard is no restart, and not applied again."""
        self.hear(0, 2)
        self.repeat(1, 2, 3)
        self.following.replay_over()
        self.assertEqual(self.hear(3, 4), self.applied(4))

    def test_joining(self) -> None:
        """Who comes late asks for the beginning."""
        self.assertEqual(self.hear(5), [Ask(0)])

    def test_joining_much_too_late(self) -> None:
        """Too much is not asked for: live messages would wait behind it."""
        self.assertEqual(
            self.hear(REPLAY_MOST + 1), [Missed(REPLAY_MOST + 1), *self.applied(REPLAY_MOST + 1)]
        )

    def test_none_repeats(self) -> None:
        """Where nothing is repeated, a gap is a loss."""
        self.following = Following(can_ask=False)
        self.assertEqual(self.hear(0, 3), [*self.applied(0), Missed(2), *self.applied(3)])

    def test_short_memory(self) -> None:
        """What the publisher no longer has is lost."""
        self.hear(0, 5)
        self.assertEqual(self.repeat(3, 4), [Missed(2), *self.applied(3, 4)])

    def test_no_answer(self) -> None:
        """Where nobody answers, what is missing is lost and what waited is applied."""
        self.hear(0, 3, 4)
        self.assertEqual(list(self.following.replay_over()), [Missed(2), *self.applied(3, 4)])

    def test_pause(self) -> None:
        """One who loses messages all the time does not ask all the time."""
        self.hear(0, 2)
        self.following.replay_over()
        self.assertEqual(self.hear(4, now=REPLAY_PAUSE - 1), [Missed(1), *self.applied(4)])
        self.assertEqual(self.hear(6, now=REPLAY_PAUSE), [Ask(5)])

    def test_endless_replay(self) -> None:
        """What waits for a repetition is bounded."""
        self.hear(0)
        steps = self.hear(*range(2, HELD_MOST + 3))
        self.assertEqual(steps[:3], [Ask(1), Missed(1), *self.applied(2)])
        self.assertEqual(self.hear(HELD_MOST + 3), self.applied(HELD_MOST + 3))

    def test_unasked(self) -> None:
        """What is repeated to one who does not wait for it is left aside."""
        self.hear(0)
        self.assertEqual(self.repeat(1), [])


class RestartTests(FollowingTestCase):
    def test_restart(self) -> None:
        """A number that goes back, or comes again, is another process's."""
        self.hear(0, 1)
        self.assertEqual(self.hear(0, 1), [Restarted(), *self.applied(0, 1)])
        self.assertEqual(self.hear(1), [Restarted(), Ask(0)])

    def test_restart_missed(self) -> None:
        """The beginning of the new one is asked for."""
        self.hear(*range(10))
        self.assertEqual(self.hear(2), [Restarted(), Ask(0)])

    def test_restart_while_asking(self) -> None:
        """What waited for the old one is dropped."""
        self.hear(0, 5)
        self.assertEqual(self.hear(0), [Restarted(), *self.applied(0)])
        self.assertEqual(self.following.replay_over(), ())

    @effort(300)
    @given(st.lists(st.integers(0, 12), max_size=40), st.lists(st.booleans(), min_size=40, max_size=40))
    def test_never_backwards(self, numbers: list[int], ends: list[bool]) -> None:
        """Between two restarts nothing is applied twice or out of order, whatever comes in."""
        following, last = Following(can_ask=True), -1
        for at, number in enumerate(numbers):
            steps = list(following.heard(number, payload(number), at * REPLAY_PAUSE))
            if ends[at]:
                steps += [*following.replayed(number - 1, payload(number - 1)), *following.replay_over()]
            for step in steps:
                if isinstance(step, Restarted):
                    last = -1
                elif isinstance(step, Apply):
                    self.assertGreater(int(step.payload), last)
                    last = int(step.payload)
