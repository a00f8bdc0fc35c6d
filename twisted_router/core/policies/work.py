"""``work``: every request goes where it costs the fleet the fewest seconds; ids are optional."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import inf

from attrs import frozen

from ..prefix import CHUNK, NO_PROMPT, Match, PrefixIndex, Prompt
from .conversations import Conversation, Conversations, Presence
from .learning import SAMPLE_TOKENS, Density, FollowUps, PrefillRate
from .seats import Seats
from .vocabulary import Ask, Candidate, Outcome, Reason

#: Conversations remembered by id. The index still leads those forgotten to their text.
CONVERSATIONS = 65_536

#: A conversation that will come back less likely than this is not kept count of.
LEAST_WEIGHT = 0.01

_QUEUED, _DECODING, _OVER = range(3)


@frozen
class Weights:
    """The constants of the cost, tuned in the laboratory.

    :ivar stall: part of a prefill that each request in flight there waits through.
    :ivar waste: part of it charged once more for each request of the mean replica: capacity others lack.
    :ivar idle: part of it charged even when nobody is there to lack it.
    :ivar fair: requests a replica carries well however idle the fleet is.
    :ivar seat: seconds each request in flight costs the others.
    :ivar excess: how much more, squared, those beyond the idlest replica's cost.
    :ivar live: seconds each conversation living there costs, in turns still to come.
    :ivar margin: seconds a move has to save.
    :ivar sharp: how suddenly a beginning in demand becomes worth another copy.
    :ivar window: seconds an idle conversation counts as living.
    :ivar doubtful: follow-up chance below which nameless requests count as bulk.
    """

    stall: float = 1.4
    waste: float = 0.3
    idle: float = 1.0
    fair: float = 8.0
    seat: float = 0.05
    excess: float = 0.6
    live: float = 0.3
    margin: float = 1.0
    sharp: float = 3.0
    window: float = 120.0
    doubtful: float = 0.3


class Seat:
    """What is known of one replica.

    :ivar bit: its place in the masks of the index.
    :ivar waiting: estimated uncached tokens of requests without a first byte.
    :ivar decoding: requests past their first byte.
    :ivar silent: requests that do not stream, with the time their prefill should be over.
    """

    __slots__ = ("bit", "decoding", "rate", "silent", "waiting")

    def __init__(self, bit: int, rate: float) -> None:
        self.bit = bit
        self.waiting = 0.0
        self.decoding = 0
        self.rate = PrefillRate(rate)
        self.silent: deque[tuple[float, _Sent]] = deque()

    def hush(self, now: float) -> None:
        """Count those as decoding that do not stream and should have their prompt computed by now."""
        silent = self.silent
        while silent and silent[0][0] <= now:
            silent.popleft()[1].computed()


@frozen
class _Look:
    """What is known of one request before it is sent."""

    ask: Ask
    prompt: Prompt
    match: Match[Conversation]
    conversation: Conversation | None

    @property
    def is_sample(self) -> bool:
        """Whether a request with the same text is in flight: one of several answers to one prompt."""
        match = self.match
        return (
            self.conversation is None and 0 < match.depth == len(self.prompt.chain) and match.demand[-1] > 0.0
        )


class Work:
    """Weighs prefill to repeat against queueing to avoid, both in seconds; moves only where that pays.

    :param session_ttl: seconds of idleness after which a conversation is forgotten.
    :param slack: a conversation leaves a replica that has this many more requests than the idlest whatever it
        costs, and with 0 goes where it costs least every time; None leaves that to the cost.
    """

    wants_prompt = True

    def __init__(
        self, session_ttl: float = 600.0, slack: int | None = None, weights: Weights | None = None
    ) -> None:
        self._weights = weights or Weights()
        self._slack = slack
        self.index: PrefixIndex[Conversation] = PrefixIndex()
        self.conversations = Conversations(session_ttl, CONVERSATIONS)
        self.density = Density()
        self.follow_ups = FollowUps()
        self.live = Presence(self._weights.window)
        self._seats: Seats[Seat] = Seats(self._new_seat)
        self._turn = 0
        self._last: _Look | None = None

    def _new_seat(self, bit: int) -> Seat:
        rates = sorted(seat.rate.value for seat in self._seats.all())
        return Seat(bit, rates[len(rates) // 2]) if rates else Seat(bit, PrefillRate().value)

    def seat(self, instance: str) -> Seat:
        """The figures of one replica."""
        return self._seats.of(instance)

    def find(self, ask: Ask) -> Conversation | None:
        """The conversation a request belongs to, or None for a new one."""
        return self._look(ask).conversation

    def tokens(self, ask: Ask) -> float:
        """Estimated prompt tokens of a request."""
        return (ask.prompt or NO_PROMPT).size * self.density.value

    def is_bulk(self, ask: Ask) -> bool:
        """Whether a request will probably have no second turn."""
        return (
            ask.session is None and self.follow_ups.value < self._weights.doubtful and self.find(ask) is None
        )

    def choose(self, ask: Ask, candidates: Sequence[Candidate]) -> tuple[int, Reason]:
        """Take the lowest cost; stay home unless moving saves the margin."""
        self.live.expire(ask.now)
        look = self._look(ask)
        costs = self._costs(look, candidates)
        best = self._cheapest(costs)
        known = look.conversation
        if known is None or known.home is None:
            self._turn = best + 1
            warm = look.match.on(self._seats.of(candidates[best].instance).bit)
            return best, Reason.WARM_PREFIX if warm else Reason.COLD_PREFIX
        home = next((at for at, one in enumerate(candidates) if one.instance == known.home), None)
        if home is None:
            self._turn = best + 1
            return best, Reason.HOME_GONE
        if self._slack is not None:
            if not self._slack:
                return best, Reason.AFFINITY_OFF
            most = self._slack + min(one.outstanding for one in candidates)
            if candidates[home].outstanding > most:
                paired = zip(costs, candidates, strict=True)
                return self._cheapest(
                    [inf if one.outstanding > most else cost for cost, one in paired]
                ), Reason.OVER_SLACK
        if home == best or costs[home] - costs[best] < self._weights.margin:
            return home, Reason.PINNED
        return best, Reason.CHEAPER_ELSEWHERE

    def _cheapest(self, costs: Sequence[float]) -> int:
        """The position of the lowest cost, equal ones in turn."""
        count = len(costs)
        turn = self._turn % count
        best = turn
        for position in (*range(turn + 1, count), *range(turn)):
            if costs[position] < costs[best] - 1e-9:
                best = position
        return best

    def _look(self, ask: Ask) -> _Look:
        last = self._last
        if last is not None and last.ask is ask:
            return last
        prompt = ask.prompt or NO_PROMPT
        match = self.index.look(prompt.chain)
        if ask.session is not None:
            known = self.conversations.find(ask.session, ask.now)
        else:
            known = self.conversations.continued(prompt, match, ask.now)
        self._last = _Look(ask, prompt, match, known)
        return self._last

    def _costs(self, look: _Look, candidates: Sequence[Candidate]) -> list[float]:
        """Seconds each candidate would cost, itself and the others together."""
        weights = self._weights
        seats = [self._seats.of(candidate.instance) for candidate in candidates]
        for seat in seats:
            if seat.silent:
                seat.hush(look.ask.now)
        outs = [candidate.outstanding for candidate in candidates]
        count = len(seats)
        mean = sum(outs) / count
        least = min(outs)
        quickest = max(seat.rate.value for seat in seats)
        tokens = look.prompt.size * self.density.value
        wanted = self._wanted(look, max(mean, weights.fair))
        known = look.conversation
        crowd = 0.0 if self.is_bulk(look.ask) or look.is_sample else weights.live
        costs = []
        for candidate, seat, out in zip(candidates, seats, outs, strict=True):
            pace = 1.0 / seat.rate.value
            slow = quickest * pace
            depth = look.match.on(seat.bit)
            unknown = max(64.0, tokens - depth * CHUNK * self.density.value)
            live = self.live.at(candidate.instance)
            if known is not None:
                live -= self.live.share(known, candidate.instance)
            costs.append(
                (seat.waiting + unknown) * pace
                + max(64.0, unknown - wanted[depth])
                * pace
                * (seat.decoding + weights.stall * out + weights.waste * mean + weights.idle)
                + weights.seat * slow * (out + weights.excess * (out - least) ** 2)
                + crowd * slow * live
            )
        return costs

    def _wanted(self, look: _Look, mean: float) -> list[float]:
        """Tokens that are no loss to compute once more, by the depth from which they are missing.

        A beginning that more requests in flight share than the replicas that have it can fairly carry will
        be needed elsewhere anyway; the first to go there computes it for those that follow.
        """
        worth = CHUNK * self.density.value
        demand = look.match.demand
        spared = [0.0] * (len(demand) + 1)
        for depth in range(len(demand) - 1, -1, -1):
            share = (demand[depth] / mean) ** self._weights.sharp
            spared[depth] = spared[depth + 1] + worth * share / (1.0 + share)
        return spared

    def observe(self, ask: Ask, chosen: Candidate, reason: Reason) -> _Sent:
        """Write the prompt into the index at once, so that its twins in flight see each other."""
        look = self._look(ask)
        self._last = None
        known = look.conversation
        if known is None:
            known = self.conversations.begin(ask.session, ask.now)
            if ask.session is None:
                self.follow_ups.began()
        elif ask.session is None and known.turns == 1:
            self.follow_ups.returned()
        seat = self._seats.of(chosen.instance)
        depth = look.match.on(seat.bit)
        trace = _Sent(self, look, seat, known, depth, chosen.instance)
        warm = depth * CHUNK * self.density.value
        known.turn(look.prompt, chosen.instance, ask.now, max(64.0, self.tokens(ask)), warm)
        self.live.set(known, chosen.instance, 1.0)
        self.index.write(look.prompt.chain, seat.bit, known if ask.session is None else None)
        return trace

    def replica_gone(self, instance: str) -> None:
        """Forget what it had; its conversations are placed anew at their next turn."""
        self._last = None
        self.index.forget(self._seats.leave(instance))
        self.conversations.leave(instance)

    def session_ended(self, session: str) -> None:
        """It no longer lives anywhere."""
        self._last = None
        known = self.conversations.end(session)
        if known is not None:
            self.live.remove(known)


class _Sent:
    """Follows one request: queued, decoding, over."""

    __slots__ = (
        "_ahead",
        "_depth",
        "_home",
        "_policy",
        "_prompt",
        "_seat",
        "_sent",
        "_state",
        "_streams",
        "_uncached",
        "conversation",
    )

    def __init__(
        self,
        policy: Work,
        look: _Look,
        seat: Seat,
        conversation: Conversation,
        depth: int,
        home: str,
    ) -> None:
        self._policy = policy
        self._prompt = look.prompt
        self._seat = seat
        self.conversation = conversation
        self._depth = depth
        self._sent = look.ask.now
        self._streams = look.ask.streams
        self._home = home
        self._uncached = max(64.0, (look.prompt.size - depth * CHUNK) * policy.density.value)
        self._ahead = seat.waiting
        self._state = _QUEUED
        seat.waiting += self._uncached
        if not self._streams:
            seat.silent.append((self._sent + seat.waiting / seat.rate.value, self))

    def first_byte(self, now: float) -> None:
        """Its prefill is over; how long that took says how fast the replica is."""
        if self._state == _QUEUED and self._streams:
            self.computed()
            if self._uncached >= SAMPLE_TOKENS:
                self._seat.rate.sample(self._ahead + self._uncached, now - self._sent)

    def computed(self) -> None:
        """It decodes from now on."""
        if self._state == _QUEUED:
            self._state = _DECODING
            self._seat.waiting -= self._uncached
            self._seat.decoding += 1

    def ended(self, now: float, outcome: Outcome) -> None:
        """Take it off the replica; learn from what the answer reported."""
        seat = self._seat
        if self._state == _DECODING:
            seat.decoding -= 1
        else:
            seat.waiting -= self._uncached
        self._state = _OVER
        conversation = self.conversation
        conversation.inflight -= 1
        conversation.last = now
        policy = self._policy
        policy.index.ended(self._prompt.chain)
        if not conversation.inflight:
            weight = 1.0
            if conversation.key is None and conversation.turns == 1:
                weight = policy.follow_ups.value
            if weight < LEAST_WEIGHT:
                policy.live.remove(conversation)
            else:
                policy.live.set(conversation, self._home, weight)
                policy.live.rest(conversation, now)
        if outcome.served:
            self._learn(outcome)
        else:
            policy.index.drop(self._prompt.chain[self._depth :], seat.bit)

    def _learn(self, outcome: Outcome) -> None:
        if outcome.prompt_tokens is not None:
            self._policy.density.sample(outcome.prompt_tokens, self._prompt.size)
            self.conversation.tokens = float(outcome.prompt_tokens)
