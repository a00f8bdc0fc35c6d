"""The working-set gate: conversations wait between turns while the caches cannot hold one more of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from attrs import frozen

from .conversations import Conversation, Presence
from .learning import Capacity
from .vocabulary import Ask, Candidate, Outcome, Policy, Reason, Trace

#: Part of the previous turn that has to be in the cache for a turn to count as a hit.
FOUND = 0.9


class ConversationTrace(Trace, Protocol):
    """A trace that knows which conversation it belongs to."""

    @property
    def conversation(self) -> Conversation | None:
        """The conversation, or None for a request that belongs to none."""


class Tracking(Policy, Protocol):
    """A policy that tells conversations apart."""

    def find(self, ask: Ask) -> Conversation | None:
        """The conversation a request belongs to, or None for a new one."""

    def tokens(self, ask: Ask) -> float:
        """Estimated prompt tokens of a request."""

    def is_bulk(self, ask: Ask) -> bool:
        """Whether a request will probably have no second turn."""

    def observe(self, ask: Ask, chosen: Candidate, reason: Reason) -> ConversationTrace | None:
        """As every policy's."""


@frozen
class Marks:
    """When the gate closes. Shares are of a replica's capacity.

    :ivar open: a conversation may settle where it fits below this.
    :ivar high: above it, idle conversations are parked ...
    :ivar low: ... until what is left is below this.
    :ivar window: seconds an idle conversation keeps its room: a tool's run time, or twice that.
    :ivar spare: tokens added for each conversation, for the answer under way.
    """

    open: float = 0.90
    high: float = 0.95
    low: float = 0.90
    window: float = 60.0
    spare: float = 400.0


class Gate:
    """Wraps a policy; says who may enter, and sends those who had to wait where there is room.

    Only between turns: a conversation that has its place keeps it while it is in use. Requests that will
    have no second turn are never held. Without a capacity, given, reported or learned, nothing is held.

    :param capacity: tokens each replica's cache holds, or 0 to use what is reported or learned.
    :ivar policy: the one behind it.
    """

    def __init__(self, policy: Tracking, capacity: float = 0.0, marks: Marks | None = None) -> None:
        self.policy = policy
        self._given = capacity
        self._marks = marks or Marks()
        self._reported: dict[str, float] = {}
        self._learned: dict[str, Capacity] = {}
        self._present = Presence(self._marks.window)

    @property
    def wants_prompt(self) -> bool:
        """As the policy behind it."""
        return self.policy.wants_prompt

    # Admission

    def report_capacity(self, instance: str, tokens: float) -> None:
        """A replica told how many tokens its cache holds."""
        self._reported[instance] = tokens

    def capacity(self, instance: str) -> float | None:
        """Tokens of one replica: as given, as reported, as learned, or None.

        One whose answers have not shown it yet is taken for what the others of its kind have shown.
        """
        if self._given:
            return self._given
        told = self._reported.get(instance)
        if told is not None:
            return told
        learned = self._learned.get(instance)
        if learned is not None and learned.value is not None:
            return learned.value
        shown = sorted(other.value for other in self._learned.values() if other.value is not None)
        return shown[len(shown) // 2] if shown else None

    def footprint(self, instance: str) -> float:
        """Tokens of the conversations that are in use on one replica."""
        return self._present.at(instance)

    def admits(self, ask: Ask, candidates: Sequence[Candidate], ahead: int = 0) -> bool:
        """Tell whether a request may be sent now.

        :param ahead: how many wait already; a new conversation does not overtake them.
        """
        self._present.expire(ask.now)
        known = self.policy.find(ask)
        if known is not None and (known.inflight or self._is_present(known)):
            return True
        if self.policy.is_bulk(ask):
            return True
        if ahead and known is None:
            return False
        return bool(self._roomy(ask, candidates))

    def rank(self, ask: Ask) -> int:
        """The order among those who wait: most turns done first, for they are the nearest to their end."""
        known = self.policy.find(ask)
        return 0 if known is None else -known.turns

    def _is_present(self, known: Conversation) -> bool:
        return known.home is not None and self._present.share(known, known.home) > 0.0

    def _roomy(self, ask: Ask, candidates: Sequence[Candidate]) -> list[int]:
        """Positions of the replicas with room for one more; an idle one always has."""
        needed = self.policy.tokens(ask) + self._marks.spare
        roomy = []
        for position, candidate in enumerate(candidates):
            capacity = self.capacity(candidate.instance)
            held = self._present.at(candidate.instance)
            if capacity is None or not held or held + needed <= self._marks.open * capacity:
                roomy.append(position)
        return roomy

    # The policy behind

    def choose(self, ask: Ask, candidates: Sequence[Candidate]) -> tuple[int, Reason]:
        """Let the policy choose, among the replicas with room where the conversation has no place yet."""
        self._present.expire(ask.now)
        known = self.policy.find(ask)
        if (known is None or not self._is_present(known)) and not self.policy.is_bulk(ask):
            roomy = self._roomy(ask, candidates)
            if roomy and len(roomy) < len(candidates):
                position, reason = self.policy.choose(ask, [candidates[at] for at in roomy])
                return roomy[position], reason
        return self.policy.choose(ask, candidates)

    def observe(self, ask: Ask, chosen: Candidate, reason: Reason) -> Trace | None:
        """Count the conversation where it goes."""
        bulk = self.policy.is_bulk(ask)
        tokens = self.policy.tokens(ask)
        trace = self.policy.observe(ask, chosen, reason)
        conversation = None if trace is None else trace.conversation
        if trace is None or conversation is None:
            return trace
        instance = chosen.instance
        learned = self._learned.get(instance)
        if learned is None:
            learned = self._learned[instance] = Capacity(instance)
        span = learned.distance(conversation)
        learned.touch(conversation, tokens - conversation.shared)
        if not bulk:
            self._count(conversation, instance, tokens)
        return _Held(self, trace, conversation, instance, tokens, span)

    def settled(self, held: _Held, now: float, outcome: Outcome) -> None:
        """A turn is over: learn from it, and park others if the replica is overfull."""
        conversation, instance = held.conversation, held.instance
        learned = self._learned.get(instance)
        if learned is not None and outcome.served:
            if held.span is not None and outcome.cached_tokens is not None and held.before >= 2048.0:
                learned.sample(held.span, outcome.cached_tokens >= FOUND * held.before)
            learned.touch(conversation, (outcome.prompt_tokens or held.tokens) - conversation.shared)
        if not conversation.inflight and self._present.share(conversation, instance):
            tokens = float(outcome.prompt_tokens or held.tokens) + (outcome.completion_tokens or 0)
            self._count(conversation, instance, tokens)
            self._present.rest(conversation, now)
        self._park(instance)

    def _count(self, conversation: Conversation, instance: str, tokens: float) -> None:
        """What a conversation shares with others takes room once, so it is left out of each one's part."""
        own = max(0.0, tokens - conversation.shared)
        self._present.set(conversation, instance, own + self._marks.spare)

    def _park(self, instance: str) -> None:
        capacity = self.capacity(instance)
        if capacity is None or self._present.at(instance) <= self._marks.high * capacity:
            return
        idle = self._present.idle(instance)
        idle.sort(key=lambda conversation: self._present.share(conversation, instance))
        for conversation in idle:
            if self._present.at(instance) <= self._marks.low * capacity:
                break
            self._present.remove(conversation)

    def replica_gone(self, instance: str) -> None:
        """Its conversations have no place any more."""
        self.policy.replica_gone(instance)
        self._present.clear(instance)
        self._reported.pop(instance, None)
        self._learned.pop(instance, None)

    def session_ended(self, session: str) -> None:
        """Its room is free at once."""
        known = self.policy.find(Ask(session, None, 0.0))
        if known is not None:
            self._present.remove(known)
        self.policy.session_ended(session)


class _Held:
    __slots__ = ("_gate", "_trace", "before", "conversation", "instance", "span", "tokens")

    def __init__(
        self,
        gate: Gate,
        trace: Trace,
        conversation: Conversation,
        instance: str,
        tokens: float,
        span: float | None,
    ) -> None:
        self._gate = gate
        self._trace = trace
        self.conversation = conversation
        self.instance = instance
        self.tokens = tokens
        self.span = span
        self.before = conversation.before

    def first_byte(self, now: float) -> None:
        """As the policy behind wishes."""
        self._trace.first_byte(now)

    def ended(self, now: float, outcome: Outcome) -> None:
        """The turn is over."""
        self._trace.ended(now, outcome)
        self._gate.settled(self, now, outcome)
