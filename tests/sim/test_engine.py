"""The engine model: cache, prefill, decode, queue."""

from __future__ import annotations

from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.sim.engine import BlockCache, CostModel, DoesNotFit, Engine, Job, Limits, Work

#: One second a step, four prompt tokens a second: times are easy to work out by hand.
COST = CostModel(step=1.0, prefill_rate=4.0)


def work(prompt: int, output: int = 1, conversation: str = "a", block: int = 16) -> Work:
    """Work whose blocks belong to one conversation."""
    return Work(tuple((conversation, index) for index in range(prompt // block)), prompt, output)


@define
class Run:
    """Drives an engine in virtual time."""

    engine: Engine
    now: float = 0.0
    tokens: list[Job] = field(factory=list)

    def once(self) -> bool:
        """Go to the end of one step; False when there is none."""
        step = self.engine.step(self.now)
        self.tokens += step.tokens
        if step.wake is not None:
            self.now = step.wake
        return step.wake is not None

    def out(self) -> None:
        """Go on until nothing is left to do."""
        while self.once():
            pass


def engine(**limits: int) -> Engine:
    return Engine(Limits(**limits), COST)


class TimingTests(SynchronousTestCase):
    """How long things take."""

    def test_first_token_waits_for_prefill(self) -> None:
        """A prompt costs its tokens at the prefill rate plus one step; each further token one step."""
        run = Run(engine())
        job = run.engine.submit(work(8, output=3), 0.0)
        run.out()
        self.assertEqual((job.first_token_at, job.finished_at), (3.0, 5.0))

    def test_prefill_is_chunked(self) -> None:
        """A prompt longer than the budget takes several steps, each with its fixed cost."""
        run = Run(engine(batch_tokens=4))
        job = run.engine.submit(work(8), 0.0)
        run.out()
        self.assertEqual(job.first_token_at, 4.0)

    def test_budget_is_shared(self) -> None:
        """The budget of a step is one for all prompts that start in it."""
        run = Run(engine(batch_tokens=6))
        for name in "ab":
            run.engine.submit(work(4, conversation=name), 0.0)
        run.once()
        self.assertEqual(run.now, 1.0 + 6 / 4)

    def test_decoding_goes_on_during_prefill(self) -> None:
        """A running sequence gets a token in each step, also in those that prefill another's prompt."""
        run = Run(engine(batch_tokens=5))
        first = run.engine.submit(work(4, output=10), 0.0)
        run.once()
        run.engine.submit(work(8, conversation="b"), run.now)
        run.once()
        run.once()
        self.assertEqual(first.generated, 2)

    def test_batch_shares_a_step(self) -> None:
        """Ten sequences that decode together take the time of one."""
        run = Run(engine())
        jobs = [run.engine.submit(work(1, output=5, conversation=str(i)), 0.0) for i in range(10)]
        run.out()
        self.assertEqual({job.finished_at for job in jobs}, {1.0 + 10 / 4 + 4})

    def test_attention_and_context_cost(self) -> None:
        """Prompt tokens cost double at the attention span; decoding pays for sequences and their context."""
        cost = CostModel(prefill_rate=10.0, attention_span=100.0, per_sequence=0.5, per_context=0.01)
        self.assertAlmostEqual(cost.chunk(2, 99), 2 * 2 / 10.0)
        self.assertAlmostEqual(cost.decode(2, 100), 2.0)

    def test_a_step_in_flight_is_not_hurried(self) -> None:
        """Asking before the step is over changes nothing and names the same time."""
        one = engine()
        one.submit(work(4), 0.0)
        wake = one.step(0.0).wake
        early = one.step(1.0)
        self.assertEqual((early.tokens, early.wake), ((), wake))


class QueueTests(SynchronousTestCase):
    """Who runs and who waits."""

    def test_max_num_seqs(self) -> None:
        """Only so many run; the others wait and start in the order in which they came."""
        run = Run(engine(max_num_seqs=1))
        jobs = [run.engine.submit(work(1, conversation=str(i)), 0.0) for i in range(3)]
        run.once()
        self.assertEqual((run.engine.running, run.engine.waiting), (1, 2))
        run.out()
        self.assertEqual(run.tokens, jobs)

    def test_waits_for_memory(self) -> None:
        """A sequence without room for its prompt and output waits until another ends."""
        run = Run(engine(kv_tokens=64))
        run.engine.submit(work(32, output=16), 0.0)
        second = run.engine.submit(work(16, output=16, conversation="b"), 0.0)
        run.once()
        self.assertEqual((run.engine.running, run.engine.waiting, run.engine.kv_usage), (1, 1, 0.75))
        run.out()
        self.assertIsNotNone(second.finished_at)

    def test_refuses_what_never_fits(self) -> None:
        """Work beyond the whole memory is refused, for it would block the line for ever."""
        self.assertRaises(DoesNotFit, engine(kv_tokens=64).submit, work(60, output=5), 0.0)

    def test_refuses_nothing(self) -> None:
        """Work without output would never end."""
        self.assertRaises(ValueError, engine().submit, Work((), 1, 0), 0.0)


class AbortTests(SynchronousTestCase):
    """A client that leaves."""

    def test_running(self) -> None:
        """An aborted sequence frees its memory at once and gets no token of the step in flight."""
        run = Run(engine())
        job = run.engine.submit(work(32, output=9), 0.0)
        run.once()
        run.engine.abort(job)
        self.assertEqual((run.engine.running, run.engine.kv_usage), (0, 0.0))
        run.out()
        self.assertEqual((run.tokens, run.engine.totals.aborted), ([], 1))

    def test_decoding(self) -> None:
        """One that decodes gets no further token."""
        run = Run(engine())
        job = run.engine.submit(work(1, output=9), 0.0)
        run.once()
        run.once()
        run.engine.abort(job)
        run.out()
        self.assertEqual(run.tokens, [job])

    def test_waiting(self) -> None:
        """One that still waits leaves the line."""
        one = engine()
        job = one.submit(work(1), 0.0)
        one.abort(job)
        self.assertEqual((one.waiting, one.step(0.0).wake), (0, None))

    def test_ended(self) -> None:
        """Aborting what has ended changes nothing."""
        run = Run(engine())
        job = run.engine.submit(work(1), 0.0)
        run.out()
        run.engine.abort(job)
        self.assertEqual((job.aborted, run.engine.totals.aborted), (False, 0))


class CacheTests(SynchronousTestCase):
    """What the second turn saves."""

    def second(self, one: Engine, *turns: Work) -> Job:
        run = Run(one)
        for turn in turns:
            job = one.submit(turn, run.now)
            run.out()
        return job

    def test_next_turn_hits(self) -> None:
        """A prompt that grows finds the full blocks of its earlier turn, and only those."""
        job = self.second(engine(), work(40), work(100))
        self.assertEqual(job.cached_tokens, 32)

    def test_hit_is_faster(self) -> None:
        """Only what is not cached is computed."""
        job = self.second(engine(), work(32), work(36))
        assert job.first_token_at is not None
        self.assertEqual(job.first_token_at - job.submitted_at, 2.0)

    def test_last_token_is_always_computed(self) -> None:
        """The same prompt again still computes its last block: the first output token comes from there."""
        job = self.second(engine(), work(32), work(32))
        self.assertEqual(job.cached_tokens, 16)

    def test_other_conversation_misses(self) -> None:
        """Another conversation finds nothing."""
        job = self.second(engine(), work(32), work(33, conversation="b"))
        self.assertEqual(job.cached_tokens, 0)

    def test_least_recently_used_goes_first(self) -> None:
        """Under pressure the conversation that was idle longest loses its blocks, deepest first."""
        one = engine(kv_tokens=64)
        turns = [work(33, conversation="a"), work(33, conversation="b"), work(33, conversation="b")]
        hit = self.second(one, *turns)
        self.assertEqual(hit.cached_tokens, 32)
        self.assertEqual(self.second(one, work(33, conversation="a")).cached_tokens, 16)

    def test_shared_prefix_is_held_once(self) -> None:
        """Two running sequences with one prefix hold its blocks together."""
        run = Run(engine())
        run.engine.submit(work(33, output=4), 0.0)
        run.once()
        run.once()
        run.engine.submit(work(33, output=4), run.now)
        run.once()
        self.assertEqual(run.engine.cache.in_use, 2 + 1 + 1)

    def test_blocks_are_shared_as_they_are_computed(self) -> None:
        """A long prompt's early blocks serve another sequence before its prefill is over."""
        run = Run(engine(batch_tokens=20, max_num_seqs=1))
        first = run.engine.submit(work(64, output=1), 0.0)
        run.once()
        run.once()
        run.engine.abort(first)
        second = run.engine.submit(work(64, output=1), run.now)
        run.out()
        self.assertEqual(second.cached_tokens, 16)

    def test_reservation_without_room_changes_nothing(self) -> None:
        """A refused reservation leaves idle blocks where they were."""
        cache = BlockCache(2)
        self.assertTrue(cache.reserve((), 1))
        cache.publish("k")
        cache.release(("k",), 0)
        self.assertFalse(cache.reserve(("k",), 2))
        self.assertEqual((cache.in_use, cache.idle, cache.match(("k",))), (0, 1, 1))


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 90), st.integers(1, 9), st.integers(0, 3)),
        st.tuples(st.just("step")),
        st.tuples(st.just("abort"), st.integers(0, 30)),
    ),
    max_size=60,
)


class PropertyTests(SynchronousTestCase):
    """What holds whatever happens."""

    @settings(max_examples=150, deadline=None)
    @given(MOVES, st.integers(1, 4), st.integers(3, 40), st.integers(7, 12))
    def test_any_history(
        self, moves: list[tuple[str, int, int, int]], seqs: int, batch: int, blocks: int
    ) -> None:
        """The cache keeps its bound, hits never exceed the prompt, and every job ends and frees its room."""
        run = Run(engine(max_num_seqs=seqs, batch_tokens=batch, kv_tokens=blocks * 16))
        jobs: list[Job] = []
        for move, *numbers in moves:
            if move == "submit":
                jobs.append(run.engine.submit(work(numbers[0], numbers[1], str(numbers[2])), run.now))
            elif move == "step":
                run.once()
            elif jobs:
                run.engine.abort(jobs[numbers[0] % len(jobs)])
            cache = run.engine.cache
            self.assertLessEqual(cache.in_use + cache.idle, blocks)
            self.assertLessEqual(run.engine.running, seqs)
        run.out()
        for job in jobs:
            self.assertTrue(job.done)
            self.assertLess(job.cached_tokens, job.work.prompt_tokens)
            self.assertTrue(job.aborted or job.generated == job.work.output_tokens)
        self.assertEqual((run.engine.running, run.engine.waiting, run.engine.cache.in_use), (0, 0, 0))
