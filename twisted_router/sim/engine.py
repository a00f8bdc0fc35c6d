"""The model of a serving engine: a bounded prefix cache, chunked prefill, batched decode, a FIFO queue.

Pure: no clock, no text, no sockets. A caller submits :class:`Work`, asks :meth:`Engine.step` what has
happened by ``now`` and when to ask again; the simulated replica does so in real time, a simulation in virtual
time. Prompt and output room is reserved when a job is admitted, so nothing is ever preempted; prompt blocks
enter the cache as they are computed, output never does (it comes back as part of the next turn's prompt).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Sequence
from math import inf
from typing import Protocol

from attrs import define, field, frozen


class DoesNotFit(ValueError):
    """Work that needs more blocks than the engine has; waiting would not help."""


@frozen
class CostModel:
    """How long one step takes, in seconds.

    :ivar step: fixed part of each step (weights, launch overhead).
    :ivar prefill_rate: prompt tokens a second at the start of a context.
    :ivar attention_span: context length at which a prompt token costs twice as much; ``inf`` for never.
    :ivar per_sequence: added for each sequence that decodes.
    :ivar per_context: added for each context token of each sequence that decodes.
    """

    step: float = 0.02
    prefill_rate: float = 2000.0
    attention_span: float = inf
    per_sequence: float = 0.0
    per_context: float = 0.0

    def chunk(self, tokens: int, start: int) -> float:
        """Seconds to prefill ``tokens`` whose first one has ``start`` tokens before it."""
        middle = start + tokens / 2
        return tokens * (1.0 + middle / self.attention_span) / self.prefill_rate

    def decode(self, sequences: int, context: int) -> float:
        """Seconds that ``sequences`` with ``context`` tokens in all add to a step."""
        return sequences * self.per_sequence + context * self.per_context


@frozen
class Limits:
    """What one engine can hold.

    :ivar block_size: tokens a cache block holds.
    :ivar kv_tokens: tokens of KV memory, running and cached ones together.
    :ivar max_num_seqs: sequences that run at once; the others wait.
    :ivar batch_tokens: tokens one step may compute, decode and prefill together.
    """

    block_size: int = 16
    kv_tokens: int = 262_144
    max_num_seqs: int = 64
    batch_tokens: int = 2048

    @property
    def blocks(self) -> int:
        """Whole blocks of KV memory."""
        return self.kv_tokens // self.block_size


@frozen
class Work:
    """What is asked of the engine.

    :ivar chain: one key for each *full* block of the prompt; a key stands for its block and all before it.
    :ivar prompt_tokens: at least 1.
    :ivar output_tokens: at least 1; the sequence ends when it has generated them.
    """

    chain: Sequence[Hashable]
    prompt_tokens: int
    output_tokens: int


@define(eq=False)
class Job:
    """One piece of work on its way; read it, only the engine writes it. Times are the caller's seconds.

    :ivar cached_tokens: prompt tokens found in the cache at admission.
    :ivar computed: prompt tokens whose KV exists, cached ones included.
    :ivar generated: output tokens so far.
    """

    work: Work
    submitted_at: float
    first_token_at: float | None = None
    finished_at: float | None = None
    aborted: bool = False
    cached_tokens: int = 0
    computed: int = 0
    generated: int = 0
    _shared: int = 0
    _private: int = 0

    @property
    def done(self) -> bool:
        """Whether it has finished or was aborted."""
        return self.aborted or self.finished_at is not None


@frozen
class Step:
    """What :meth:`Engine.step` found.

    :ivar tokens: sequences that have one more output token; ``generated == 1`` marks the first.
    :ivar finished: those of them that are complete.
    :ivar wake: when to call again, or None when there is nothing to do until the next ``submit``.
    """

    tokens: tuple[Job, ...]
    finished: tuple[Job, ...]
    wake: float | None


class Watcher(Protocol):
    """Who wants to know what comes into the cache and what leaves it."""

    def stored(self, key: Hashable, parent: Hashable | None) -> None:
        """A block came in; ``parent`` is the one before it in its text."""

    def removed(self, key: Hashable) -> None:
        """A block made room for others."""


class BlockCache:
    """A bounded set of KV blocks: held by running sequences (shared or private), or idle in LRU order.

    :ivar watcher: told of every change, or None.
    """

    def __init__(self, blocks: int) -> None:
        self.watcher: Watcher | None = None
        self.blocks = blocks
        self._held: dict[Hashable, int] = {}
        self._idle: OrderedDict[Hashable, None] = OrderedDict()
        self._private = 0

    @property
    def in_use(self) -> int:
        """Blocks that running sequences hold; never more than ``blocks``."""
        return len(self._held) + self._private

    @property
    def idle(self) -> int:
        """Blocks that only a later prompt could use; the next reservation may evict them."""
        return len(self._idle)

    def match(self, chain: Sequence[Hashable]) -> int:
        """How many leading blocks of ``chain`` are present."""
        for index, key in enumerate(chain):
            if key not in self._held and key not in self._idle:
                return index
        return len(chain)

    def reserve(self, shared: Sequence[Hashable], private: int) -> bool:
        """Hold the present blocks ``shared`` and ``private`` new ones.

        False, and nothing has changed, when there is no room.
        """
        waking = sum(1 for key in shared if key in self._idle)
        if self.in_use + waking + private > self.blocks:
            return False
        for key in shared:
            self._hold(key)
        self._private += private
        while self.in_use + len(self._idle) > self.blocks:
            self._drop()
        return True

    def publish(self, key: Hashable, parent: Hashable | None = None) -> None:
        """Turn one private block into a shared one under ``key``, which follows ``parent`` in its text."""
        self._private -= 1
        if self.watcher is not None and key not in self._held and key not in self._idle:
            self.watcher.stored(key, parent)
        self._hold(key)

    def release(self, shared: Sequence[Hashable], private: int) -> None:
        """Give back what :meth:`reserve` and :meth:`publish` took; the deepest block is evicted first."""
        self._private -= private
        for key in reversed(shared):
            holders = self._held[key] - 1
            if holders:
                self._held[key] = holders
            else:
                del self._held[key]
                self._idle[key] = None

    def forget(self) -> None:
        """Drop every idle block."""
        while self._idle:
            self._drop()

    def _drop(self) -> None:
        key, _ = self._idle.popitem(last=False)
        if self.watcher is not None:
            self.watcher.removed(key)

    def _hold(self, key: Hashable) -> None:
        self._idle.pop(key, None)
        self._held[key] = self._held.get(key, 0) + 1


@define
class Totals:
    """Counters since the engine was made."""

    finished: int = 0
    aborted: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


@define(eq=False)
class Engine:
    """Admits, prefills and decodes; one step is in flight at a time.

    :ivar totals: counters; ``prompt_tokens`` and ``cached_tokens`` grow at admission.
    """

    limits: Limits = field(factory=Limits)
    cost: CostModel = field(factory=CostModel)
    totals: Totals = field(factory=Totals, init=False)
    cache: BlockCache = field(init=False)
    _waiting: deque[Job] = field(factory=deque, init=False)
    _running: dict[Job, None] = field(factory=dict, init=False)
    _chunks: list[tuple[Job, int]] = field(factory=list, init=False)
    _decoding: list[Job] = field(factory=list, init=False)
    _ends: float | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.cache = BlockCache(self.limits.blocks)

    @property
    def waiting(self) -> int:
        """Sequences not yet admitted."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Sequences admitted and not ended."""
        return len(self._running)

    @property
    def kv_usage(self) -> float:
        """Share of the blocks that running sequences hold, 0 to 1."""
        return self.cache.in_use / self.cache.blocks

    def submit(self, work: Work, now: float) -> Job:
        """Queue ``work``; call :meth:`step` afterwards unless a step is in flight.

        Raises :class:`DoesNotFit`, and ValueError for work without prompt or output.
        """
        if work.prompt_tokens < 1 or work.output_tokens < 1:
            raise ValueError("work needs at least one prompt token and one output token")
        if self._blocks_for(work) > self.limits.blocks:
            raise DoesNotFit(
                f"{work.prompt_tokens} prompt and {work.output_tokens} output tokens exceed "
                f"{self.limits.kv_tokens} tokens of KV memory"
            )
        sequence = Job(work, now)
        self._waiting.append(sequence)
        return sequence

    def abort(self, sequence: Job) -> None:
        """End ``sequence`` at once and free what it holds; nothing when it has ended already."""
        if sequence.done:
            return
        sequence.aborted = True
        self.totals.aborted += 1
        if sequence in self._running:
            self._leave(sequence)
        else:
            self._waiting.remove(sequence)

    def step(self, now: float) -> Step:
        """Settle the step in flight when it is over by ``now``, and begin the next one at ``now``."""
        tokens: tuple[Job, ...] = ()
        finished: tuple[Job, ...] = ()
        if self._ends is not None:
            if now < self._ends:
                return Step((), (), self._ends)
            tokens = self._settle(now)
            finished = tuple(sequence for sequence in tokens if sequence.finished_at is not None)
        self._ends = self._begin(now)
        return Step(tokens, finished, self._ends)

    def _begin(self, now: float) -> float | None:
        self._decoding = [sequence for sequence in self._running if sequence.generated]
        budget = self.limits.batch_tokens - len(self._decoding)
        self._chunks = []
        for sequence in self._running:
            if budget > 0 and not sequence.generated:
                budget -= self._schedule(sequence, budget)
        while budget > 0 and self._waiting and self._admit(self._waiting[0]):
            budget -= self._schedule(self._waiting.popleft(), budget)
        if not self._running:
            return None
        context = sum(sequence.computed + sequence.generated for sequence in self._decoding)
        cost = self.cost.step + self.cost.decode(len(self._decoding), context)
        return now + cost + sum(self.cost.chunk(size, sequence.computed) for sequence, size in self._chunks)

    def _schedule(self, sequence: Job, budget: int) -> int:
        size = min(budget, sequence.work.prompt_tokens - sequence.computed)
        self._chunks.append((sequence, size))
        return size

    def _admit(self, sequence: Job) -> bool:
        if len(self._running) >= self.limits.max_num_seqs:
            return False
        work = sequence.work
        # The last prompt token is always computed: its logits give the first output token.
        usable = work.chain[: (work.prompt_tokens - 1) // self.limits.block_size]
        shared = self.cache.match(usable)
        private = self._blocks_for(work) - shared
        if not self.cache.reserve(work.chain[:shared], private):
            return False
        sequence.cached_tokens = sequence.computed = shared * self.limits.block_size
        sequence._shared, sequence._private = shared, private
        self.totals.prompt_tokens += work.prompt_tokens
        self.totals.cached_tokens += sequence.cached_tokens
        self._running[sequence] = None
        return True

    def _settle(self, now: float) -> tuple[Job, ...]:
        stepped = [sequence for sequence in self._decoding if not sequence.aborted]
        for sequence, size in self._chunks:
            if sequence.aborted:
                continue
            sequence.computed += size
            self._publish(sequence)
            if sequence.computed == sequence.work.prompt_tokens:
                sequence.first_token_at = now
                stepped.append(sequence)
        self.totals.output_tokens += len(stepped)
        for sequence in stepped:
            sequence.generated += 1
            if sequence.generated == sequence.work.output_tokens:
                sequence.finished_at = now
                self.totals.finished += 1
                self._leave(sequence)
        return tuple(stepped)

    def _publish(self, sequence: Job) -> None:
        full = min(sequence.computed // self.limits.block_size, len(sequence.work.chain))
        parent = sequence.work.chain[sequence._shared - 1] if sequence._shared else None
        for key in sequence.work.chain[sequence._shared : full]:
            self.cache.publish(key, parent)
            sequence._private -= 1
            parent = key
        sequence._shared = max(full, sequence._shared)

    def _leave(self, sequence: Job) -> None:
        del self._running[sequence]
        self.cache.release(sequence.work.chain[: sequence._shared], sequence._private)

    def _blocks_for(self, work: Work) -> int:
        return -(-(work.prompt_tokens + work.output_tokens) // self.limits.block_size)
