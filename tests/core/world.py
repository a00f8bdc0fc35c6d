"""Machines, processes and a disk, as far as a fleet can notice them: the scenery of the fleet walk."""

from __future__ import annotations

from attrs import define, field

from twisted_router.config.model import HostConfig
from twisted_router.core.effects import (
    Adopted,
    Effects,
    Event,
    Launch,
    Launched,
    LaunchFailed,
    ProbeAnswered,
    ProbeSilent,
    ProcessExited,
    Reclaimed,
    Record,
    Retired,
    Silence,
    Stop,
    StopConfirmed,
    StopUnconfirmed,
    Unreachable,
)
from twisted_router.core.places import Rules, State
from twisted_router.core.records import FleetRecord, PinRecord
from twisted_router.core.slots import Slot

from .scene import Scene, handle_of

#: Ways in which the file may name the same four cards when the router starts again.
LAYOUTS: tuple[tuple[HostConfig, ...], ...] = (
    (HostConfig("n", (0, 1), model="m"), HostConfig("far", (0, 1), ssh="far", model="m")),
    (
        HostConfig("n", (0, 1), devices_per_replica=2, model="m"),
        HostConfig("far", (1,), ssh="far", model="m"),
    ),
    (HostConfig("n", (1, 0), model="m", port_base=9000),),
)


class Crashed(Exception):
    """The router has just died."""


@define(eq=False)
class Process:
    """One replica process, which outlives the router."""

    slot: Slot
    instance: str
    loaded: bool = False
    hangs: bool = False

    def shares_a_card(self, other: Process) -> bool:
        """Tell whether both sit on one card."""
        here, there = self.slot, other.slot
        return here.address == there.address and not set(here.devices).isdisjoint(there.devices)


@define(eq=False)
class World:
    """A router that performs effects one at a time, may die before any of them, and what it runs on.

    :ivar disk: what was saved last.
    :ivar launches: launches that no launcher has answered yet.
    :ivar zombies: launches of dead routers that may still come up.
    :ivar stops: stops that no launcher has answered yet.
    :ivar fuse: how many effects are still performed before the router dies, or None.
    """

    processes: dict[str, Process] = field(factory=dict)
    disk: FleetRecord = field(factory=FleetRecord)
    saved_pins: tuple[PinRecord, ...] = ()
    disk_full: bool = False
    launches: dict[str, Slot] = field(factory=dict)
    zombies: dict[str, Slot] = field(factory=dict)
    stops: dict[str, Stop] = field(factory=dict)
    fuse: int | None = None
    lives: int = 0
    now: float = 1000.0
    retired: dict[str, bool] = field(factory=dict)
    scene: Scene = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.start(LAYOUTS[0])

    # The router

    def start(self, layout: tuple[HostConfig, ...], *, blind: bool = False) -> None:
        """Start a router from what the last one saved; ``blind`` when its first probes reach nobody."""
        self.lives += 1
        self.zombies.update(self.launches)
        self.launches.clear()
        self.stops.clear()
        self.retired.clear()
        rules = Rules(drain_timeout=20, launch_timeout=100)
        self.scene = Scene(layout, most=2, rules=rules, first=1000 * self.lives)
        self.scene.now = self.now
        self.scene.fleet.restore_times(self.disk)
        for record in self.disk.slots:
            self.feed(Reclaimed(record))
        self.scene.fleet.restore_pins(self.saved_pins, self.now)
        for member in self.scene.fleet.to_adopt():
            process = self.processes.get(member.instance)
            if process is None or process.hangs or blind:
                self.feed(Unreachable(member.instance, "no answer"))
            else:
                self.feed(Adopted(member.instance, process.loaded))
        self.perform(self.scene.fleet.plan_initial(self.now))

    def feed(self, event: Event) -> None:
        """Let the router hear of something and do what follows."""
        self.scene.now = self.now
        self.perform(self.scene.apply(event))

    def perform(self, effects: Effects) -> None:
        """Do effects in order, as the keeper does; the router may die before each."""
        refused: list[Event] = []
        saved = True
        for effect in effects:
            if self.fuse is not None:
                if self.fuse == 0:
                    self.fuse = None
                    raise Crashed
                self.fuse -= 1
            match effect:
                case Record():
                    saved = not self.disk_full
                    if saved:
                        self.disk = self.scene.fleet.record(self.now)
                case Launch(_, instance) if not saved:
                    refused.append(LaunchFailed(instance, "the state cannot be saved"))
                case Launch():
                    self.check_launch(effect)
                    self.launches[effect.instance] = effect.slot
                case Stop():
                    assert effect.instance not in self.launches, "stopped under the launcher's hands"
                    assert effect.instance not in self.stops, "stopped twice at once"
                    self.stops[effect.instance] = effect
                case Retired(_, instance, confirmed):
                    assert self.retired.get(instance, True), "retired again after an unconfirmed stop"
                    self.retired[instance] = confirmed
        for event in refused:
            self.feed(event)

    def check_launch(self, launch: Launch) -> None:
        """No launch onto cards that anything may hold, and none that the disk does not know."""
        new = Process(launch.slot, launch.instance)
        places = tuple(self.scene.fleet._slots.places())
        used = sum(1 for _, state in places if state is not State.FREE)
        assert used <= self.scene.view().capacity.ceiling, "launched beyond the ceiling"
        assert launch.instance in {record.instance for record in self.disk.slots}, "launched off the record"
        for process in self.processes.values():
            assert not new.shares_a_card(process), f"{launch} beside {process}"
        for slot in (*self.launches.values(), *self.zombies.values()):
            assert not new.shares_a_card(Process(slot, "")), f"{launch} beside a launch on {slot}"
        for record in self.disk.slots:
            if record.instance != launch.instance and record.address == launch.slot.address:
                assert set(record.devices).isdisjoint(launch.slot.devices), f"{launch} over {record}"

    # What happens outside

    def come_up(self, instance: str, slot: Slot) -> None:
        """Have a process exist."""
        new = Process(slot, instance)
        for process in self.processes.values():
            assert not new.shares_a_card(process), f"two on one card: {new} and {process}"
        self.processes[instance] = new

    def launch_ends(self, instance: str, outcome: str) -> None:
        """Have the launcher answer: ``up``, ``lost`` (up, but it cannot say), ``unsure``, ``failed``."""
        slot = self.launches.pop(instance)
        if outcome in ("up", "lost"):
            self.come_up(instance, slot)
        if outcome == "up":
            self.feed(Launched(handle_of(Launch(slot, instance))))
        else:
            self.feed(LaunchFailed(instance, outcome, certain=outcome == "failed"))

    def stop_ends(self, instance: str, outcome: str) -> None:
        """Have the launcher answer: ``gone``, ``lost`` (gone, but it cannot prove that), ``still there``."""
        del self.stops[instance]
        if outcome != "still there":
            self.processes.pop(instance, None)
            self.zombies.pop(instance, None)
        self.feed(StopConfirmed(instance) if outcome == "gone" else StopUnconfirmed(instance, outcome))

    def exit(self, instance: str, *, seen: bool, whole: bool) -> None:
        """Have a process end, before somebody's eyes or not; unless ``whole``, its children stay."""
        if whole:
            del self.processes[instance]
        if seen:
            self.feed(ProcessExited(instance, "exited"))

    def probe(self) -> None:
        """Have the prober go round once."""
        for member in tuple(self.scene.fleet.members()):
            process = self.processes.get(member.instance)
            if process is None:
                self.feed(ProbeSilent(member.instance, Silence.REFUSED))
            elif process.hangs:
                self.feed(ProbeSilent(member.instance, Silence.TIMED_OUT))
            else:
                self.feed(ProbeAnswered(member.instance, 200 if process.loaded else 503))

    def bring_up(self) -> None:
        """Let every launch succeed and every process be healthy, and the prober see it."""
        for instance in tuple(self.launches):
            self.launch_ends(instance, "up")
        for process in self.processes.values():
            process.loaded, process.hangs = True, False
        self.probe()

    def is_gone(self, instance: str) -> bool:
        """Tell whether a person who looks closely would find nothing of it."""
        return instance not in self.processes and instance not in self.zombies
