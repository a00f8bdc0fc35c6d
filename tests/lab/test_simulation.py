"""The loop: clients, routing, loss, holding."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.core.policies.gate import Gate
from twisted_router.core.policies.least_conn import LeastConn
from twisted_router.core.policies.session import SessionAffinity
from twisted_router.core.policies.work import Work
from twisted_router.lab.engine import EngineModel
from twisted_router.lab.rows import BY_NAME, run_row
from twisted_router.lab.simulation import Simulation, Together, Turn, Wait
from twisted_router.lab.text import Texts
from twisted_router.lab.variants import BY_NAME as VARIANTS

MODEL = EngineModel()


class TextTests(SynchronousTestCase):
    def test_grown(self):
        """A text that grew begins with what it was."""
        text = Texts().empty().grow(3000)
        before = text.prompt()
        after = text.grow(2000).prompt()
        self.assertEqual(after.chain[: len(before.chain)], before.chain)
        self.assertEqual((before.messages, after.messages), (1, 2))

    def test_forks_differ(self):
        """Two forks share what they had and nothing that came later."""
        origin = Texts().empty().grow(5120)
        one, other = origin.fork().grow(5000), origin.fork().grow(5000)
        shared = set(one.blocks) & set(other.blocks)
        self.assertEqual(shared, set(origin.blocks))


class SimulationTests(SynchronousTestCase):
    def turn(self, texts, tokens=1000, session=None):
        return Turn(texts.empty().grow(tokens), 20, session)

    def test_loads_return(self):
        """When all is answered no replica has anything outstanding."""
        simulation = Simulation(Work(), MODEL, 4)
        texts = Texts()

        def actor():
            yield self.turn(texts)
            yield Wait(1.0)
            yield self.turn(texts)

        for _ in range(30):
            simulation.spawn(actor())
        simulation.run()
        self.assertEqual([station.outstanding for station in simulation.stations], [0] * 4)
        self.assertEqual(sum(station.served for station in simulation.stations), 60)
        self.assertEqual(len(simulation.turns), 60)

    def test_together(self):
        """An actor that started others goes on when all of them are done."""
        simulation = Simulation(LeastConn(), MODEL, 2)
        log = []

        def child(seconds):
            yield Wait(seconds)
            log.append(seconds)

        def parent():
            yield Together((child(3.0), child(1.0)))
            log.append("parent")

        simulation.spawn(parent())
        simulation.run()
        self.assertEqual(log, [1.0, 3.0, "parent"])
        self.assertEqual(simulation.now, 3.0)

    def test_pins(self):
        """A conversation with an id returns to its replica under session."""
        simulation = Simulation(SessionAffinity(8), MODEL, 4)
        text = Texts().empty().grow(2000)

        def actor():
            for _ in range(8):
                yield Turn(text, 10, "s")

        simulation.spawn(actor())
        simulation.run()
        self.assertEqual(sorted(station.served for station in simulation.stations), [0, 0, 0, 8])

    def test_loss(self):
        """What a lost replica was working on is asked again elsewhere."""
        simulation = Simulation(Work(), MODEL, 2)
        texts = Texts()
        done = []

        def actor(number):
            yield Turn(texts.empty().grow(4000), 300, f"s{number}")
            done.append(number)

        def killer():
            yield Wait(2.0)
            simulation.lose(simulation.stations[0])

        for number in range(8):
            simulation.spawn(actor(number))
        simulation.spawn(killer())
        simulation.run()
        self.assertEqual(sorted(done), list(range(8)))
        self.assertEqual([station.outstanding for station in simulation.stations], [0])

    def test_gate_holds_and_releases(self):
        """With a gate conversations wait while the caches are full, and all are served in the end."""
        simulation = Simulation(Gate(Work()), EngineModel(capacity=20_000), 1)
        texts = Texts()
        done = []

        def actor(number):
            text = texts.empty().grow(6000)
            for turn in range(3):
                yield Turn(text, 50, f"s{number}", turn == 2)
                yield Wait(1.0)
                text.grow(500, messages=2)
            done.append(number)

        for number in range(9):
            simulation.spawn(actor(number))
        simulation.run()
        self.assertEqual(sorted(done), list(range(9)))
        self.assertGreater(simulation.held, 3)

    def test_max_hold(self):
        """Nobody is held longer than allowed."""
        texts = Texts()
        begun = []

        def actor(simulation):
            begun.append(simulation.now)
            yield Turn(texts.empty().grow(15_000), 2000, f"s{len(begun)}")

        simulation = Simulation(Gate(Work()), EngineModel(capacity=20_000), 1, max_hold=5.0)
        for _ in range(3):
            simulation.spawn(actor(simulation))
        simulation.run(6.5)
        self.assertEqual(simulation.stations[0].outstanding, 3)


class RowTests(SynchronousTestCase):
    def test_same_again(self):
        """A row, a policy and a seed give the same result every time."""
        for name in ("short", "loss", "lead"):
            for policy in ("work", "cache_aware"):
                one = run_row(BY_NAME[name], VARIANTS[policy], 3)
                self.assertEqual(one, run_row(BY_NAME[name], VARIANTS[policy], 3), (name, policy))

    def test_seeds_differ(self):
        """Another seed is another run."""
        row = BY_NAME["short"]
        self.assertNotEqual(run_row(row, VARIANTS["work"], 1).value, run_row(row, VARIANTS["work"], 2).value)

    def test_affinity_pays(self):
        """On rollouts of a few turns session affinity is faster than least_conn, and work with it."""
        row = BY_NAME["short"]
        base = run_row(row, VARIANTS["least_conn"], 1).value
        for policy in ("session", "work", "work-no-ids"):
            self.assertLess(run_row(row, VARIANTS[policy], 1).value, 0.9 * base, policy)

    def test_samples_are_shared(self):
        """On sampling from the same prompts work is not slower than least_conn."""
        row = BY_NAME["grpo"]
        base = run_row(row, VARIANTS["least_conn"], 1).value
        self.assertLess(run_row(row, VARIANTS["work"], 1).value, base)

    def test_bound(self):
        """The bound computes every text once and loses none: no policy finds more in the caches."""
        row = BY_NAME["pressure"]
        found = run_row(row, VARIANTS["bound"], 1).cached
        self.assertGreater(found, 0.93)
        self.assertGreater(found, run_row(row, VARIANTS["work"], 1).cached)

    def test_gate_stays_open(self):
        """Where the working set fits, a gate holds nobody and changes nothing."""
        for name in ("short", "lead"):
            gated = run_row(BY_NAME[name], VARIANTS["work-gate"], 1)
            self.assertEqual(gated.held, 0)
            self.assertEqual(gated, run_row(BY_NAME[name], VARIANTS["work"], 1))
