"""The working-set gate: who is held, who is let through, what frees room."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.core.policies.driver import Driver, prompt
from twisted_router.core.policies.conversations import Conversation
from twisted_router.core.policies.gate import Gate
from twisted_router.core.policies.kv import Kv
from twisted_router.core.policies.learning import Capacity
from twisted_router.core.policies.vocabulary import Ask, Outcome
from twisted_router.core.policies.work import Work

#: Tokens of one chunk, as long as nobody said otherwise.
TOKENS = 512


def ten(name, more=0):
    """A prompt of about 5,000 tokens."""
    return prompt((name, 10 + more), messages=1 + 2 * more)


class GateTests(SynchronousTestCase):
    def gate(self, capacity=13_000.0, count=1):
        self.driver = Driver.of(Gate(Work(), capacity), count)
        return self.driver.policy

    def admits(self, session, text, ahead=0):
        ask = Ask(session, None, self.driver.now, text)
        return self.driver.policy.admits(ask, self.driver.replicas, ahead)

    def test_fits(self):
        """Nobody is held while everything fits."""
        self.gate(1_000_000.0)
        for number in range(50):
            self.assertTrue(self.admits(f"s{number}", ten(number)))
            self.driver.serve(f"s{number}", ten(number))

    def test_full(self):
        """A conversation that no longer fits is held, one that is there already is not."""
        self.gate()
        self.driver.serve("a", ten("a"))
        self.assertTrue(self.admits("b", prompt(("b", 5))))
        self.driver.serve("b", prompt(("b", 5)))
        self.assertFalse(self.admits("c", ten("c")))
        self.assertTrue(self.admits("a", ten("a", 1)))

    def test_without_capacity(self):
        """Without a capacity nobody is held."""
        self.gate(0.0)
        for number in range(50):
            self.driver.serve(f"s{number}", ten(number))
        self.assertTrue(self.admits("one more", ten("more")))

    def test_reported(self):
        """A capacity a replica reports counts like a given one."""
        gate = self.gate(0.0)
        gate.report_capacity("r0", 6_000.0)
        self.driver.serve("a", ten("a"))
        self.assertFalse(self.admits("b", ten("b")))

    def test_learned_from_others(self):
        """A replica that has shown nothing yet is taken for what the others have shown."""
        gate = self.gate(0.0, count=2)
        for replica in self.driver.replicas:
            self.driver.send_to(replica, replica.instance, ten(replica.instance))
        self.assertIsNone(gate.capacity("r1"))
        for distance in range(0, 500, 10):
            gate._learned["r0"].sample(float(distance), distance < 250)
        self.assertEqual(gate.capacity("r1"), gate.capacity("r0"))
        gate.report_capacity("r1", 7.0)
        self.assertEqual(gate.capacity("r1"), 7.0)

    def test_idle_fleet(self):
        """An idle replica takes even what is larger than it."""
        self.gate(1_000.0)
        self.assertTrue(self.admits("a", ten("a")))

    def test_room_elsewhere(self):
        """One that is let in goes where there is room, whatever else speaks for another replica."""
        self.gate(count=2)
        full = self.driver.replicas[0]
        for session in ("a", "b"):
            sent = self.driver.send_to(full, session, ten("shared"))
            self.driver.first_byte(sent)
            self.driver.end(sent)
        other = self.driver.replicas[1]
        other.outstanding = 3
        self.driver.serve("d", prompt(("d", 9)))
        self.assertIs(self.driver.send("c", prompt(("c", 9))).replica, other)

    def test_window(self):
        """A conversation idle for more than a minute gives its room up."""
        self.gate()
        self.driver.serve("a", ten("a"))
        self.driver.serve("b", ten("b"))
        self.driver.now += 59.0
        self.assertFalse(self.admits("c", ten("c")))
        self.driver.now += 2.0
        self.assertTrue(self.admits("c", ten("c")))

    def test_ended(self):
        """One that its client called finished gives it up at once."""
        gate = self.gate()
        self.driver.serve("a", ten("a"))
        self.driver.serve("b", ten("b"))
        gate.session_ended("a")
        self.assertTrue(self.admits("c", ten("c")))

    def test_in_use_keeps_room(self):
        """One with a request in flight keeps its room however long that takes."""
        self.gate()
        self.driver.send("a", ten("a"))
        self.driver.send("b", ten("b"))
        self.driver.now += 1000.0
        self.assertFalse(self.admits("c", ten("c")))

    def test_no_overtaking(self):
        """A new conversation does not overtake those who wait."""
        self.gate()
        self.assertTrue(self.admits("a", ten("a")))
        self.assertFalse(self.admits("a", ten("a"), ahead=1))

    def test_parked(self):
        """An overfull replica gives up idle conversations, the smallest first; they are held next time."""
        self.gate()
        self.driver.serve("small", prompt(("small", 6)))
        self.driver.serve("large", prompt(("large", 12)))
        grown = self.driver.send("growing", prompt(("growing", 8)))
        self.driver.end(grown, Outcome(True, 4500, 0, 100))
        self.assertFalse(self.admits("small", prompt(("small", 7), messages=3)))
        self.assertTrue(self.admits("large", prompt(("large", 13), messages=3)))

    def test_bulk_is_never_held(self):
        """Requests that will have no second turn go through."""
        gate = self.gate()
        self.driver.serve("a", ten("a"))
        self.driver.serve("b", ten("b"))
        self.assertFalse(self.admits(None, ten("x")))
        gate.policy.follow_ups.value = 0.1
        self.assertTrue(self.admits(None, ten("x")))

    def test_rank(self):
        """Conversations with more turns behind them come first."""
        gate = self.gate()
        for turn in range(3):
            self.driver.serve("a", ten("a", turn))
        self.assertEqual(gate.rank(Ask("a", None, 0.0, ten("a", 3))), -3)
        self.assertEqual(gate.rank(Ask("new", None, 0.0, ten("new"))), 0)

    def test_lost_replica(self):
        """A lost replica leaves no footprint."""
        gate = self.gate(count=2)
        sent = self.driver.serve("a", ten("a"))
        self.driver.lose(sent.replica)
        self.assertEqual(gate.footprint(sent.replica.instance), 0.0)

    def test_shared_beginning(self):
        """What conversations share takes room once."""
        gate = self.gate(100_000.0)
        self.driver.serve("a", prompt(("system", 20), ("a", 1)))
        before = gate.footprint("r0")
        self.driver.serve("b", prompt(("system", 20), ("b", 1)))
        self.assertLess(gate.footprint("r0") - before, 3 * TOKENS)

    def test_two_homes(self):
        """A turn that ends where its conversation no longer lives leaves the footprint to the new home."""
        gate = self.gate(count=2)
        old, new = self.driver.replicas
        first = self.driver.send_to(old, "a", ten("a"))
        second = self.driver.send_to(new, "a", ten("a"))
        self.driver.end(second)
        self.driver.end(first)
        self.assertEqual(gate.footprint("r0"), 0.0)
        self.assertGreater(gate.footprint("r1"), 10 * TOKENS)

    def test_distance_counts_flights(self):
        """What is in flight has come into the cache already, for what is learned of its size."""
        gate = self.gate()
        self.driver.serve("a", ten("a"))
        self.driver.send("b", ten("b"))
        known = gate.policy.find(Ask("a", None, 0.0))
        self.assertGreater(gate._learned["r0"].distance(known), 19 * TOKENS)

    def test_over_kv(self):
        """The gate stands before any policy that tells conversations apart."""
        self.driver = Driver.of(Gate(Kv(1800.0), 6_000.0), 1)
        self.driver.serve("a", ten("a"))
        self.assertFalse(self.admits("b", ten("b")))
        self.assertTrue(self.admits("a", ten("a", 1)))
        self.assertTrue(self.admits(None, ten("x")))


class CapacityTests(SynchronousTestCase):
    def setUp(self):
        self.capacity = Capacity("r0")
        self.conversations = [Conversation(str(number), 0.0) for number in range(5)]

    def test_distance(self):
        """The distance of a turn is what came in since the one before, its own tokens included."""
        for conversation, tokens in zip(self.conversations, (10, 20, 30, 40, 50), strict=True):
            self.capacity.touch(conversation, tokens)
        self.assertEqual(self.capacity.distance(self.conversations[2]), 30 + 40 + 50)

    def test_in_flight(self):
        """Turns in flight here count wherever they began; those elsewhere do not."""
        for conversation in self.conversations:
            self.capacity.touch(conversation, 10)
        for conversation, home in zip(self.conversations, ("r0", "r1"), strict=False):
            conversation.inflight, conversation.home = 1, home
        self.assertEqual(self.capacity.distance(self.conversations[4]), 20)

    def test_unseen(self):
        """There is no distance to a turn that never was."""
        self.assertIsNone(self.capacity.distance(self.conversations[0]))

    def test_between(self):
        """The capacity is found between the turns that hit and those that missed."""
        for distance in range(0, 500, 10):
            self.capacity.sample(float(distance), distance < 250)
        self.assertGreaterEqual(self.capacity.value, 200.0)
        self.assertLessEqual(self.capacity.value, 260.0)

    def test_few_misses(self):
        """A miss or two say nothing yet."""
        for _ in range(3):
            self.capacity.sample(100.0, False)
        self.assertIsNone(self.capacity.value)
