"""What the services meet in their tests: a host in memory, an address book, a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from twisted_router.core.effects import Effect, ProbeAnswered, ProbeSilent, Silence
from twisted_router.core.fleet import Fleet
from twisted_router.core.members import Lease
from twisted_router.core.places import Rules
from twisted_router.core.policies.session import SessionAffinity
from twisted_router.core.records import FleetRecord, PinRecord
from twisted_router.core.sessions import Pins
from twisted_router.core.slots import Handle, Pool, Slot
from twisted_router.core.supervision import Launching
from twisted_router.core.wish import Wish
from twisted_router.errors import StateFileError
from twisted_router.interfaces import ILauncher, IStateStore
from twisted_router.services.admin import Admin
from twisted_router.services.keeper import Keeper
from twisted_router.services.presence import Presence

GRACE = 30.0


def make_slot(name: str, port: int, host: str = "here") -> Slot:
    return Slot(name, host, (port - 8000,), "127.0.0.1", port, model="m")


def handle_of(slot: str, instance: str) -> Handle:
    return Handle(slot, instance, 100, "1", f"/log/{slot}.log")


@implementer(ILauncher)
class Host:
    """A launcher whose every answer is given by the test, and which writes down what it is asked."""

    def __init__(self) -> None:
        self.journal: list[tuple[object, ...]] = []
        self.launching: dict[str, Deferred[Handle]] = {}
        self.stopping: dict[str, list[Deferred[None]]] = {}
        self.watching: dict[str, Deferred[str]] = {}
        self.held: Callable[[], Deferred[bool]] = lambda: succeed(False)
        self.running: Callable[[], Deferred[bool]] = lambda: succeed(False)
        self.log = "last words"
        self.at_once = True
        self.closing: Deferred[None] = succeed(None)

    def launch(self, slot: Slot, instance: str) -> Deferred[Handle]:
        self.journal.append(("launch", slot.name, instance))
        if self.at_once:
            return succeed(handle_of(slot.name, instance))
        self.launching[instance] = Deferred()
        return self.launching[instance]

    def stop(self, slot: Slot, instance: str, handle: Handle | None, grace: float) -> Deferred[None]:
        self.journal.append(("stop", slot.name, instance, grace))
        if self.at_once:
            return succeed(None)
        stopping: Deferred[None] = Deferred()
        self.stopping.setdefault(instance, []).append(stopping)
        return stopping

    def watch(self, handle: Handle) -> Deferred[str]:
        self.journal.append(("watch", handle.slot, handle.instance))
        self.watching[handle.instance] = Deferred(lambda _: self.journal.append(("unwatch", handle.instance)))
        return self.watching[handle.instance]

    def is_held(self, slot: Slot) -> Deferred[bool]:
        return self.held()

    def is_running(self, slot: Slot, instance: str, handle: Handle | None) -> Deferred[bool]:
        return self.running()

    def tail(self, slot: Slot, lines: int) -> Deferred[str]:
        self.journal.append(("tail", slot.name))
        return succeed(self.log)

    def close(self) -> Deferred[None]:
        self.journal.append(("close",))
        return self.closing

    def did(self, what: str) -> list[tuple[object, ...]]:
        return [entry for entry in self.journal if entry[0] == what]


@implementer(IStateStore)
class Store:
    """Keeps in memory what a state file would, and every version of it."""

    def __init__(self) -> None:
        self.saved: list[FleetRecord] = []
        self.pins: tuple[PinRecord, ...] = ()
        self.full: str | None = None
        self.locked = False

    def lock(self) -> None:
        self.locked = True

    def load(self) -> FleetRecord:
        return self.saved[-1] if self.saved else FleetRecord()

    def save(self, record: FleetRecord) -> None:
        if self.full is not None:
            raise StateFileError(self.full)
        self.saved.append(record)

    def load_pins(self) -> tuple[PinRecord, ...]:
        return self.pins

    def save_pins(self, pins: Iterable[PinRecord]) -> None:
        if self.full is not None:
            raise StateFileError(self.full)
        self.pins = tuple(pins)

    def close(self) -> None:
        self.locked = False


class KeeperTestCase(SynchronousTestCase):
    """A fleet with two slots here and one there, kept; everything answers at once and well unless told."""

    initial = 0
    detach = False

    def setUp(self) -> None:
        self.clock = Clock()
        self.slots = (
            make_slot("d1", 8001),
            make_slot("d2", 8002),
            Slot("far-d1", "there", (1,), "10.0.0.2", 8001, model="m"),
        )
        self.pins = Pins(ttl=600)
        numbers = count(1)
        self.fleet = Fleet(
            SessionAffinity(8),
            self.pins,
            veto=10.0,
            launching=Launching(
                Pool(self.slots, len(self.slots), self.initial), Rules(), lambda: f"i{next(numbers)}"
            ),
        )
        self.fleet.add_static("static", "http://10.0.0.9:8001")
        self.here, self.there = Host(), Host()
        self.store = Store()
        #: (address, port) -> what it shows; anything else is silent
        self.present: dict[tuple[str, int], Presence] = {}
        self.probed: list[str] = []
        self.effects: list[Effect] = []
        launchers: dict[str, ILauncher] = {"here": self.here, "there": self.there}
        self.keeper = Keeper(
            self.fleet,
            self.slots,
            launchers,
            self.store,
            self.clock,
            self.clock.seconds,
            knock=self.knock,
            probe_now=self.probed.append,
            observe=self.effects.append,
            stop_grace=GRACE,
            detach=self.detach,
        )
        self.admin = Admin(self.fleet, self.keeper, self.slots, launchers, self.knock, self.clock.seconds)

    def knock(self, address: str, port: int) -> Deferred[Presence]:
        return succeed(self.present.get((address, port), Presence.SILENT))

    def busy(self) -> Lease:
        """Leave only ``i1`` in rotation, and send it a request."""
        self.keeper.apply(ProbeAnswered("i1", 200))
        for _ in range(2):
            self.keeper.apply(ProbeSilent("static", Silence.REFUSED))
        return self.fleet.lease(self.fleet.pick(Wish("s", "s"), 0.0), self.clock.seconds)

    def names(self) -> list[str]:
        """Launched replicas that are not known to be gone."""
        return [member.name for member in self.fleet.members() if member.owned]

    def reserved(self) -> list[tuple[str, str]]:
        views = self.fleet.snapshot(0.0).capacity.unconfirmed
        return [(view.slot, view.reason.value) for view in views]

    def why(self) -> str:
        """Why the only reserved slot is reserved."""
        (view,) = self.fleet.snapshot(0.0).capacity.unconfirmed
        return view.why
