"""A serving engine in simulated time: chunked prefill, continuous batching, a block cache with LRU.

While all that happens is decoding, the steps up to the next event are added up in closed form, and that is
what lets the laboratory run hours of a fleet in seconds; a model that serves real sockets has to take every
step by itself.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict, deque
from collections.abc import Sequence

from attrs import define, field, frozen

#: Tokens of one cache block. Engines use 16; coarser blocks lose half a block per turn and save time.
BLOCK = 128


@frozen
class EngineModel:
    """How fast a replica is. Seconds and tokens.

    :ivar step: what a step costs whatever it holds: reading the weights, launching, sampling.
    :ivar prefill: prefill tokens a second of a short prompt.
    :ivar attention: context length at which a prefill token costs twice as much.
    :ivar context: what each context token adds to a decode step.
    :ivar budget: tokens a step computes at most.
    :ivar capacity: tokens the cache holds.
    :ivar batch: requests that run at once.
    """

    step: float = 0.026
    prefill: float = 5800.0
    attention: float = 150_000.0
    context: float = 27e-9
    budget: int = 2048
    capacity: int = 900_000
    batch: int = 256


@define(eq=False)
class Job:
    """One request in an engine.

    :ivar blocks: names of the prompt's whole blocks; equal names mean equal leading text.
    :ivar cached: prompt tokens that were found in the cache.
    :ivar done: prompt tokens computed or found.
    """

    prompt: int
    output: int
    blocks: Sequence[int]
    owner: object
    cached: int = 0
    done: int = 0
    held: list[int] = field(factory=list)


class BlockCache:
    """Prompt blocks by name; those nobody holds leave when room is needed, oldest first."""

    def __init__(self, capacity: int) -> None:
        self._room = capacity // BLOCK
        self._held: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._private = 0

    def fits(self, job: Job) -> bool:
        """Tell whether a job's prompt and output find room beside what is held."""
        needed = math.ceil((job.prompt + job.output) / BLOCK)
        shared = 0
        for block in job.blocks:
            if block not in self._held:
                break
            shared += 1
        return len(self._held) + self._private + needed - shared <= self._room

    def take(self, job: Job) -> None:
        """Hold the leading blocks that are there, and room for everything that is not."""
        for block in job.blocks:
            if block not in self._held and block not in self._idle:
                break
            self._hold(block)
            job.held.append(block)
        job.cached = job.done = min(len(job.held) * BLOCK, job.prompt - 1)
        self._private += self._rest(job)
        self._evict()

    def computed(self, job: Job) -> None:
        """Name the blocks that are complete now; another job may have computed the same ones."""
        before = self._rest(job)
        for block in job.blocks[len(job.held) : job.done // BLOCK]:
            self._hold(block)
            job.held.append(block)
        self._private += self._rest(job) - before
        self._evict()

    def leave(self, job: Job) -> None:
        """Let go of everything; the tail of the prompt becomes the oldest."""
        self._private -= self._rest(job)
        for block in reversed(job.held):
            count = self._held[block] - 1
            if count:
                self._held[block] = count
            else:
                del self._held[block]
                self._idle[block] = None

    def _rest(self, job: Job) -> int:
        return math.ceil((job.prompt + job.output) / BLOCK) - len(job.held)

    def _hold(self, block: int) -> None:
        self._idle.pop(block, 0)
        self._held[block] = self._held.get(block, 0) + 1

    def _evict(self) -> None:
        while self._idle and len(self._held) + len(self._idle) + self._private > self._room:
            self._idle.popitem(last=False)


class Engine:
    """One replica. ``advance`` does what is due, ``wake`` says when there is something to do next.

    :param slowness: every step takes this many times as long.
    :param cache: a cache to share with other engines; none gives it its own.
    """

    def __init__(self, model: EngineModel, slowness: float = 1.0, cache: BlockCache | None = None) -> None:
        self._model = model
        self._slowness = slowness
        self._cache = BlockCache(model.capacity) if cache is None else cache
        self._queue: deque[Job] = deque()
        self._prefill: deque[Job] = deque()
        self._decode: list[tuple[int, int, Job]] = []
        self._steps = 0
        self._context = 0
        self._serial = 0
        self._span: tuple[float, int] | None = None
        self._first: list[Job] = []
        self.wake: float | None = None

    @property
    def running(self) -> int:
        """Jobs in the batch."""
        return len(self._prefill) + len(self._decode)

    def submit(self, job: Job, now: float) -> None:
        """Queue a job; a run of decode steps is cut at its next boundary."""
        self._queue.append(job)
        if self._span is None:
            self.wake = now if self.wake is None else self.wake
            return
        start, steps = self._span
        if steps > 1:
            cut = self._steps_by(now - start, steps)
            self._span = (start, cut)
            self.wake = start + self._seconds(cut)

    def advance(self, now: float) -> tuple[list[Job], list[Job]]:
        """Finish the steps that end now, begin the next; return jobs with a first token, and ended jobs."""
        first, self._first = self._first, []
        ended: list[Job] = []
        if self._span is not None:
            steps = self._span[1]
            self._span = None
            self._steps += steps
            self._context += steps * len(self._decode)
            for job in first:
                self._serial += 1
                heapq.heappush(self._decode, (self._steps + job.output - 1, self._serial, job))
                self._context += job.prompt
            while self._decode and self._decode[0][0] <= self._steps:
                job = heapq.heappop(self._decode)[2]
                self._context -= job.prompt + job.output - 1
                self._cache.leave(job)
                ended.append(job)
        self._begin(now)
        return first, ended

    def _begin(self, now: float) -> None:
        while self._queue and self.running < self._model.batch and self._admits(self._queue[0]):
            job = self._queue.popleft()
            self._cache.take(job)
            self._prefill.append(job)
            if sum(other.prompt - other.done for other in self._prefill) >= self._model.budget:
                break
        if self._prefill:
            seconds = self._chunk() + self._seconds(1)
            self._span = (now, 1)
            self.wake = now + seconds
        elif self._decode:
            steps = self._decode[0][0] - self._steps
            self._span = (now, steps)
            self.wake = now + self._seconds(steps)
        else:
            self.wake = None

    def _admits(self, job: Job) -> bool:
        return not self.running or self._cache.fits(job)

    def _chunk(self) -> float:
        """Compute up to a budget of prompt tokens; return what that costs."""
        model = self._model
        budget = max(model.budget - len(self._decode), 256)
        seconds = 0.0
        while self._prefill and budget:
            job = self._prefill[0]
            tokens = min(budget, job.prompt - job.done)
            seconds += tokens / model.prefill * (1.0 + (job.done + tokens / 2) / model.attention)
            job.done += tokens
            budget -= tokens
            self._cache.computed(job)
            if job.done < job.prompt:
                break
            self._first.append(self._prefill.popleft())
        return seconds * self._slowness

    def _seconds(self, steps: int) -> float:
        """What this many decode steps of the present batch cost."""
        count = len(self._decode)
        grown = count * steps * (steps - 1) / 2
        return (
            steps * self._model.step + self._model.context * (steps * self._context + grown)
        ) * self._slowness

    def _steps_by(self, elapsed: float, most: int) -> int:
        """The fewest steps that take at least ``elapsed``; at least one."""
        low, high = 1, most
        while low < high:
            middle = (low + high) // 2
            if self._seconds(middle) >= elapsed:
                high = middle
            else:
                low = middle + 1
        return low
