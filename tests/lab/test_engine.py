"""The engine model: what a request costs, what is cached, what has to wait."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.lab.engine import BLOCK, Engine, EngineModel, Job

MODEL = EngineModel(step=0.02, prefill=5000.0, attention=1e12, context=0.0)


def job(prompt, output, name="a"):
    return Job(prompt, output, tuple((name, number) for number in range(prompt // BLOCK)), name)


class Bench:
    """Submits jobs at times and notes when they begin and end."""

    def __init__(self, model=MODEL, slowness=1.0):
        self.engine = Engine(model, slowness)
        self.first = {}
        self.ended = {}

    def run(self, *arrivals):
        queue = sorted(arrivals, key=lambda arrival: arrival[0])
        while queue or self.engine.wake is not None:
            wake = self.engine.wake
            if queue and (wake is None or queue[0][0] <= wake):
                at, one = queue.pop(0)
                self.engine.submit(one, at)
                continue
            first, ended = self.engine.advance(wake)
            self.first.update((one, wake) for one in first)
            self.ended.update((one, wake) for one in ended)
        return self


class TimeTests(SynchronousTestCase):
    def test_alone(self):
        """Prefill in chunks of the budget, then one step a token; the first token ends the prefill."""
        one = job(4096, 11)
        bench = Bench().run((1.0, one))
        self.assertAlmostEqual(bench.first[one], 1.0 + 4096 / 5000 + 2 * 0.02)
        self.assertAlmostEqual(bench.ended[one], bench.first[one] + 10 * 0.02)

    def test_one_token(self):
        """A request for one token ends with its prefill."""
        one = job(100, 1)
        bench = Bench().run((0.0, one))
        self.assertEqual(bench.first[one], bench.ended[one])

    def test_batch(self):
        """Requests that decode together do not slow each other when context costs nothing."""
        pair = [job(1000, 101, "a"), job(1000, 101, "b")]
        bench = Bench().run(*((0.0, one) for one in pair))
        self.assertAlmostEqual(bench.ended[pair[0]], bench.ended[pair[1]])
        self.assertAlmostEqual(bench.ended[pair[0]], 2000 / 5000 + 0.02 + 100 * 0.02)

    def test_prefill_stalls_decoding(self):
        """A prefill stalls the stream beside it for as long as it computes."""
        alone, beside, intruder = job(100, 200, "a"), job(100, 200, "a"), job(5000, 2, "b")
        expected = Bench().run((0.0, alone)).ended[alone] + 5000 / 5000
        bench = Bench().run((0.0, beside), (1.0, intruder))
        self.assertAlmostEqual(bench.ended[beside], expected)

    def test_arrival_cuts_a_run(self):
        """A request that comes while others decode waits for the step under way, not for their end."""
        long, late = job(100, 1000, "a"), job(100, 2, "b")
        bench = Bench().run((0.0, long), (5.0, late))
        self.assertLess(bench.first[late], 5.0 + 2 * 0.02 + 100 / 5000 + 1e-9)
        self.assertGreaterEqual(bench.first[late], 5.0 + 0.02 + 100 / 5000 - 1e-9)

    def test_context_costs(self):
        """Closed form and step by step agree on what a growing context costs."""
        model = EngineModel(step=0.02, context=1e-5)
        one = job(1280, 51)
        bench = Bench(model).run((0.0, one))
        steps = sum(0.02 + 1e-5 * (1280 + step) for step in range(50))
        self.assertAlmostEqual(bench.ended[one] - bench.first[one], steps)

    def test_slow(self):
        """A slow replica takes so many times as long."""
        one, other = job(1000, 50), job(1000, 50)
        quick = Bench().run((0.0, one)).ended[one]
        self.assertAlmostEqual(Bench(slowness=2.0).run((0.0, other)).ended[other], 2 * quick)

    def test_long_context_attention(self):
        """A prefill token behind much context costs more."""
        model = EngineModel(step=0.0, prefill=1000.0, attention=1000.0, context=0.0)
        one = job(1000, 1)
        self.assertAlmostEqual(Bench(model).run((0.0, one)).first[one], 1.0 * 1.5)


class CacheTests(SynchronousTestCase):
    def test_found(self):
        """A prompt that was computed before is found, but for its last token."""
        first, second = job(10 * BLOCK, 5), job(10 * BLOCK, 5)
        Bench().run((0.0, first), (10.0, second))
        self.assertEqual((first.cached, second.cached), (0, 10 * BLOCK - 1))

    def test_together(self):
        """Equal prompts that come together are computed about once."""
        twins = [job(4096, 5) for _ in range(4)]
        Bench().run(*((0.0, one) for one in twins))
        self.assertEqual(sum(one.cached == 0 for one in twins), 1)

    def test_evicted(self):
        """What was used longest ago makes room first."""
        model = EngineModel(capacity=31 * BLOCK)
        jobs = [job(15 * BLOCK, 2, name) for name in ("a", "b", "c", "a", "c")]
        Bench(model).run(*((10.0 * number, one) for number, one in enumerate(jobs)))
        self.assertEqual(jobs[3].cached, 0)
        self.assertGreater(jobs[4].cached, 14 * BLOCK)

    def test_tail_first(self):
        """Of one prompt the tail is lost first."""
        model = EngineModel(capacity=40 * BLOCK)
        long, other, again = job(30 * BLOCK, 2, "a"), job(20 * BLOCK, 2, "b"), job(30 * BLOCK, 2, "a")
        Bench(model).run((0.0, long), (10.0, other), (20.0, again))
        self.assertGreater(again.cached, 15 * BLOCK)
        self.assertLess(again.cached, 21 * BLOCK)

    def test_full(self):
        """A request that finds no room beside those that run waits until one of them ends."""
        model = EngineModel(capacity=40 * BLOCK)
        first, second = job(30 * BLOCK, 100, "a"), job(30 * BLOCK, 100, "b")
        bench = Bench(model).run((0.0, first), (0.0, second))
        self.assertGreater(bench.first[second], bench.ended[first])

    def test_nothing_is_left(self):
        """When all is over nothing is held."""
        bench = Bench().run(*((0.1 * number, job(1000 + number, 30, number % 5)) for number in range(40)))
        self.assertEqual(bench.engine._cache._held, {})
        self.assertEqual(bench.engine._cache._private, 0)
        self.assertEqual(bench.engine._context, 0)
