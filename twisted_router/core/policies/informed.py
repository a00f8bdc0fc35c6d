"""Corrects a policy's fingerprints by what replicas tell of their caches; free where it is not used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from ..kvblocks import Blocks, Sent
from ..kvevents import KvEvent, Removed, Stored
from ..prefix import NO_PROMPT, PrefixIndex
from .conversations import Conversation
from .gate import ConversationTrace, Tracking
from .learning import Density
from .vocabulary import Ask, Candidate, Outcome, Policy, Reason, Trace


class Seated(Protocol):
    """What a policy notes of one replica."""

    @property
    def bit(self) -> int:
        """Its place in the masks of the index."""


class Indexed(Policy, Protocol):
    """A policy that keeps fingerprints."""

    @property
    def index(self) -> PrefixIndex[Conversation] | PrefixIndex[None]:
        """Which replica was sent which text."""

    def seat(self, instance: str) -> Seated:
        """Its note of one replica."""

    def observe(self, ask: Ask, chosen: Candidate, reason: Reason) -> Trace:
        """As every policy's; it always cares."""


class IndexedTracking(Indexed, Tracking, Protocol):
    """One that tells conversations apart as well."""

    def observe(self, ask: Ask, chosen: Candidate, reason: Reason) -> ConversationTrace:
        """As every policy's."""


class Informed:
    """Stands before a policy that keeps fingerprints.

    What is written when a request is sent stays the rule. Events only take back what a replica has dropped,
    and bring back what it kept of a request that failed.
    """

    def __init__(self, policy: Indexed) -> None:
        self._policy = policy
        self._density = Density()
        self._replicas: dict[str, Blocks] = {}

    @property
    def wants_prompt(self) -> bool:
        """As the policy behind it."""
        return self._policy.wants_prompt

    def choose(self, ask: Ask, candidates: Sequence[Candidate]) -> tuple[int, Reason]:
        """As the policy behind it."""
        return self._policy.choose(ask, candidates)

    def observe(self, ask: Ask, chosen: Candidate, reason: Reason) -> Followed:
        """Remember what was sent where, to know it again among the replica's events."""
        trace = self._policy.observe(ask, chosen, reason)
        prompt = ask.prompt or NO_PROMPT
        blocks = self._replicas.get(chosen.instance)
        if blocks is None:
            return Followed(self, trace, chosen.instance, None)
        return Followed(
            self, trace, chosen.instance, blocks.send(prompt, prompt.size * self._density.value, ask.now)
        )

    def replica_gone(self, instance: str) -> None:
        """Forget what it told; it is listened to no more until ``listen``."""
        self._replicas.pop(instance, None)
        self._policy.replica_gone(instance)

    def session_ended(self, session: str) -> None:
        """As the policy behind it."""
        self._policy.session_ended(session)

    # What replicas tell

    def listen(self, instance: str) -> None:
        """This replica's events are to come, or to be believed again."""
        self._replicas.setdefault(instance, Blocks())

    def told(self, instance: str, events: Iterable[KvEvent], now: float) -> tuple[int, int]:
        """Take note of a batch; return how many chunks were lost, and requests matched since the last one."""
        blocks = self._replicas.get(instance)
        if blocks is None:
            return 0, 0
        forgotten = 0
        for event in events:
            if isinstance(event, Stored):
                blocks.store(event, now)
            elif isinstance(event, Removed):
                lost = blocks.remove(event)
                forgotten += len(lost)
                self._policy.index.drop(lost, self._policy.seat(instance).bit)
            else:
                self.emptied(instance)
        for chain in blocks.match(now):
            self._policy.index.mark(chain, self._policy.seat(instance).bit)
        matched, blocks.matched = blocks.matched, 0
        return forgotten, matched

    def emptied(self, instance: str) -> None:
        """Its cache holds nothing now."""
        blocks = self._replicas.get(instance)
        if blocks is not None:
            blocks.clear()
            self._policy.index.forget(self._policy.seat(instance).bit)

    def missed(self, instance: str) -> None:
        """Events were lost: what is known of its blocks is worth nothing, what it was sent still is."""
        blocks = self._replicas.get(instance)
        if blocks is not None:
            blocks.clear()

    def distrust(self, instance: str) -> None:
        """Its events are not understood: rely on what it is sent alone."""
        self._replicas.pop(instance, None)

    def ended(self, instance: str, sent: Sent, now: float, outcome: Outcome) -> None:
        """A request is over."""
        if outcome.prompt_tokens is not None:
            self._density.sample(outcome.prompt_tokens, sent.prompt.size)
        sent.end(now, outcome.served, outcome.prompt_tokens, outcome.completion_tokens)
        blocks = self._replicas.get(instance)
        if blocks is not None:
            self._policy.index.mark(blocks.end(sent), self._policy.seat(instance).bit)


class InformedTracking(Informed):
    """The same behind a gate, which asks about conversations."""

    def __init__(self, policy: IndexedTracking) -> None:
        super().__init__(policy)
        self.find = policy.find
        self.tokens = policy.tokens
        self.is_bulk = policy.is_bulk


class Followed:
    """A request of a replica that tells of its cache; the policy's own trace comes first."""

    __slots__ = ("_informed", "_instance", "_sent", "_trace")

    def __init__(self, informed: Informed, trace: Trace, instance: str, sent: Sent | None) -> None:
        self._informed = informed
        self._trace = trace
        self._instance = instance
        self._sent = sent

    @property
    def conversation(self) -> Conversation | None:
        """What a gate asks for."""
        return getattr(self._trace, "conversation", None)

    def first_byte(self, now: float) -> None:
        """As the policy behind wishes."""
        self._trace.first_byte(now)

    def ended(self, now: float, outcome: Outcome) -> None:
        """The request is over."""
        self._trace.ended(now, outcome)
        if self._sent is not None:
            self._informed.ended(self._instance, self._sent, now, outcome)
