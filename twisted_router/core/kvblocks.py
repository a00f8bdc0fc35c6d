"""Which prompt the blocks in one replica's cache belong to, without a tokenizer: by links and counts.

Events name blocks by hashes of token ids, requests are text. But blocks name their parents, so what comes in
after a request was sent there forms a run, and a run that ends where the request ends, in tokens, and that
goes on from a text this request begins with, is the request's own. What fits more than one is left alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from .kvevents import Removed, Stored
from .prefix import CHUNK, Prompt
from .recent import Recent

#: Blocks remembered of one replica: far more than a cache has, for a publisher that never removes any.
BLOCKS_MOST = 1_000_000

#: Runs that wait for their request, and ended requests that wait for their run. More are not ours.
RUNS_MOST = 256
ENDED_MOST = 64

#: Seconds in which the last events of a request may come in after its answer has ended.
PATIENCE = 5.0

#: Seconds between two looks for those runs.
RETRY = 0.25

#: Tokens an answer is taken to have at most where nobody says.
ANSWER_MOST = 1024

#: How far the tokens of a prompt may be from those estimated from its bytes.
LEAST, MOST = 0.85, 1.15


class _Block:
    __slots__ = ("depth", "fingerprint", "parent", "size")

    def __init__(self, parent: int | None, depth: int, size: int) -> None:
        self.parent = parent
        self.depth = depth
        self.size = size
        self.fingerprint: int | None = None


class _Run:
    """Blocks stored one behind the other; ``last`` is when the newest came in."""

    __slots__ = ("base", "last", "tip")

    def __init__(self, base: int | None) -> None:
        self.base = base
        self.tip = 0
        self.last = 0.0


class Sent:
    """One request on its way, or lately ended.

    :ivar tokens: of its prompt, estimated until ``exact``.
    :ivar answer: most tokens its answer has.
    :ivar whole: whether all of its prompt was computed.
    :ivar ended: seconds (monotonic), None while it is on its way.
    """

    __slots__ = ("answer", "ended", "exact", "prompt", "sent", "tokens", "whole")

    def __init__(self, prompt: Prompt, tokens: float, sent: float) -> None:
        self.prompt = prompt
        self.tokens = tokens
        self.sent = sent
        self.ended: float | None = None
        self.answer = ANSWER_MOST
        self.exact = False
        self.whole = True

    def end(self, now: float, served: bool, prompt_tokens: int | None, answer: int | None) -> None:
        """Take note of how it ended, and of what the answer said of its tokens."""
        self.ended = now
        self.whole = served
        if prompt_tokens is not None:
            self.tokens = float(prompt_tokens)
            self.exact = True
        if answer is not None:
            self.answer = answer

    def fits(self, depth: int, block: int) -> bool:
        """Tell whether a run that ends ``depth`` tokens into its text may be this request's.

        Some engines keep the blocks of an answer, others only those of the prompt.
        """
        if self.exact:
            end = self.tokens + self.answer
            return self.tokens - block < depth <= self.tokens or end - block - 1 < depth <= end
        least = LEAST * self.tokens - block if self.whole else 0.0
        return least < depth <= MOST * self.tokens + self.answer


class Blocks:
    """What is cached on one replica, as far as its events tell, and which text it is.

    :ivar matched: requests that found their run.
    """

    def __init__(self) -> None:
        self.matched = 0
        self._blocks: dict[int, _Block] = {}
        self._runs: Recent[int, _Run] = Recent(RUNS_MOST)
        self._open: set[Sent] = set()
        self._ended: deque[Sent] = deque(maxlen=ENDED_MOST)
        self._retry = 0.0
        self._group: int | None = None

    def __len__(self) -> int:
        return len(self._blocks)

    def send(self, prompt: Prompt, tokens: float, now: float) -> Sent:
        """A request was sent to this replica; ``tokens`` are estimated."""
        sent = Sent(prompt, tokens, now)
        self._open.add(sent)
        return sent

    def end(self, sent: Sent) -> tuple[int, ...]:
        """A request is over (``Sent.end`` was called); see ``match``."""
        self._open.discard(sent)
        run = self._run_of(sent)
        if run is not None:
            return self._attribute(sent, run)
        if sent.prompt.chain:
            self._ended.append(sent)
        return ()

    def store(self, event: Stored, now: float) -> None:
        """Blocks came in. Without a known parent there is no telling where in a text they are."""
        parent, depth = event.parent, 0
        if not event.counts or not event.hashes:
            return
        if parent is not None:
            block = self._blocks.get(parent)
            if block is None:
                return
            depth = block.depth
        self._group = event.group
        run = None if parent is None else self._runs.discard(parent)
        if run is None:
            run = _Run(parent)
        for name in event.hashes:
            depth += event.block_size
            if name not in self._blocks:
                self._blocks[name] = _Block(parent, depth, event.block_size)
            parent = name
        run.tip, run.last = event.hashes[-1], now
        self._runs.put(run.tip, run)
        if len(self._blocks) > BLOCKS_MOST:
            self.clear()

    def remove(self, event: Removed) -> set[int]:
        """Blocks left; return the fingerprints of the text that is gone with them."""
        if not event.counts or (event.group is not None and event.group != self._group):
            return set()
        lost = set()
        for name in event.hashes:
            block = self._blocks.pop(name, None)
            if block is not None and block.fingerprint is not None:
                lost.add(block.fingerprint)
            self._runs.discard(name)
        return lost

    def clear(self) -> None:
        """Nothing is known to be cached any more."""
        self._blocks.clear()
        self._runs = Recent(RUNS_MOST)

    def match(self, now: float) -> list[tuple[int, ...]]:
        """Give ended requests the runs that came late; return the fingerprints known to be cached of each."""
        found: list[tuple[int, ...]] = []
        if now < self._retry:
            return found
        self._retry = now + RETRY
        for _ in range(len(self._ended)):
            sent = self._ended.popleft()
            run = self._run_of(sent)
            if run is not None:
                found.append(self._attribute(sent, run))
            elif now - (sent.ended or 0.0) < PATIENCE:
                self._ended.append(sent)
        return found

    def _run_of(self, sent: Sent) -> _Run | None:
        """The one run that can only be this request's, or None."""
        runs = [run for run in self._runs.values() if self._is_possible(sent, run)]
        if len(runs) != 1:
            return None
        rivals: Iterable[Sent] = () if sent.exact else (*self._open, *self._ended)
        chain = sent.prompt.chain
        if any(rival.prompt.chain != chain and self._is_possible(rival, runs[0]) for rival in rivals):
            return None
        return runs[0]

    def _is_possible(self, sent: Sent, run: _Run) -> bool:
        tip = self._blocks[run.tip]
        if run.last < sent.sent or not sent.fits(tip.depth, tip.size):
            return False
        if sent.ended is not None and run.last > sent.ended + PATIENCE:
            return False
        return self._is_continued(sent.prompt, run.base)

    def _is_continued(self, prompt: Prompt, name: int | None) -> bool:
        """Tell whether a prompt begins with the text up to a block, as far as that is known.

        Where two texts part, the last block they share lies in a chunk they do not: one may differ.
        """
        odd: int | None = None
        while name is not None:
            block = self._blocks.get(name)
            if block is None:
                return False
            if block.fingerprint is not None and block.fingerprint != odd:
                if odd is not None or block.fingerprint in prompt.chain:
                    return block.fingerprint in prompt.chain
                odd = block.fingerprint
            name = block.parent
        return True

    def _attribute(self, sent: Sent, run: _Run) -> tuple[int, ...]:
        """Note which chunk each block lies in, from the run's end up to what is known already."""
        self._runs.discard(run.tip)
        self.matched += 1
        chain = sent.prompt.chain
        bytes_each = sent.prompt.size / max(1.0, sent.tokens)
        covered = min(self._blocks[run.tip].depth, sent.tokens) * bytes_each
        block: _Block | None = self._blocks[run.tip]
        while block is not None and block.fingerprint is None:
            at = int((block.depth - block.size) * bytes_each / CHUNK)
            if at < len(chain):
                block.fingerprint = chain[at]
            block = None if block.parent is None else self._blocks.get(block.parent)
        return chain[: int(covered / CHUNK)]
