"""The simulated replica's engine in real time, on a clock that can be late."""

from __future__ import annotations

from attrs import define, field
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.sim.driver import FINEST, Driver
from twisted_router.sim.engine import CostModel, Engine, Job, Limits, Work


@define
class Ear:
    """Keeps the jobs it was told of, and when by the engine's time the last ended; may submit one more."""

    driver: Driver
    heard: list[Job] = field(factory=list)
    more: Work | None = None

    def progressed(self, job: Job) -> None:
        self.heard.append(job)
        if job.done and self.more is not None:
            more, self.more = self.more, None
            self.driver.submit(more, self)


class DriverTests(SynchronousTestCase):
    """Steps of one second; prefill costs nothing."""

    def setUp(self) -> None:
        self.clock = Clock()
        cost = CostModel(step=1.0, prefill_rate=1e30)
        self.driver = Driver(Engine(Limits(), cost), self.clock, self.clock.seconds)
        self.ear = Ear(self.driver)

    def test_late_timer(self) -> None:
        """A timer that is late costs no simulated time: all steps that are over by then are taken at once."""
        job = self.driver.submit(Work((), 1, 3), self.ear)
        self.clock.advance(3.4)
        self.assertEqual(job.finished_at, 3.0)
        self.assertEqual(len(self.ear.heard), 3)

    def test_newcomer_behind_a_late_timer(self) -> None:
        """Work that comes after a step's end, though before its timer, is admitted at the next step."""
        self.driver.submit(Work((), 1, 3), self.ear)
        self.clock.rightNow = 1.5
        job = self.driver.submit(Work((), 1, 1), self.ear)
        self.assertEqual(len(self.ear.heard), 1)
        self.clock.advance(2.0)
        self.assertEqual((job.first_token_at, job.finished_at), (3.0, 3.0))

    def test_submitting_from_a_listener(self) -> None:
        """A listener may submit as it hears of the last token of the only job."""
        self.ear.more = Work((), 1, 2)
        self.driver.submit(Work((), 1, 1), self.ear)
        self.clock.pump([1.0] * 4)
        self.assertEqual([job.done for job in self.ear.heard], [True, True, True])
        self.assertEqual(self.ear.heard[-1].finished_at, 3.0)

    def test_slow_submitting(self) -> None:
        """Nothing is heard of work before ``submit`` has returned, however long that took."""
        self.driver = Driver(self.driver.engine, self.clock, iter(range(0, 1000, 10)).__next__)
        self.driver.submit(Work((), 1, 1), self.ear)
        self.assertEqual(self.ear.heard, [])

    def test_short_steps(self) -> None:
        """However short the steps, there are so many looks a second and no more."""
        self.driver = Driver(self.driver.engine, self.clock, self.clock.seconds, scale=10_000.0)
        job = self.driver.submit(Work((), 1, 10), self.ear)
        self.clock.advance(FINEST / 2)
        self.assertEqual(self.ear.heard, [])
        self.clock.advance(FINEST)
        self.assertEqual((len(self.ear.heard), job.finished_at), (10, 10.0))

    def test_abort(self) -> None:
        """An aborted job is heard of no more, and nothing is waited for when it was the only one."""
        job = self.driver.submit(Work((), 1, 3), self.ear)
        self.clock.advance(1.0)
        self.driver.abort(job)
        self.clock.pump([1.0] * 2)
        self.assertEqual((len(self.ear.heard), self.clock.getDelayedCalls()), (1, []))
