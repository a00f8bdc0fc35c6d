"""A router of three lines around a policy, for tests of policies."""

from __future__ import annotations

from attrs import define, field

from twisted_router.core.policies.vocabulary import Ask, Outcome, Reason, Trace
from twisted_router.core.prefix import Prompt


@define(eq=False)
class Replica:
    instance: str
    outstanding: int = 0


@define(eq=False)
class Sent:
    replica: Replica
    reason: Reason
    trace: Trace | None


@define
class Driver:
    """Sends asks through a policy and keeps the loads."""

    policy: object
    replicas: list[Replica]
    homes: dict = field(factory=dict)
    now: float = 0.0

    @classmethod
    def of(cls, policy, count=4):
        return cls(policy, [Replica(f"r{number}") for number in range(count)])

    def send(self, session=None, prompt=None, streams=True):
        ask = Ask(session, self.homes.get(session), self.now, prompt, streams)
        position, reason = self.policy.choose(ask, tuple(self.replicas))
        replica = self.replicas[position]
        trace = self.policy.observe(ask, replica, reason)
        if session is not None:
            self.homes[session] = replica.instance
        replica.outstanding += 1
        return Sent(replica, reason, trace)

    def send_to(self, replica, session=None, prompt=None):
        """Send a request over the policy's head."""
        ask = Ask(session, self.homes.get(session), self.now, prompt)
        trace = self.policy.observe(ask, replica, Reason.CONNECT_REFUSED)
        replica.outstanding += 1
        return Sent(replica, Reason.CONNECT_REFUSED, trace)

    def serve_at(self, replica, prompt):
        """See a request through at a given replica."""
        sent = self.send_to(replica, prompt=prompt)
        self.first_byte(sent)
        self.end(sent)

    def first_byte(self, sent):
        if sent.trace is not None:
            sent.trace.first_byte(self.now)

    def end(self, sent, outcome=None):
        sent.replica.outstanding -= 1
        if sent.trace is not None:
            sent.trace.ended(self.now, Outcome(True) if outcome is None else outcome)

    def serve(self, session=None, prompt=None, seconds=0.0):
        """Send a request and see it through to its end."""
        sent = self.send(session, prompt)
        self.now += seconds
        self.first_byte(sent)
        self.end(sent)
        return sent

    def lose(self, replica):
        self.replicas.remove(replica)
        self.policy.replica_gone(replica.instance)


def prompt(*parts, messages=1):
    """A prompt of whole chunks: each part is a name and how many chunks it has."""
    chain = []
    before = ()
    for name, chunks in parts:
        for number in range(chunks):
            before = hash((before, name, number))
            chain.append(before)
    return Prompt(len(chain) * 2048 + 100, tuple(chain), messages)


def spread(sents):
    """How many went to each replica."""
    counts = {}
    for sent in sents:
        counts[sent.replica.instance] = counts.get(sent.replica.instance, 0) + 1
    return counts
