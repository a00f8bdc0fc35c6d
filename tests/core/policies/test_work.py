"""``work``: where requests go, when they move, what is learned."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.core.policies.driver import Driver, prompt, spread
from twisted_router.config.model import Settings
from twisted_router.core.policies.learning import PrefillRate
from twisted_router.core.policies.registry import policy_of
from twisted_router.core.policies.vocabulary import Outcome, Reason
from twisted_router.core.policies.work import Weights, Work


class PlacementTests(SynchronousTestCase):
    def test_long_samples_of_one_prompt(self):
        """Sixteen samples of one long prompt that arrive together find each other on two idle replicas."""
        driver = Driver.of(Work())
        text = prompt(("p", 20))
        self.assertLessEqual(len(spread([driver.send(prompt=text) for _ in range(16)])), 2)

    def test_short_samples_of_one_prompt(self):
        """Those of a short prompt do so once the fleet has work: an idle replica's time costs nobody."""
        driver = Driver.of(Work())
        for number in range(16):
            driver.first_byte(driver.send(f"s{number}", prompt((number, 4))))
        text = prompt(("p", 3))
        self.assertLessEqual(len(spread([driver.send(prompt=text) for _ in range(16)])), 2)

    def test_few_shot(self):
        """Three hundred questions behind the same examples are spread within a fifth."""
        driver = Driver.of(Work())
        flying, sents = [], []
        for number in range(300):
            driver.now += 0.05
            sent = driver.send(prompt=prompt(("examples", 5), (number, 1)))
            driver.first_byte(sent)
            sents.append(sent)
            flying.append(sent)
            if len(flying) > 64:
                driver.end(flying.pop(0))
        counts = spread(sents).values()
        self.assertEqual(len(counts), 4)
        self.assertLessEqual(max(counts), 75 * 1.2)
        self.assertGreaterEqual(min(counts), 75 * 0.8)

    def test_beginning_in_demand(self):
        """A beginning is copied when more requests share it than its replica can fairly carry."""
        for shared, stays in ((True, False), (False, True)):
            driver = Driver.of(Work(), count=2)
            home, other = driver.replicas
            for number in range(24):
                text = prompt(("examples" if shared else number, 3), (number, 1))
                driver.first_byte(driver.send_to(home, f"s{number}", text))
            for number in range(16):
                driver.first_byte(driver.send_to(other, f"o{number}", prompt((f"o{number}", 4))))
            driver.serve_at(home, prompt(("examples", 3), ("first", 1)))
            sent = driver.send("next", prompt(("examples", 3), ("next", 1)))
            self.assertEqual(sent.replica is home, stays)

    def test_short_prompts_follow_load(self):
        """Without a whole chunk of text the least loaded replica is taken."""
        driver = Driver.of(Work())
        for replica, load in zip(driver.replicas, (3, 1, 2, 4), strict=True):
            replica.outstanding = load
        self.assertEqual(driver.send().replica.instance, "r1")

    def test_room_for_what_lives_there(self):
        """A new conversation settles where fewer idle ones live."""
        driver = Driver.of(Work(), count=2)
        crowded = driver.replicas[0]
        for number in range(6):
            sent = driver.send_to(crowded, f"s{number}", prompt((number, 2)))
            driver.first_byte(sent)
            driver.end(sent)
        for number in range(3):
            self.assertIsNot(driver.serve(f"new{number}", prompt((f"n{number}", 2))).replica, crowded)

    def test_warm_prefix(self):
        """A forked conversation begins where its beginning is."""
        driver = Driver.of(Work())
        home = driver.serve("lead", prompt(("lead", 20))).replica
        sent = driver.send("child", prompt(("lead", 20), ("task", 1)))
        self.assertIs(sent.replica, home)
        self.assertIs(sent.reason, Reason.WARM_PREFIX)

    def test_sample_needs_no_room(self):
        """A request whose text is in flight already is one of several answers: nothing will live there."""
        same, more = prompt(("p", 6)), prompt(("p", 6), ("more", 1))
        for text, over, stays in ((same, False, True), (more, False, False), (same, True, False)):
            driver = Driver.of(Work(), count=2)
            home = driver.replicas[0]
            for number in range(12):
                driver.end(driver.send_to(home, f"s{number}", prompt((number, 1))))
            first = driver.send_to(home, "first", prompt(("p", 6)))
            if over:
                driver.end(first)
            self.assertEqual(driver.send("second", text).replica is home, stays)

    def test_named_own_nothing(self):
        """The index keeps no conversation alive that has an id."""
        driver = Driver.of(Work())
        text = prompt(("p", 3))
        driver.serve("s", text)
        self.assertIsNone(driver.policy.index.look(text.chain).owner)


class PinTests(SynchronousTestCase):
    def setUp(self):
        self.driver = Driver.of(Work(), count=2)

    def test_stays(self):
        """A long conversation stays through a moderate difference in load."""
        home = self.driver.serve("s", prompt(("p", 40))).replica
        home.outstanding = 5
        sent = self.driver.send("s", prompt(("p", 41)))
        self.assertIs(sent.replica, home)
        self.assertIs(sent.reason, Reason.PINNED)

    def test_moves_when_it_pays(self):
        """It moves once waiting at home costs more than computing everything elsewhere."""
        home = self.driver.serve("s", prompt(("p", 40))).replica
        for number in range(30):
            self.driver.send_to(home, prompt=prompt((number, 20)))
        sent = self.driver.send("s", prompt(("p", 41)))
        self.assertIsNot(sent.replica, home)
        self.assertIs(sent.reason, Reason.CHEAPER_ELSEWHERE)

    def test_margin(self):
        """A saving below the margin moves nobody."""
        for margin, reason in ((1e9, Reason.PINNED), (0.0, Reason.CHEAPER_ELSEWHERE)):
            driver = Driver.of(Work(weights=Weights(margin=margin)), count=2)
            home = driver.serve("s", prompt(("p", 2))).replica
            home.outstanding = 20
            self.assertIs(driver.send("s", prompt(("p", 3))).reason, reason)

    def test_home_gone(self):
        """A conversation whose replica is not routable is placed anew and says so."""
        home = self.driver.serve("s", prompt(("p", 4))).replica
        self.driver.replicas.remove(home)
        self.assertIs(self.driver.send("s", prompt(("p", 5))).reason, Reason.HOME_GONE)

    def test_ended(self):
        """A conversation its client called finished no longer weighs on its replica."""
        home = self.driver.serve("s", prompt(("p", 4))).replica
        self.assertEqual(self.driver.policy.live.at(home.instance), 1.0)
        self.driver.policy.session_ended("s")
        self.assertEqual(self.driver.policy.live.at(home.instance), 0.0)

    def test_idle(self):
        """One that was idle for long does not either."""
        home = self.driver.serve("s", prompt(("p", 4))).replica
        self.driver.now = 121.0
        self.driver.send("other", prompt(("q", 4)))
        self.assertLessEqual(self.driver.policy.live.at(home.instance), 1.0)
        self.assertEqual(sum(self.driver.policy.live.at(one.instance) for one in self.driver.replicas), 1.0)

    def test_used_again(self):
        """One that was used again meanwhile still does."""
        home = self.driver.serve("s", prompt(("p", 4))).replica
        self.driver.now = 100.0
        self.driver.serve("s", prompt(("p", 5)))
        self.driver.now = 150.0
        self.driver.serve("other", prompt(("q", 4)))
        self.assertGreaterEqual(self.driver.policy.live.at(home.instance), 1.0)
        self.assertEqual(sum(self.driver.policy.live.at(one.instance) for one in self.driver.replicas), 2.0)

    def test_bulk(self):
        """Where nameless requests never come back, those that ended live nowhere."""
        policy = self.driver.policy
        policy.follow_ups.value = 0.009
        self.driver.serve(prompt=prompt(("p", 4)))
        self.assertEqual(sum(policy.live.at(one.instance) for one in self.driver.replicas), 0.0)


class NamelessTests(SynchronousTestCase):
    """Conversations are recognised by their text."""

    def setUp(self):
        self.driver = Driver.of(Work())

    def test_continued(self):
        """A request that repeats a conversation and adds messages is its next turn."""
        home = self.driver.serve(prompt=prompt(("p", 8), messages=2)).replica
        for turn in range(1, 6):
            sent = self.driver.serve(prompt=prompt(("p", 8 + turn), messages=2 + 2 * turn))
            self.assertIs(sent.reason, Reason.PINNED)
            self.assertIs(sent.replica, home)

    def test_in_flight(self):
        """A conversation in flight has no next turn yet."""
        self.driver.send(prompt=prompt(("p", 8), messages=2))
        self.assertIsNot(self.driver.send(prompt=prompt(("p", 9), messages=4)).reason, Reason.PINNED)

    def test_another_question(self):
        """The same text with another last message is another conversation."""
        self.driver.serve(prompt=prompt(("examples", 8), ("one", 1), messages=2))
        sent = self.driver.serve(prompt=prompt(("examples", 8), ("two", 1), messages=2))
        self.assertIs(sent.reason, Reason.WARM_PREFIX)

    def test_fork(self):
        """A request that shares only a part of a conversation is another one."""
        self.driver.serve(prompt=prompt(("p", 20), messages=10))
        sent = self.driver.serve(prompt=prompt(("p", 10), ("q", 10), messages=12))
        self.assertIs(sent.reason, Reason.WARM_PREFIX)

    def test_bare_prompts(self):
        """A prompt without messages continues another when it is longer."""
        self.driver.serve(prompt=prompt(("p", 8), messages=0))
        self.assertIs(self.driver.serve(prompt=prompt(("p", 9), messages=0)).reason, Reason.PINNED)
        self.assertIs(self.driver.serve(prompt=prompt(("p", 9), messages=0)).reason, Reason.WARM_PREFIX)

    def test_named_are_left_alone(self):
        """A nameless request never takes over a conversation that has an id."""
        self.driver.serve("s", prompt(("p", 8), messages=2))
        self.assertIs(self.driver.serve(prompt=prompt(("p", 9), messages=4)).reason, Reason.WARM_PREFIX)

    def test_bulk(self):
        """Where nameless requests never come back, new ones count as bulk."""
        policy = self.driver.policy
        for number in range(60):
            self.driver.serve(prompt=prompt((number, 2)))
        self.assertLess(policy.follow_ups.value, 0.3)
        for turn in range(60):
            self.driver.serve(prompt=prompt((f"c{turn}", 8), messages=2))
            self.driver.serve(prompt=prompt((f"c{turn}", 9), messages=4))
        self.assertGreater(policy.follow_ups.value, 0.3)


class LearningTests(SynchronousTestCase):
    def test_slow_replica(self):
        """A replica half as fast as the other receives fewer conversations within a minute."""
        driver = Driver.of(Work(), count=2)
        slow = driver.replicas[0]
        served = []
        for number in range(60):
            sent = driver.send(f"s{number}", prompt((number, 6)))
            driver.now += 1.0 if sent.replica is slow else 0.5
            driver.first_byte(sent)
            driver.now += 0.3
            driver.end(sent)
            served.append(sent)
        self.assertLess(driver.policy.seat(slow.instance).rate.value, 4000.0)
        counts = spread(served[30:])
        self.assertLess(counts.get(slow.instance, 0), 15)

    def test_whole_answers(self):
        """An answer that does not stream says nothing of the rate; its prefill is over when it should be."""
        driver = Driver.of(Work(), count=1)
        seat = driver.policy.seat("r0")
        sents = []
        for number in range(20):
            sents.append(driver.send(f"s{number}", prompt((number, 8)), streams=False))
            driver.now += 30.0
            driver.first_byte(sents[-1])
        self.assertEqual(seat.rate.value, 4000.0)
        self.assertEqual(seat.decoding, 19)
        for sent in sents:
            driver.end(sent)
        driver.serve("last", prompt(("p", 1)))
        self.assertAlmostEqual(seat.waiting, 0.0)
        self.assertEqual(seat.decoding, 0)

    def test_rate(self):
        """The rate is the upper quartile of the last samples, once there are eight."""
        rate = PrefillRate()
        for seconds in (1.0, 2.0, 4.0, 5.0, 8.0, 10.0, 20.0):
            rate.sample(8000.0, seconds)
        self.assertEqual((rate.value, rate.is_learned), (4000.0, False))
        rate.sample(8000.0, 40.0)
        self.assertEqual((rate.value, rate.is_learned), (4000.0, True))
        for _ in range(64):
            rate.sample(1000.0, 1.0)
        self.assertEqual(rate.value, 1000.0)

    def test_small_samples(self):
        """Prompts with little to compute say nothing of the rate."""
        rate = PrefillRate()
        for _ in range(20):
            rate.sample(100.0, 10.0)
        self.assertEqual(rate.value, 4000.0)

    def test_demand_ends(self):
        """Requests that are over demand nothing."""
        driver = Driver.of(Work())
        text = prompt(("p", 2))
        sents = [driver.send(prompt=text) for _ in range(4)]
        self.assertGreater(driver.policy.index.look(text.chain).demand[0], 0.0)
        for sent in sents:
            driver.end(sent)
        self.assertEqual(driver.policy.index.look(text.chain).demand, (0.0, 0.0))

    def test_density(self):
        """Tokens per byte follow what answers report."""
        driver = Driver.of(Work())
        for number in range(100):
            sent = driver.send(prompt=prompt((number, 10)))
            driver.end(sent, Outcome(True, prompt_tokens=10_000))
        self.assertAlmostEqual(driver.policy.density.value, 10_000 / (10 * 2048 + 100), places=2)

    def test_figures_return_to_zero(self):
        """Whatever becomes of requests, nothing is left of them in the figures of a replica."""
        driver = Driver.of(Work(), count=1)
        sents = [driver.send(f"s{number}", prompt((number, 3))) for number in range(9)]
        for sent in sents[:5]:
            driver.first_byte(sent)
        for number, sent in enumerate(sents):
            driver.end(sent, Outcome(number % 2 == 0))
        seat = driver.policy.seat("r0")
        self.assertAlmostEqual(seat.waiting, 0.0)
        self.assertEqual(seat.decoding, 0)

    def test_failed(self):
        """A prompt whose request failed is not taken for cached."""
        driver = Driver.of(Work())
        sent = driver.send(prompt=prompt(("p", 10)))
        driver.end(sent, Outcome(False))
        self.assertIs(driver.send(prompt=prompt(("p", 10))).reason, Reason.COLD_PREFIX)

    def test_new_replica(self):
        """A replica nobody knows is believed to be as fast as the median."""
        driver = Driver.of(Work(), count=3)
        for number, replica in enumerate(driver.replicas):
            driver.policy.seat(replica.instance).rate.value = 1000.0 * (number + 1)
        self.assertEqual(driver.policy.seat("new").rate.value, 2000.0)

    def test_end_after_loss(self):
        """A request that ends after its replica is gone brings nothing of it back."""
        driver = Driver.of(Work())
        sent = driver.send(prompt=prompt(("p", 10)))
        driver.policy.replica_gone(sent.replica.instance)
        driver.end(sent)
        self.assertIs(driver.send(prompt=prompt(("p", 10))).reason, Reason.COLD_PREFIX)


class SlackTests(SynchronousTestCase):
    def moved(self, settings, excess):
        """Where the next turn of a conversation goes whose replica is so much busier; its cost keeps it."""
        driver = Driver.of(policy_of(settings), count=3)
        home = driver.serve("s", prompt(("s", 200))).replica
        home.outstanding = excess
        idle, busy = (one for one in driver.replicas if one is not home)
        busy.outstanding = excess
        sent = driver.send("s", prompt(("s", 201)))
        return sent.reason, sent.replica is home, sent.replica is idle

    def test_bound(self):
        """A slack that is given is a bound, exactly; whoever is beyond it is no place to go either."""
        settings = Settings(policy="work", affinity_slack=3)
        self.assertEqual(self.moved(settings, 3), (Reason.PINNED, True, False))
        self.assertEqual(self.moved(settings, 4), (Reason.OVER_SLACK, False, True))
        self.assertEqual(self.moved(Settings(policy="work:slack=5"), 5), (Reason.PINNED, True, False))

    def test_unbound(self):
        """One that is not given is none."""
        self.assertEqual(self.moved(Settings(policy="work"), 9), (Reason.PINNED, True, False))

    def test_off(self):
        """With 0 the cost alone decides, at every turn."""
        self.assertIs(self.moved(Settings(policy="work", affinity_slack=0), 0)[0], Reason.AFFINITY_OFF)
