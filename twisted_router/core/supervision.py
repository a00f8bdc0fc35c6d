"""All slots: who may take which, what each event means to one of them, when one is given up."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import define, frozen
from automat import NoTransition

from ..errors import Conflict, NotFound, RouterError, ShuttingDown
from .effects import (
    Adopted,
    Effects,
    Grow,
    Hasten,
    Launched,
    LaunchFailed,
    Note,
    ProcessExited,
    Reclaimed,
    Record,
    ReleaseSlot,
    Retire,
    ShutdownBegan,
    SlotNote,
    StopConfirmed,
    StopUnconfirmed,
    TailRead,
    Unreachable,
)
from .lifecycle import Life, new_life
from .members import Member
from .places import Cause, Failure, Place, Rules, State
from .records import Reservation, SlotRecord
from .slots import Pool, Slot

#: What happens to one instance, beside probes, its launch and the passing of time.
_OnInstance = Retire | LaunchFailed | StopConfirmed | StopUnconfirmed | ProcessExited | Adopted | Unreachable

#: What happens to slots, beside probes and the passing of time.
SlotEvent = _OnInstance | Grow | Launched | TailRead | Reclaimed | ReleaseSlot | ShutdownBegan | Hasten


@define(eq=False)
class Kept:
    """A recorded slot that the configuration no longer has, left as it is; ``since`` in monotonic seconds."""

    record: SlotRecord
    since: float


@frozen
class Launching:
    """What may be launched, and how.

    :ivar new_instance: makes a name that no launch ever had before.
    """

    pool: Pool
    rules: Rules
    new_instance: Callable[[], str]


#: A router that only routes.
NO_LAUNCHING = Launching(Pool(), Rules(), str)


class Supervision:
    """Owns the slots.

    :param veto: seconds for which a completed 2xx answer excuses silence; 0 turns the excuse off.
    :param idle: called when a draining replica has given back its last lease.
    """

    def __init__(self, launching: Launching, veto: float, idle: Callable[[], None]) -> None:
        pool, rules, new_instance = launching.pool, launching.rules, launching.new_instance
        self.pool = pool
        self.closing = False
        self.kept: dict[str, Kept] = {}
        self.launch_times: dict[tuple[str, str], float] = {}
        self._rules = rules
        self._veto = veto
        self._places = {slot.name: Place(slot, rules, new_instance, idle) for slot in pool.slots}
        self._lives = {name: new_life(place) for name, place in self._places.items()}

    # Looking

    def places(self) -> Iterator[tuple[Place, State]]:
        """Every slot with its state, in the order in which they are filled."""
        for name, place in self._places.items():
            yield place, self._lives[name].state()

    def members(self) -> Iterator[Member]:
        """Every launched replica that is not known to be gone."""
        return (place.member for place in self._places.values() if place.member is not None)

    def find(self, instance: str) -> Place | None:
        """Return the slot that this instance holds, or held last while it waits for its replacement."""
        return next(
            (place for place in self._places.values() if instance and place.instance == instance), None
        )

    def is_free(self, place: Place, state: State) -> bool:
        """Tell whether a launch could go there: nobody holds the slot, nor any of its cards, nor its port."""
        return state is State.FREE and not any(
            _collides(place.slot, taken.address, taken.port, taken.devices) for taken in self._taken()
        )

    def _taken(self) -> Iterator[Slot | SlotRecord]:
        for place, state in self.places():
            if state is not State.FREE:
                yield place.slot
        for kept in self.kept.values():
            yield kept.record

    def next_deadline(self) -> float | None:
        """Return when to come back with a ``Tick``, in monotonic seconds; None when nothing is waited for."""
        deadlines = (self._deadline(place, state) for place, state in self.places())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _deadline(self, place: Place, state: State) -> float | None:
        """A completed 2xx excuses silence: a busy engine is not a dead one."""
        if state is State.FAILED and place.deadline is not None and place.replica.good is not None:
            return max(place.deadline, place.replica.good + self._veto)
        return place.deadline

    def _is_due(self, place: Place, state: State, now: float) -> bool:
        if state is State.DRAINING and not place.replica.leases:
            return True
        deadline = self._deadline(place, state)
        return deadline is not None and now >= deadline

    # What persons ask for

    def grow(self, wanted: str | None, now: float) -> Effects:
        """Launch on the wanted slot, or on the best one.

        :raises ShuttingDown, Conflict, NotFound: no launch is possible; nothing has changed.
        """
        if self.closing:
            raise ShuttingDown("the router is shutting down and launches nothing any more")
        if not self._places:
            raise Conflict("no hosts are declared, there is nothing to launch on")
        if self._used() >= self.pool.ceiling:
            raise Conflict(f"all {self.pool.ceiling} slots that may be used are in use")
        if wanted is not None and wanted not in self._places:
            raise NotFound(f"there is no slot {wanted!r}")
        open_ones = [place for place, state in self.places() if self.is_free(place, state)]
        if wanted is not None:
            open_ones = [place for place in open_ones if place.slot.name == wanted]
        if not open_ones:
            raise Conflict("every slot is in use" if wanted is None else f"slot {wanted} is in use")
        chosen = min(open_ones, key=lambda place: place.abandoned)
        return self._lives[chosen.slot.name].launch(now)

    def _used(self) -> int:
        """Slots that count against the ceiling: a reserved one may well be held."""
        return sum(1 for _, state in self.places() if state is not State.FREE)

    def plan_initial(self, now: float) -> Effects:
        """Launch what is missing at the start; adopted replicas count (manual: Capacity)."""
        running = sum(1 for place in self._places.values() if place.member is not None)
        effects: Effects = ()
        for _ in range(self.pool.initial - running):
            try:
                effects += self.grow(None, now)
            except RouterError:
                break
        return effects

    def to_adopt(self) -> tuple[Member, ...]:
        """Return the replicas that were reclaimed and not yet asked."""
        return tuple(place.replica for place, state in self.places() if state is State.RECLAIMED)

    def retirable(self, name: str) -> str:
        """Return the instance of this name, one that waits for its replacement included.

        :raises NotFound, Conflict: there is none.
        """
        place = self._places.get(name)
        if place is None or not place.instance:
            raise NotFound(f"there is no replica {name!r}")
        if place.reason is not None:
            raise Conflict(
                f"slot {name} is reserved ({place.reason.value}): see that nothing of {place.instance} is"
                f" left, then POST /slots/{name}/release"
            )
        return place.instance

    def release(self, name: str, instance: str, now: float) -> Effects:
        """Free a reserved slot on a person's word.

        :raises NotFound, Conflict: it is not reserved, or for another instance; nothing has changed.
        """
        kept = self.kept.get(instance)
        if kept is not None and kept.record.slot == name:
            del self.kept[instance]
            return (Record(), SlotNote(name, instance, Note.RELEASED))
        place = self._places.get(name)
        if place is None:
            raise NotFound(f"there is no slot {name!r}")
        if place.reason is None:
            raise Conflict(f"slot {name} is not reserved")
        if place.instance != instance:
            raise Conflict(f"slot {name} is reserved for instance {place.instance}, not {instance}")
        return (*self._lives[name].release(), *self._follow(place, now))

    # What happens

    def apply(self, event: SlotEvent, now: float) -> Effects:
        """Take note of what happened to a slot."""
        match event:
            case Grow(slot):
                return self.grow(slot, now)
            case ReleaseSlot(slot, instance):
                return self.release(slot, instance, now)
            case Reclaimed(record):
                return self._reclaim(record, now)
            case ShutdownBegan(detach):
                return self._close(detach, now)
            case Hasten():
                return self._hasten(now)
            case TailRead(instance, tail):
                return self._remember_tail(instance, tail)
            case Launched(handle):
                return self._feed(handle.instance, lambda life: life.launched(handle, now), now)
            case _:
                return self._feed(event.instance, lambda life: _tell(life, event, now), now)

    def answered(self, instance: str, now: float) -> Effects:
        """A probe found this replica, which is not gone, healthy."""
        place = self.find(instance)
        assert place is not None
        if self._lives[place.slot.name].state() is State.LOADING and not place.adopted:
            self.launch_times[place.slot.host, place.slot.model] = now - place.began
        return self._feed(instance, lambda life: life.answered(now), now)

    def fell_silent(self, instance: str, why: str, now: float) -> Effects:
        """It missed too many probes in a row."""
        return self._feed(instance, lambda life: life.fell_silent(why, now), now)

    def tick(self, now: float) -> Effects:
        """Do what is due on every slot."""
        return tuple(effect for place in self._places.values() for effect in self._follow(place, now))

    def _feed(self, instance: str, tell: Callable[[Life], Effects], now: float) -> Effects:
        """Pass an event on; one that names an instance that is over, or comes too late, changes nothing."""
        place = self.find(instance)
        if place is None:
            return ()
        try:
            effects = tell(self._lives[place.slot.name])
        except NoTransition:
            return ()
        return (*effects, *self._follow(place, now))

    def _follow(self, place: Place, now: float) -> Effects:
        """Do what is due on one slot, and what follows from that."""
        life = self._lives[place.slot.name]
        effects: Effects = ()
        while True:
            state = life.state()
            if state is State.FREE and place.instance:
                effects += self._settle(place, life, now)
            elif state is State.WAITING and self.closing:
                effects += life.retire("the router is shutting down", now)
            elif self._is_due(place, state, now):
                effects += life.due(now)
            else:
                return effects

    def _settle(self, place: Place, life: Life, now: float) -> Effects:
        """Nothing is left of the instance: free its slot, or have it replaced, or give the slot up."""
        failed_again = place.cause is Cause.LAUNCH_FAILED and place.replacing
        wanted = place.cause is Cause.LOST or failed_again
        if not wanted or self.closing or self._used() >= self.pool.ceiling:
            return self._free(place, Note.FREE)
        if place.cause is Cause.LOST and _served(place) >= self._rules.proven:
            place.losses = 0
        place.losses += 1
        if place.losses >= self._rules.losses_allowed:
            place.abandoned = True
            return self._free(place, Note.ABANDONED)
        return life.wait(self._rules.backoff * 2 ** (place.losses - 1), place.why, now)

    def _free(self, place: Place, note: Note) -> Effects:
        freed = place.note(note, place.why)
        place.instance = ""
        return (freed,)

    def _reclaim(self, record: SlotRecord, now: float) -> Effects:
        place = self._places.get(record.slot)
        if place is None or place.instance or not _is_same(place.slot, record):
            self.kept[record.instance] = Kept(record, now - record.age)
            note = f"{Reservation.LEFT_CONFIG.value}: the configuration has no such slot any more"
            return (SlotNote(record.slot, record.instance, Note.RESERVED, note),)
        life = self._lives[record.slot]
        return life.reclaim(record, now) if record.reason is None else life.reserve(record, now)

    def _close(self, detach: bool, now: float) -> Effects:
        self.closing = True
        effects: Effects = ()
        for place in self._places.values():
            if not detach:
                effects += self._feed(place.instance, _retire_at_shutdown(now), now)
            effects += self._follow(place, now)
        return effects

    def _hasten(self, now: float) -> Effects:
        for place, state in self.places():
            if state is State.DRAINING:
                place.deadline = now
        return self.tick(now)

    def _remember_tail(self, instance: str, tail: str) -> Effects:
        for place in self._places.values():
            failure = place.failure
            if failure is not None and failure.instance == instance:
                place.failure = Failure(instance, failure.why, tail, failure.at)
        return ()


def _tell(life: Life, event: _OnInstance, now: float) -> Effects:
    """Turn an event into the input that its machine knows."""
    match event:
        case Retire():
            return life.retire("its retirement was asked for", now)
        case LaunchFailed(_, reason, tail, True):
            return life.launch_failed(reason, tail, now)
        case LaunchFailed(_, reason, tail):
            return life.launch_uncertain(reason, tail, now)
        case StopConfirmed():
            return life.stop_confirmed(now)
        case StopUnconfirmed(_, why):
            return life.stop_unconfirmed(why, now)
        case ProcessExited(_, how, tail):
            return life.exited(how, tail, now)
        case Adopted(_, True):
            return life.adopted_ready(now)
        case Adopted():
            return life.adopted_loading(now)
    return life.unreachable(event.why, now)


def _retire_at_shutdown(now: float) -> Callable[[Life], Effects]:
    return lambda life: life.retire("the router is shutting down", now)


def _served(place: Place) -> float:
    """Return how many seconds a lost replica was in service."""
    return 0.0 if place.served is None or place.lost is None else place.lost - place.served


def _collides(slot: Slot, address: str, port: int, devices: tuple[int, ...]) -> bool:
    return slot.address == address and (slot.port == port or not set(devices).isdisjoint(slot.devices))


def _is_same(slot: Slot, record: SlotRecord) -> bool:
    return (slot.devices, slot.address, slot.port) == (record.devices, record.address, record.port)
