"""Fingerprints corrected by what replicas tell of their caches."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.config.model import Settings
from twisted_router.core.kvevents import Cleared, KvEvent, Removed, Stored
from twisted_router.core.policies.gate import Gate
from twisted_router.core.policies.informed import Followed, Informed
from twisted_router.core.policies.registry import inform, make_policy, policy_of
from twisted_router.core.policies.vocabulary import Ask, Outcome, Reason
from twisted_router.core.policies.work import Work
from twisted_router.core.prefix import CHUNK, Prompt

PROMPT = Prompt(3 * CHUNK, (10, 20, 30), 1)
SERVED = Outcome(True, 1536, 0, 1)
FAILED = Outcome(False)


class Place:
    """A candidate."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self.outstanding = 0


A, B = Place("a"), Place("b")


class InformedTestCase(SynchronousTestCase):
    name = "work"

    def setUp(self) -> None:
        self.behind = make_policy(self.name)
        self.policy, self.informed = inform(self.behind)
        self.informed.listen("a")

    def send(self, place: Place = A, now: float = 0.0, prompt: Prompt = PROMPT) -> Followed:
        ask = Ask(None, None, now, prompt)
        self.policy.choose(ask, (A, B))
        trace = self.policy.observe(ask, place, Reason.COLD_PREFIX)
        assert isinstance(trace, Followed)
        trace.first_byte(now + 0.5)
        return trace

    def tell(self, *events: KvEvent, instance: str = "a", now: float = 1.0) -> tuple[int, int]:
        return self.informed.told(instance, events, now)

    def store(self, count: int = 12) -> None:
        self.tell(Stored(tuple(range(1, count + 1)), None, 128))

    def serve(self) -> None:
        trace = self.send()
        self.store()
        trace.ended(2.0, SERVED)

    def warm(self, instance: str = "a") -> int:
        """Leading chunks believed to be on a replica."""
        seat = self.behind.seat(instance)  # type: ignore[attr-defined]
        return int(self.behind.index.look(PROMPT.chain).on(seat.bit))  # type: ignore[attr-defined]


class CorrectionTests(InformedTestCase):
    """With ``work``, which writes fingerprints when it sends."""

    def test_evicted(self) -> None:
        """Text whose blocks were removed is no longer believed to be there; what is before it is."""
        self.serve()
        self.assertEqual(self.warm(), 3)
        self.assertEqual(self.tell(Removed((12, 11, 10, 9, 8))), (2, 1))
        self.assertEqual(self.warm(), 1)

    def test_elsewhere(self) -> None:
        """What one replica has lost, another still has."""
        self.send(B).ended(1.0, SERVED)
        self.serve()
        self.tell(Removed((1,)))
        self.assertEqual((self.warm("a"), self.warm("b")), (0, 3))

    def test_placed(self) -> None:
        """The next request with that text goes where the text still is."""
        self.send(B).ended(1.0, SERVED)
        self.serve()
        self.tell(Removed(tuple(range(1, 13))))
        (position, reason) = self.policy.choose(Ask("new", None, 9.0, PROMPT), (A, B))
        self.assertEqual((position, reason), (1, Reason.WARM_PREFIX))

    def test_cleared(self) -> None:
        """After a reset nothing is believed to be there."""
        self.serve()
        self.tell(Cleared())
        self.assertEqual(self.warm(), 0)

    def test_restarted(self) -> None:
        """Nor after a restart."""
        self.serve()
        self.informed.emptied("a")
        self.assertEqual(self.warm(), 0)

    def test_failed(self) -> None:
        """A request that failed leaves behind what was computed until then."""
        trace = self.send()
        self.store(9)
        trace.ended(2.0, FAILED)
        self.assertEqual(self.warm(), 2)

    def test_failed_before(self) -> None:
        """Where no block came in, a request that failed has left nothing, as without events."""
        self.send().ended(2.0, FAILED)
        self.assertEqual(self.warm(), 0)

    def test_late(self) -> None:
        """Events that come after the answer count as well."""
        self.send().ended(2.0, SERVED)
        self.assertEqual(self.tell(Stored(tuple(range(1, 13)), None, 128), now=2.5), (0, 1))

    def test_missed(self) -> None:
        """After a loss of events the blocks are unknown, and what was sent is believed as without events."""
        self.serve()
        self.informed.missed("a")
        self.assertEqual((self.tell(Removed((12,))), self.warm()), ((0, 1), 3))

    def test_distrusted(self) -> None:
        """Whoever is not believed changes nothing, until it is listened to again."""
        self.serve()
        self.informed.distrust("a")
        self.assertEqual(self.tell(Cleared()), (0, 0))
        self.assertEqual(self.warm(), 3)
        self.informed.listen("a")
        self.tell(Cleared())
        self.assertEqual(self.warm(), 0)

    def test_not_listened_to(self) -> None:
        """A replica without events is left as it is."""
        self.send(B).ended(1.0, SERVED)
        self.assertEqual(self.tell(Cleared(), instance="b"), (0, 0))
        self.informed.emptied("b")
        self.informed.missed("b")
        self.assertEqual(self.warm("b"), 3)

    def test_gone_meanwhile(self) -> None:
        """A request that outlives the trust in its replica changes nothing."""
        trace = self.send()
        self.informed.distrust("a")
        trace.ended(2.0, SERVED)
        self.assertEqual(self.warm(), 3)

    def test_gone(self) -> None:
        """A replica that is gone is listened to no more, and its place in the index is free."""
        self.serve()
        self.policy.replica_gone("a")
        self.assertEqual(self.tell(Cleared()), (0, 0))

    def test_density(self) -> None:
        """How many tokens text has is learned, and tells runs apart where answers say nothing."""
        for _ in range(100):
            self.send(prompt=Prompt(1000, ())).ended(0.0, Outcome(True, 10_000, 0, 1))
        trace = self.send()
        self.store(480)
        trace.ended(2.0, Outcome(True))
        self.assertEqual(self.tell(Removed((470,))), (1, 1))


class EveryTests(SynchronousTestCase):
    """Policies that keep fingerprints, and those that do not."""

    def test_all(self) -> None:
        """Each one that reads text takes corrections."""
        for name in ("work", "prefix", "load", "kv", "kv_session_affinity", "program", "thunderagent"):
            policy, informed = inform(make_policy(name))
            self.assertIsInstance(informed, Informed, name)
            self.assertTrue(policy.wants_prompt)

    def test_none(self) -> None:
        """The others say which ones would."""
        error = self.assertRaises(ValueError, inform, make_policy("session"))
        self.assertIn("work, prefix, load, kv", str(error))

    def test_gated(self) -> None:
        """Behind a gate, which stays in front and still knows its conversations."""
        policy, informed = inform(policy_of(Settings(policy="work", gate=True)))
        assert isinstance(policy, Gate)
        self.assertIs(policy.policy, informed)
        policy.report_capacity("a", 1000.0)
        ask = Ask("s", None, 0.0, PROMPT)
        trace = policy.observe(ask, A, Reason.COLD_PREFIX)
        self.assertGreater(policy.footprint("a"), 0.0)
        assert trace is not None
        trace.first_byte(0.5)
        trace.ended(1.0, SERVED)
        self.assertTrue(policy.admits(Ask("s", None, 2.0, PROMPT), (A,)))
        policy.session_ended("s")
        self.assertEqual(policy.footprint("a"), 0.0)


class KvTests(InformedTestCase):
    """With ``kv``, which writes fingerprints at the first byte."""

    name = "kv"

    def test_evicted(self) -> None:
        """Removed text is forgotten."""
        self.serve()
        self.tell(Removed((12,)))
        self.assertEqual(self.warm(), 2)


class PrefixTests(KvTests):
    """With ``prefix``, which writes them when the answer is whole."""

    name = "prefix"


class OffTests(SynchronousTestCase):
    def test_off(self) -> None:
        """Unless asked for, nothing stands between the fleet and its policy."""
        self.assertIs(type(policy_of(Settings(policy="work"))), Work)
