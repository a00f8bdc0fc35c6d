"""A random walk over sessions, requests and health: what must hold whatever happens."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.core.effects import ConnectRefused, ProbeAnswered, SessionFinished, Silence
from twisted_router.core.members import Choice, Lease
from twisted_router.core.policies.vocabulary import Reason
from twisted_router.errors import NoReplicaReady

from .scene import Scene
from .walking import walk

SLACK, TTL, CAP = 2, 100.0, 4
NAMES = ("a", "b", "c")
SESSIONS = st.sampled_from([f"s{n}" for n in range(7)])


class PinsWalk(RuleBasedStateMachine):
    """Replicas that exist, and clients that come, stay and go."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene((), static=NAMES, slack=SLACK, ttl=TTL, cap=CAP, veto=0.0)
        self.open: list[tuple[Choice, Lease]] = []
        self.out: set[str] = set()

    def loads(self) -> dict[str, int]:
        """Count the open requests per replica."""
        return {name: sum(1 for choice, _ in self.open if choice.member.name == name) for name in NAMES}

    @rule(session=SESSIONS, known=st.booleans())
    def ask(self, session: str, known: bool) -> None:
        pins = {pin.session: pin for pin in self.scene.pins}
        loads = self.loads()
        live = [name for name in NAMES if name not in self.out]
        pin = pins.get(session)
        if pin is not None and not pin.inflight and self.scene.now - pin.last > TTL:
            pin = None
        home = pin.home if pin is not None and known else None
        try:
            choice, lease = self.scene.ask(session, known=known)
        except NoReplicaReady:
            assert not live
            return
        self.open.append((choice, lease))
        least = min(loads[name] for name in live)
        assert choice.member.name in live
        if home in live and loads[home] <= least + SLACK:
            assert (choice.member.name, choice.reason) == (home, Reason.PINNED)
        else:
            assert loads[choice.member.name] == least
            assert choice.reason is not Reason.PINNED

    @precondition(lambda self: self.open)
    @rule(data=st.data(), good=st.booleans())
    def end(self, data: st.DataObject, good: bool) -> None:
        position = data.draw(st.integers(0, len(self.open) - 1))
        _, lease = self.open.pop(position)
        lease.release(good=good)
        lease.release()

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def refused(self, data: st.DataObject) -> None:
        position = data.draw(st.integers(0, len(self.open) - 1))
        choice, lease = self.open.pop(position)
        self.scene.apply(ConnectRefused(choice.member.instance))
        if not choice.member.ready:
            self.out.add(choice.member.name)
        other = self.scene.fleet.pick_other(choice, self.scene.now)
        lease.release()
        if other is not None:
            assert other.member is not choice.member and other.member.name not in self.out
            self.open.append((other, self.scene.fleet.lease(other, self.scene.seconds)))

    @rule(name=st.sampled_from(NAMES))
    def falls_silent(self, name: str) -> None:
        self.scene.silence(name, Silence.BROKEN)
        self.out.add(name)

    @rule(name=st.sampled_from(NAMES))
    def recovers(self, name: str) -> None:
        self.scene.apply(ProbeAnswered(name, 200))
        self.out.discard(name)

    @rule(session=SESSIONS)
    def finished(self, session: str) -> None:
        self.scene.apply(SessionFinished(session))
        assert session not in {pin.session for pin in self.scene.pins}

    @rule(seconds=st.sampled_from([1.0, 50.0, 101.0]))
    def sweep(self, seconds: float) -> None:
        self.scene.now += seconds
        self.scene.fleet.sweep(self.scene.now)
        for pin in self.scene.pins:
            assert pin.inflight or self.scene.now - pin.last <= TTL

    @invariant()
    def load_is_the_open_requests(self) -> None:
        loads = self.loads()
        for member in self.scene.fleet.members():
            assert member.outstanding == loads[member.name]

    @invariant()
    def pins_know_their_requests(self) -> None:
        for pin in self.scene.pins:
            assert pin.inflight == sum(1 for choice, _ in self.open if choice.pin is pin)

    @invariant()
    def pins_are_capped(self) -> None:
        pins = list(self.scene.pins)
        assert len(pins) <= CAP
        assert {pin.home for pin in pins} <= set(NAMES)

    def teardown(self) -> None:
        """Whatever happened, when every request has ended no load is left."""
        for _, lease in self.open:
            lease.release()
        assert all(member.outstanding == 0 for member in self.scene.fleet.members())
        assert all(pin.inflight == 0 for pin in self.scene.pins)


class PinsWalkTests(SynchronousTestCase):
    def test_walk(self) -> None:
        """Load is the open requests and returns to zero; a pin decides exactly when the slack allows."""
        walk(PinsWalk, walks=60, steps=40)
