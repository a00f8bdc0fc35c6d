"""A random walk over launched replicas, with crashes between any two effects: never two on one card."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.core.effects import Event, Grow, Hasten, ReleaseSlot, Retire, ShutdownBegan, Tick
from twisted_router.core.members import Lease
from twisted_router.core.places import State
from twisted_router.errors import Conflict, NoReplicaReady, ShuttingDown

from .walking import walk
from .world import LAYOUTS, Crashed, World

STOP_OUTCOMES = st.sampled_from(["gone", "lost", "still there"])
LAYOUT = st.sampled_from(LAYOUTS)
#: What a process may do by itself.
WHIMS = ("loads", "hangs", "recovers", "dies", "is seen to die", "leaves children")


class FleetWalk(RuleBasedStateMachine):
    """One router after another, over processes that outlive them."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.leases: list[Lease] = []

    def survive(self, act: object, *args: object, **more: object) -> None:
        """Do something; when the router dies of it, start the next one."""
        try:
            act(*args, **more)  # type: ignore[operator]
        except Crashed:
            self.restart(LAYOUTS[0], False)

    def restart(self, layout: object, blind: bool) -> None:
        self.leases.clear()
        while True:
            try:
                self.world.start(layout, blind=blind)  # type: ignore[arg-type]
                return
            except Crashed:
                continue

    def feed(self, event: Event) -> None:
        self.survive(self.world.feed, event)

    @initialize(warm=st.booleans())
    def begin(self, warm: bool) -> None:
        if warm:
            self.world.feed(Grow())
            self.world.bring_up()

    # Persons

    @rule(data=st.data())
    def grow(self, data: st.DataObject) -> None:
        slots = [place.slot.name for place, _ in self.world.scene.fleet._slots.places()]
        try:
            self.feed(Grow(data.draw(st.sampled_from([None, *slots]))))
        except Conflict:
            pass
        except ShuttingDown:
            self.restart(LAYOUTS[0], False)

    @precondition(lambda self: self.world.scene.view().capacity.owned > 0)
    @rule(data=st.data())
    def retire(self, data: st.DataObject) -> None:
        names = [view.name for view in self.world.scene.view().replicas]
        self.feed(Retire(self.world.scene.fleet.retirable(data.draw(st.sampled_from(names)))))

    @precondition(lambda self: self.world.scene.view().capacity.owned > 0)
    @rule(data=st.data(), outcome=STOP_OUTCOMES)
    def retire_and_see(self, data: st.DataObject, outcome: str) -> None:
        """Retire one without requests and hear at once how its stop went."""
        self.retire(data)
        for instance in sorted(self.world.stops):
            self.survive(self.world.stop_ends, instance, outcome)

    @precondition(lambda self: self.world.scene.view().capacity.unconfirmed)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        kept = data.draw(st.sampled_from(self.world.scene.view().capacity.unconfirmed))
        if self.world.is_gone(kept.instance):
            self.feed(ReleaseSlot(kept.slot, kept.instance))

    # Launchers and processes

    @precondition(lambda self: self.world.launches)
    @rule(data=st.data(), outcome=st.sampled_from(["up", "up", "lost", "unsure", "failed"]))
    def launch_ends(self, data: st.DataObject, outcome: str) -> None:
        instance = data.draw(st.sampled_from(sorted(self.world.launches)))
        self.survive(self.world.launch_ends, instance, outcome)

    @rule()
    def bring_up(self) -> None:
        self.survive(self.world.bring_up)

    @precondition(lambda self: self.world.stops)
    @rule(data=st.data(), outcome=STOP_OUTCOMES)
    def stop_ends(self, data: st.DataObject, outcome: str) -> None:
        self.survive(self.world.stop_ends, data.draw(st.sampled_from(sorted(self.world.stops))), outcome)

    @precondition(lambda self: self.world.zombies)
    @rule(data=st.data(), comes_up=st.booleans())
    def zombie_ends(self, data: st.DataObject, comes_up: bool) -> None:
        instance = data.draw(st.sampled_from(sorted(self.world.zombies)))
        slot = self.world.zombies.pop(instance)
        if comes_up:
            self.world.come_up(instance, slot)

    @precondition(lambda self: self.world.processes)
    @rule(
        data=st.data(),
        what=st.sampled_from(WHIMS),
    )
    def process(self, data: st.DataObject, what: str) -> None:
        process = self.world.processes[data.draw(st.sampled_from(sorted(self.world.processes)))]
        match what:
            case "loads":
                process.loaded = True
            case "hangs" | "recovers":
                process.hangs = what == "hangs"
            case _:
                self.survive(
                    self.world.exit,
                    process.instance,
                    seen=what != "dies",
                    whole=what != "leaves children",
                )

    # Time

    @rule()
    def probe(self) -> None:
        self.survive(self.world.probe)

    @rule(seconds=st.sampled_from([1.0, 10.0, 31.0, 101.0, 700.0]))
    def wait(self, seconds: float) -> None:
        self.world.now += seconds
        self.feed(Tick())
        deadline = self.world.scene.fleet.next_deadline()
        assert deadline is None or deadline > self.world.now, "would be woken again and again"

    # Clients

    @rule(session=st.sampled_from(["s", "t", "u", "v"]))
    def ask(self, session: str) -> None:
        try:
            choice, lease = self.world.scene.ask(session)
        except NoReplicaReady:
            return
        assert choice.member.ready and not choice.member.draining
        self.leases.append(lease)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), good=st.booleans())
    def answered(self, data: st.DataObject, good: bool) -> None:
        self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1))).release(good=good)

    # The router's own troubles

    @rule(
        data=st.data(), what=st.sampled_from(["disk full", "disk free", "pins", "fuse", "hasten", "shutdown"])
    )
    def trouble(self, data: st.DataObject, what: str) -> None:
        match what:
            case "disk full" | "disk free":
                self.world.disk_full = what == "disk full"
            case "pins":
                self.world.saved_pins = tuple(pin.record(self.world.now) for pin in self.world.scene.pins)
            case "fuse":
                self.world.fuse = data.draw(st.integers(0, 6))
            case "hasten":
                self.feed(Hasten())
            case _:
                self.feed(ShutdownBegan(detach=data.draw(st.booleans())))

    @rule(layout=LAYOUT, blind=st.booleans())
    def crash(self, layout: object, blind: bool) -> None:
        self.restart(layout, blind)

    # What always holds

    @invariant()
    def nothing_is_forgotten(self) -> None:
        """Every process that exists is on the disk, whatever dies next."""
        known = {record.instance for record in self.world.disk.slots}
        assert known >= set(self.world.processes) | set(self.world.zombies)

    @invariant()
    def pins_name_who_is_here(self) -> None:
        here = {member.instance for member in self.world.scene.fleet.members() if not member.draining}
        assert {pin.home for pin in self.world.scene.pins} <= here

    @invariant()
    def load_is_the_open_requests(self) -> None:
        for member in self.world.scene.fleet.members():
            assert member.leases == {lease for lease in self.leases if lease.member is member}

    @invariant()
    def slots_are_what_they_say(self) -> None:
        for place, state in self.world.scene.fleet._slots.places():
            assert (place.member is None) == (state in (State.FREE, State.WAITING, State.RESERVED))
            assert (place.reason is not None) == (state is State.RESERVED)
            process = self.world.processes.get(place.instance)
            assert process is None or process.slot == place.slot, "adopted by another slot"

    def teardown(self) -> None:
        """Whatever happened, when every request has ended no load is left."""
        for lease in self.leases:
            lease.release()
        assert all(member.outstanding == 0 for member in self.world.scene.fleet.members())


class FleetWalkTests(SynchronousTestCase):
    def test_walk(self) -> None:
        """Never two processes on one card, no launch on a reserved slot, no load and no pin left behind."""
        walk(FleetWalk, walks=200, steps=50)
