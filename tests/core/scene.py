"""A fleet with launched replicas, driven by hand: what the tests of the core have in common."""

from __future__ import annotations

from itertools import count
from typing import TypeVar

from twisted_router.config.model import HostConfig
from twisted_router.core.effects import (
    Effect,
    Effects,
    Event,
    Grow,
    Launch,
    Launched,
    Note,
    ProbeAnswered,
    ProbeSilent,
    Reclaimed,
    Silence,
    SlotNote,
    Tick,
)
from twisted_router.core.fleet import Fleet
from twisted_router.core.members import Choice, Lease, Member
from twisted_router.core.places import Rules
from twisted_router.core.policies.session import SessionAffinity
from twisted_router.core.records import SlotRecord
from twisted_router.core.sessions import PIN_CAP, Pins
from twisted_router.core.slots import Handle, Pool, plan_pool
from twisted_router.core.snapshot import FleetView, ReplicaView
from twisted_router.core.supervision import Launching
from twisted_router.core.wish import Wish

_E = TypeVar("_E")

#: Two cards on the router's machine.
TWO_CARDS = (HostConfig("node", (0, 1), model="/m"),)


def handle_of(launch: Launch) -> Handle:
    """Identify the process that a launch would start."""
    return Handle(launch.slot.name, launch.instance, 4711, "99", f"/log/{launch.slot.name}.log")


def record_of(instance: str = "old", slot: str = "node-d0", device: int = 0, **more: object) -> SlotRecord:
    """Make what an earlier router wrote about a slot of ``TWO_CARDS``."""
    handle = Handle(slot, instance, 12, "34", "/log")
    return SlotRecord(slot, instance, (device,), "127.0.0.1", 8001 + device, handle, **more)  # type: ignore[arg-type]


class Scene:
    """A fleet, its clock and every effect it has asked for."""

    def __init__(
        self,
        hosts: tuple[HostConfig, ...] = TWO_CARDS,
        *,
        most: int | None = None,
        initial: int | None = None,
        static: tuple[str, ...] = (),
        rules: Rules | None = None,
        slack: int = 8,
        ttl: float = 600.0,
        cap: int = PIN_CAP,
        veto: float = 10.0,
        first: int = 0,
    ) -> None:
        numbers = count(first)
        self.now = 1000.0
        pool = plan_pool(hosts, initial, most) if hosts else Pool()
        launching = Launching(pool, rules or Rules(), lambda: f"i{next(numbers)}")
        self.pins = Pins(ttl, cap)
        self.fleet = Fleet(SessionAffinity(slack), self.pins, veto=veto, launching=launching)
        for name in static:
            self.fleet.add_static(name, f"http://{name}:8001")
        self.said: list[Effect] = []

    def seconds(self) -> float:
        """Read the clock."""
        return self.now

    def apply(self, event: Event, *, after: float = 0.0) -> Effects:
        """Let ``after`` seconds pass, then let something happen."""
        self.now += after
        return self._heard(self.fleet.apply(event, self.now))

    def _heard(self, effects: Effects) -> Effects:
        self.said.extend(effects)
        return effects

    def tick(self, *, after: float = 0.0) -> Effects:
        """Let ``after`` seconds pass and do what is due."""
        return self.apply(Tick(), after=after)

    def due(self) -> Effects:
        """Go to the next deadline and do what is due."""
        deadline = self.fleet.next_deadline()
        assert deadline is not None
        self.now = max(self.now, deadline)
        return self.tick()

    def initial(self) -> Effects:
        """Do the initial launches."""
        return self._heard(self.fleet.plan_initial(self.now))

    def grow(self, slot: str | None = None) -> Launch:
        """Ask for one more replica and return the launch that follows."""
        return only(self.apply(Grow(slot)), Launch)

    def launch(self, slot: str | None = None) -> str:
        """Have a replica launched whose process exists; return its instance."""
        launch = self.grow(slot)
        self.apply(Launched(handle_of(launch)))
        return launch.instance

    def serve(self, slot: str | None = None) -> str:
        """Have a replica launched that is ready; return its instance."""
        instance = self.launch(slot)
        self.apply(ProbeAnswered(instance, 200))
        return instance

    def relaunch(self, effects: Effects) -> str:
        """Let the launch among ``effects`` come up and be ready; return its instance."""
        launch = only(effects, Launch)
        self.apply(Launched(handle_of(launch)))
        self.apply(ProbeAnswered(launch.instance, 200))
        return launch.instance

    def silence(self, instance: str, how: Silence = Silence.REFUSED) -> Effects:
        """Let two probes in a row fail."""
        self.apply(ProbeSilent(instance, how))
        return self.apply(ProbeSilent(instance, how))

    def reclaim(self, *records: SlotRecord) -> None:
        """Take back what an earlier router recorded."""
        for record in records:
            self.apply(Reclaimed(record))

    def ask(self, session: str = "s", *, known: bool = True) -> tuple[Choice, Lease]:
        """Route one request."""
        choice = self.fleet.pick(Wish(session, session if known else None), self.now)
        return choice, self.fleet.lease(choice, self.seconds)

    def member(self, instance: str) -> Member:
        """Find a replica."""
        return next(member for member in self.fleet.members() if member.instance == instance)

    def view(self) -> FleetView:
        """Freeze the fleet as it is now."""
        return self.fleet.snapshot(self.now)

    def replica(self, name: str) -> ReplicaView:
        """Freeze one replica."""
        return next(replica for replica in self.view().replicas if replica.name == name)

    def phases(self) -> dict[str, str]:
        """Say what a person sees of each replica."""
        return {replica.name: replica.phase.value for replica in self.view().replicas}

    def notes(self) -> list[Note]:
        """List what has happened to slots so far."""
        return [effect.note for effect in self.said if isinstance(effect, SlotNote)]


def only(effects: Effects, kind: type[_E]) -> _E:
    """Return the one effect of a kind."""
    (found,) = (effect for effect in effects if isinstance(effect, kind))
    return found


def kinds(effects: Effects) -> list[str]:
    """Name effects by their kind, notes left out."""
    return [type(effect).__name__ for effect in effects if not isinstance(effect, SlotNote)]
