"""Rules that every policy of the registry keeps."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.core.policies.driver import Driver, Replica, prompt, spread
from twisted_router.core.policies.registry import POLICIES, add_gate, make_policy
from twisted_router.core.policies.vocabulary import Ask, Outcome, Reason

#: The two that do not look at the load: a hash is uneven by nature.
BY_LOAD = [name for name in POLICIES if name != "consistent_hash"]


def walk(name, seed, steps=120):
    """A random life of a fleet under one policy; the choices made, checked as they are made."""
    random = Random(seed)
    policy = make_policy(name)
    everyone = tuple(Replica(f"r{number}") for number in range(5))
    routable = everyone
    homes, flying, choices = {}, [], []
    now = 0.0
    for _ in range(steps):
        now += random.random() * 5
        deed = random.random()
        if deed < 0.55 and routable:
            session = random.choice([None, "a", "b", "c", "d"])
            text = prompt(("system", 3), (session or random.random(), random.randrange(6)))
            ask = Ask(session, homes.get(session), now, text, random.random() < 0.7)
            position, reason = policy.choose(ask, routable)
            assert isinstance(position, int) and 0 <= position < len(routable), position
            assert isinstance(reason, Reason), reason
            chosen = routable[position]
            if session is not None:
                homes[session] = chosen.instance
            flying.append((chosen, policy.observe(ask, chosen, reason)))
            chosen.outstanding += 1
            choices.append((chosen.instance, reason))
        elif deed < 0.85 and flying:
            chosen, trace = flying.pop(random.randrange(len(flying)))
            chosen.outstanding -= 1
            if trace is not None:
                if random.random() < 0.7:
                    trace.first_byte(now)
                trace.ended(now, Outcome(random.random() < 0.8, 2000, random.randrange(2000), 50))
        elif deed < 0.92 and len(routable) > 1:
            gone = random.choice(routable)
            routable = tuple(replica for replica in routable if replica is not gone)
            if random.random() < 0.5:
                policy.replica_gone(gone.instance)
        elif deed < 0.97:
            routable = everyone
        else:
            policy.session_ended("a")
    return choices


class EveryPolicyTests(SynchronousTestCase):
    @settings(max_examples=25, deadline=None)
    @given(st.integers(0, 2**32))
    def test_only_routable(self, seed):
        """Whatever happens to replicas and requests, the choice is one of the candidates, for a reason."""
        for name in POLICIES:
            walk(name, seed)

    @settings(max_examples=10, deadline=None)
    @given(st.integers(0, 2**32))
    def test_same_again(self, seed):
        """The same requests at the same times are sent to the same replicas."""
        for name in POLICIES:
            self.assertEqual(walk(name, seed), walk(name, seed), name)

    def test_idle_starts_with_ids(self):
        """A hundred conversations that start on an idle fleet are spread evenly, one more or less."""
        for name in BY_LOAD:
            driver = Driver.of(make_policy(name))
            sents = [
                driver.serve(f"s{number}", prompt((f"own{number}", 2)), seconds=1.0) for number in range(100)
            ]
            counts = spread(sents)
            self.assertEqual(len(counts), 4, name)
            self.assertTrue(all(24 <= count <= 26 for count in counts.values()), (name, counts))

    def test_idle_starts_without_anything(self):
        """So are requests without an id or a prompt: no constant key, no first in the list."""
        for name in POLICIES:
            driver = Driver.of(make_policy(name))
            counts = spread([driver.serve(seconds=1.0) for _ in range(100)])
            self.assertEqual(len(counts), 4, name)
            self.assertTrue(all(24 <= count <= 26 for count in counts.values()), (name, counts))

    def test_shared_beginning_without_ids(self):
        """Requests without an id that all begin alike do not pile up on one replica."""
        for name in POLICIES:
            driver = Driver.of(make_policy(name))
            flying, sents = [], []
            for number in range(200):
                driver.now += 0.1
                sent = driver.send(prompt=prompt(("system", 6), (number, 2)))
                driver.first_byte(sent)
                flying.append(sent)
                sents.append(sent)
                if len(flying) > 32:
                    driver.end(flying.pop(0))
            counts = spread(sents)
            self.assertEqual(len(counts), 4, name)
            self.assertLessEqual(max(counts.values()), 70, (name, counts))

    def test_structured_ids(self):
        """Ids that share nearly all of their characters do not follow one another."""
        for name in POLICIES:
            driver = Driver.of(make_policy(name))
            sents = [driver.send(f"trajectory-{number:06d}") for number in range(64)]
            self.assertLessEqual(max(spread(sents).values()), 28, name)

    def test_lost_replica(self):
        """The conversations of a lost replica go to all that are left, not to the next in the list."""
        for name in POLICIES:
            driver = Driver.of(make_policy(name))
            homes = {}
            for number in range(60):
                homes[f"s{number}"] = driver.serve(f"s{number}", prompt((number, 3))).replica
            lost = driver.replicas[1]
            driver.lose(lost)
            moved = [session for session, home in homes.items() if home is lost]
            for session in moved:
                driver.homes.pop(session)
            counts = spread([driver.send(session, prompt((session, 4))) for session in moved])
            self.assertEqual(set(counts), {replica.instance for replica in driver.replicas}, name)


class RegistryTests(SynchronousTestCase):
    def test_parameter(self):
        """A parameter reaches the policy: slack 0 follows no pin."""
        driver = Driver.of(make_policy("session", {"slack": 0}))
        driver.serve("s")
        self.assertIs(driver.send("s").reason, Reason.AFFINITY_OFF)

    def test_unknown_policy(self):
        """An unknown name is answered with those there are."""
        error = self.assertRaises(ValueError, make_policy, "sticky")
        self.assertIn("sticky_least_loaded", str(error))

    def test_unknown_parameter(self):
        """An unknown parameter is answered with those the policy has."""
        error = self.assertRaises(ValueError, make_policy, "prefix", {"bassis": "absolute"})
        self.assertIn("alpha, basis", str(error))

    def test_bad_values(self):
        """Values of the wrong kind or out of range are refused with what was expected."""
        for name, parameter, value in (
            ("session", "slack", -1),
            ("session", "slack", 1.5),
            ("session", "slack", True),
            ("session", "slack", float("nan")),
            ("session", "slack", "many"),
            ("session", "slack", None),
            ("cache_aware", "balance_rel", 0.5),
            ("prefix", "basis", "total"),
        ):
            error = self.assertRaises(ValueError, make_policy, name, {parameter: value})
            self.assertIn(f"{parameter}: expected", str(error))

    def test_numbers_as_words(self):
        """A number may come as a word of the command line."""
        driver = Driver.of(make_policy("session", {"slack": "1"}))
        driver.serve("s")
        driver.replicas[0].outstanding = 2
        self.assertIs(driver.send("s").reason, Reason.OVER_SLACK)

    def test_descriptions(self):
        """Every policy says in a line what it is, and every parameter what it is for."""
        for name, entry in POLICIES.items():
            self.assertEqual(name, entry.name)
            self.assertTrue(entry.about and entry.reads, name)
            for parameter in entry.parameters:
                self.assertTrue(parameter.about, name)

    def test_warning(self):
        """A policy known to do harm warns of it."""
        self.assertIn("without a session id", POLICIES["consistent_hash"].harm)
        self.assertEqual(POLICIES["session"].harm, "")


class AddGateTests(SynchronousTestCase):
    def test_added(self):
        """A gate can stand before every policy that tells conversations apart."""
        for name in ("work", "kv", "kv_session_affinity"):
            self.assertEqual(add_gate(make_policy(name), 5000.0).capacity("r0"), 5000.0)

    def test_kept(self):
        """A policy that comes with a gate keeps its own."""
        for name in ("program", "thunderagent"):
            policy = make_policy(name)
            self.assertIs(add_gate(policy), policy)

    def test_refused(self):
        """Before any other it is refused, by a sentence that says where it can stand."""
        self.assertIn(
            "kv_session_affinity", str(self.assertRaises(ValueError, add_gate, make_policy("session")))
        )
