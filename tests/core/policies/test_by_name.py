"""What each policy does that the others do not."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.core.policies.driver import Driver, prompt, spread
from twisted_router.config.model import Settings
from twisted_router.core.policies.cache_aware import CacheAware
from twisted_router.core.policies.consistent_hash import ConsistentHash
from twisted_router.core.policies.kv import Kv
from twisted_router.core.policies.least_conn import LeastConn
from twisted_router.core.policies.prefix_load import Basis, PrefixLoad
from twisted_router.core.policies.registry import policy_of
from twisted_router.core.policies.round_robin import RoundRobin
from twisted_router.core.policies.session import SessionAffinity
from twisted_router.core.policies.sticky_least_loaded import StickyLeastLoaded
from twisted_router.core.policies.vocabulary import Ask, Outcome, Reason


class SessionTests(SynchronousTestCase):
    def test_slack_boundary(self):
        """With the default slack of 8 a pin holds at 8 more outstanding requests and is lost at 9."""
        for excess, reason in ((8, Reason.PINNED), (9, Reason.OVER_SLACK)):
            driver = Driver.of(policy_of(Settings()))
            home = driver.serve("s").replica
            home.outstanding = excess
            sent = driver.send("s")
            self.assertIs(sent.reason, reason)
            self.assertEqual(sent.replica is home, reason is Reason.PINNED)

    def test_unroutable_home(self):
        """A pin to a replica that is not routable is no pin."""
        driver = Driver.of(SessionAffinity(8))
        driver.replicas.remove(driver.serve("s").replica)
        self.assertIs(driver.send("s").reason, Reason.HOME_GONE)


class LeastConnTests(SynchronousTestCase):
    def test_least(self):
        """The fewest requests in flight win, wherever they are in the list."""
        driver = Driver.of(LeastConn())
        for replica, load in zip(driver.replicas, (3, 2, 5, 4), strict=True):
            replica.outstanding = load
        self.assertEqual(driver.send("s").replica.instance, "r1")


class RoundRobinTests(SynchronousTestCase):
    def test_in_turn(self):
        """The load does not matter."""
        driver = Driver.of(RoundRobin())
        driver.replicas[1].outstanding = 50
        self.assertEqual([driver.send().replica.instance for _ in range(5)], ["r0", "r1", "r2", "r3", "r0"])


class ConsistentHashTests(SynchronousTestCase):
    def test_two_routers_agree(self):
        """Where a session goes depends on nothing but its id, not even on the order of the list."""
        one, other = Driver.of(ConsistentHash()), Driver.of(ConsistentHash())
        other.replicas.reverse()
        for number in range(50):
            self.assertEqual(
                one.send(f"s{number}").replica.instance, other.send(f"s{number}").replica.instance
            )

    def test_loss_moves_only_its_own(self):
        """Losing a replica leaves every other session where it was."""
        driver = Driver.of(ConsistentHash())
        before = {f"s{number}": driver.send(f"s{number}").replica for number in range(200)}
        lost = driver.replicas[2]
        driver.lose(lost)
        for session, home in before.items():
            if home is not lost:
                self.assertIs(driver.send(session).replica, home)

    def test_long_id(self):
        """An id longer than a hash key is hashed all the same."""
        self.assertIs(Driver.of(ConsistentHash()).send("x" * 128).reason, Reason.HASHED)


class CacheAwareTests(SynchronousTestCase):
    def test_balance(self):
        """The id decides up to 64 requests of difference, the load beyond."""
        driver = Driver.of(CacheAware())
        home = driver.serve("s").replica
        home.outstanding = 64
        self.assertIs(driver.serve("s").replica, home)
        home.outstanding = 65
        sent = driver.send("s")
        self.assertIs(sent.reason, Reason.IMBALANCED)
        self.assertIsNot(sent.replica, home)

    def test_relative_balance(self):
        """A difference that is small for the load there is does not count."""
        driver = Driver.of(CacheAware())
        home = driver.serve("s").replica
        for replica in driver.replicas:
            replica.outstanding = 200
        home.outstanding = 290
        self.assertIs(driver.send("s").reason, Reason.PINNED)

    def test_forgotten(self):
        """An id idle beyond its time is unknown again."""
        driver = Driver.of(CacheAware(ttl=10.0))
        driver.serve("s")
        driver.now = 10.5
        self.assertIs(driver.send("s").reason, Reason.UNKNOWN_SESSION)

    def test_in_use_is_not_forgotten(self):
        """A conversation with a request under way is never too old."""
        driver = Driver.of(CacheAware(ttl=10.0))
        driver.send("s")
        driver.now = 100.0
        self.assertIs(driver.send("s").reason, Reason.PINNED)

    def test_ended(self):
        """A conversation its client called finished is unknown."""
        driver = Driver.of(CacheAware())
        driver.serve("s")
        driver.policy.session_ended("s")
        self.assertIs(driver.send("s").reason, Reason.UNKNOWN_SESSION)


class StickyTests(SynchronousTestCase):
    def test_conversations_count_not_requests(self):
        """A new conversation goes where the fewest live, however many requests are in flight there."""
        driver = Driver.of(StickyLeastLoaded(), count=2)
        first = driver.serve("a").replica
        other = next(replica for replica in driver.replicas if replica is not first)
        other.outstanding = 9
        self.assertIs(driver.send("b").replica, other)

    def test_never_moves(self):
        """No load makes a conversation leave."""
        driver = Driver.of(StickyLeastLoaded())
        home = driver.serve("a").replica
        home.outstanding = 1000
        self.assertIs(driver.send("a").replica, home)

    def test_finished_makes_room(self):
        """A conversation that ended no longer counts."""
        driver = Driver.of(StickyLeastLoaded(), count=2)
        homes = [driver.serve(session).replica for session in "abcd"]
        driver.policy.session_ended("a")
        driver.policy.session_ended("c")
        self.assertIs(homes[0], homes[2])
        self.assertEqual({driver.serve(session).replica for session in "ef"}, {homes[0]})

    def test_idle_no_longer_counts(self):
        """Nor does one that was idle beyond its time."""
        driver = Driver.of(StickyLeastLoaded(ttl=10.0), count=2)
        first = driver.serve("a").replica
        driver.now = 5.0
        driver.serve("b")
        driver.now = 11.0
        self.assertIs(driver.send("c").replica, first)


class PrefixTests(SynchronousTestCase):
    def test_warm_prefix_wins(self):
        """A prompt returns to the replica that has answered its beginning."""
        driver = Driver.of(PrefixLoad())
        home = driver.serve(prompt=prompt(("p", 10))).replica
        for _ in range(5):
            sent = driver.serve(prompt=prompt(("p", 10), ("more", 1)))
            self.assertIs(sent.replica, home)
            self.assertIs(sent.reason, Reason.WARM_PREFIX)

    def test_load_outweighs(self):
        """Four chunks weigh as much as one unit of load."""
        for chunks, stays in ((3, False), (5, True)):
            driver = Driver.of(PrefixLoad(), count=2)
            home = driver.serve(prompt=prompt(("p", chunks))).replica
            driver.send(prompt=prompt(("p", chunks)))
            self.assertEqual(driver.send(prompt=prompt(("p", chunks))).replica is home, stays, chunks)

    def test_known_only_when_answered(self):
        """A prompt in flight warms nothing yet, nor does one that failed."""
        driver = Driver.of(PrefixLoad())
        text = prompt(("p", 20))
        sent = driver.send(prompt=text)
        self.assertIs(driver.send(prompt=text).reason, Reason.COLD_PREFIX)
        driver.end(sent, Outcome(False))
        self.assertIs(driver.send(prompt=text).reason, Reason.COLD_PREFIX)

    def test_cap(self):
        """Beyond 32 chunks more overlap earns nothing on the absolute basis, but does on the relative one."""
        for basis, stays in ((Basis.ABSOLUTE, False), (Basis.RELATIVE, True)):
            driver = Driver.of(PrefixLoad(basis), count=2)
            long, begin = prompt(("p", 32), ("q", 30)), prompt(("p", 32))
            home, other = driver.replicas
            driver.policy.observe(Ask(None, None, 0.0, prompt(("y", 1))), home, Reason.COLD_PREFIX)
            driver.serve_at(home, long)
            driver.serve_at(other, begin)
            self.assertEqual(driver.send(prompt=long).replica is home, stays, basis)

    def test_marginal(self):
        """On the marginal basis what everybody has is worth nothing, so load decides."""
        driver = Driver.of(PrefixLoad(Basis.MARGINAL), count=2)
        text = prompt(("p", 32))
        for replica in driver.replicas:
            driver.serve_at(replica, text)
        first = driver.send(prompt=text)
        self.assertIsNot(driver.send(prompt=text).replica, first.replica)

    def test_load_ignores_text(self):
        """Without a basis only uncached bytes in flight count."""
        driver = Driver.of(PrefixLoad(None), count=2)
        big = driver.send(prompt=prompt(("big", 100)))
        for number in range(5):
            self.assertIsNot(driver.send(prompt=prompt((number, 1))).replica, big.replica)


class KvTests(SynchronousTestCase):
    def test_context_drives_away(self):
        """A conversation leaves its warm replica when that holds one more long context than another."""
        driver = Driver.of(Kv(), count=2)
        home, other = driver.replicas
        driver.serve_at(home, prompt(("p", 30)))
        self.assertIs(driver.serve(prompt=prompt(("p", 30))).replica, home)
        driver.first_byte(driver.send_to(home, prompt=prompt(("q", 40))))
        self.assertIs(driver.send(prompt=prompt(("p", 30))).replica, other)

    def test_prefill_counts_until_first_byte(self):
        """Blocks to compute weigh until the first byte, blocks held until the end."""
        driver = Driver.of(Kv(), count=2)
        first = driver.send(prompt=prompt(("a", 10)))
        driver.first_byte(first)
        second = driver.send(prompt=prompt(("b", 9)))
        self.assertIsNot(second.replica, first.replica)
        self.assertIs(driver.send(prompt=prompt(("c", 1))).replica, first.replica)

    def test_bound(self):
        """With a time to live a conversation stays where its first turn went, whatever it costs."""
        driver = Driver.of(Kv(1800.0), count=2)
        home = driver.serve("s", prompt(("p", 5))).replica
        driver.now = 1000.0
        home.outstanding = 50
        self.assertIs(driver.serve("s", prompt(("p", 6))).reason, Reason.PINNED)
        driver.now = 3000.0
        self.assertIsNot(driver.send("s", prompt(("z", 5))).reason, Reason.PINNED)

    def test_ties(self):
        """Equal costs go around."""
        driver = Driver.of(Kv())
        self.assertEqual(set(spread([driver.serve() for _ in range(8)]).values()), {2})
