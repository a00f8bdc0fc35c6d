"""One slot's states and legal moves. Outputs return effects; they never raise and never feed the machine.

Which input a slot is given, and when, is ``core.supervision``'s to decide: the machine only knows what may
follow what, and what has to be done then. A move that is not drawn here is ``automat.NoTransition``.
"""

from __future__ import annotations

from typing import Protocol

from automat import TypeMachineBuilder

from .effects import Effects, Launch, Note, Record, Retired, Routed, SlotNote, Unrouted, Watch
from .places import Cause, Place, State
from .records import Reservation, SlotRecord
from .slots import Handle


class Life(Protocol):
    """What can happen to a slot. ``now`` is in monotonic seconds."""

    def state(self) -> State:
        """Tell where it is."""

    def launch(self, now: float) -> Effects:
        """Have a replica started here."""

    def launched(self, handle: Handle, now: float) -> Effects:
        """The launcher started it."""

    def launch_failed(self, why: str, tail: str, now: float) -> Effects:
        """The launcher did not start it, and nothing is left."""

    def launch_uncertain(self, why: str, tail: str, now: float) -> Effects:
        """The launcher cannot say whether it started."""

    def answered(self, now: float) -> Effects:
        """It is healthy."""

    def fell_silent(self, why: str, now: float) -> Effects:
        """It missed too many probes in a row."""

    def exited(self, why: str, tail: str, now: float) -> Effects:
        """Its process is seen to be gone."""

    def retire(self, why: str, now: float) -> Effects:
        """Somebody wants it gone."""

    def due(self, now: float) -> Effects:
        """What this state waits for is due."""

    def stop_confirmed(self, now: float) -> Effects:
        """It is proved to be gone."""

    def stop_unconfirmed(self, why: str, now: float) -> Effects:
        """It may still be there."""

    def wait(self, seconds: float, why: str, now: float) -> Effects:
        """Have it replaced after a while."""

    def reclaim(self, record: SlotRecord, now: float) -> Effects:
        """An earlier router launched a replica here."""

    def reserve(self, record: SlotRecord, now: float) -> Effects:
        """An earlier router reserved it."""

    def adopted_ready(self, now: float) -> Effects:
        """The reclaimed replica is healthy."""

    def adopted_loading(self, now: float) -> Effects:
        """The reclaimed replica answers, but not well."""

    def unreachable(self, why: str, now: float) -> Effects:
        """The reclaimed replica does not answer."""

    def release(self) -> Effects:
        """A person vouches that nothing is there."""


_builder = TypeMachineBuilder(Life, Place)
# In the order of ``State``: the first is where a slot begins.
_states = {state: _builder.state(state.value) for state in State}
_free = _states[State.FREE]
_reclaimed = _states[State.RECLAIMED]
_launching = _states[State.LAUNCHING]
_doomed = _states[State.DOOMED]
_loading = _states[State.LOADING]
_ready = _states[State.READY]
_failed = _states[State.FAILED]
_draining = _states[State.DRAINING]
_stopping = _states[State.STOPPING]
_waiting = _states[State.WAITING]
_reserved = _states[State.RESERVED]


# Launching


def _start(place: Place, now: float, *, replacing: bool) -> Effects:
    """Take the slot; the state file says so before a process exists."""
    place.settle_in(place.new_instance(), None, now, adopted=False)
    place.replacing = replacing
    return (Record(), place.note(Note.LAUNCHING), Launch(place.slot, place.instance))


@_free.upon(Life.launch).to(_launching)
def _launch(_: Life, place: Place, now: float) -> Effects:
    place.losses = 0
    return _start(place, now, replacing=False)


@_waiting.upon(Life.due).to(_launching)
def _launch_again(_: Life, place: Place, now: float) -> Effects:
    return _start(place, now, replacing=True)


@_launching.upon(Life.launched).to(_loading)
def _came_up(_: Life, place: Place, handle: Handle, now: float) -> Effects:
    place.handle = handle
    place.deadline = place.began + place.rules.launch_timeout
    return (Record(), Watch(place.slot, handle), place.note(Note.LAUNCHED))


@_launching.upon(Life.launch_failed).to(_free)
def _never_came_up(_: Life, place: Place, why: str, tail: str, now: float) -> Effects:
    return (*place.fail(Cause.LAUNCH_FAILED, why, tail, now), *place.vacate())


@_launching.upon(Life.launch_uncertain).to(_stopping)
@_loading.upon(Life.exited).to(_stopping)
def _broke_off(_: Life, place: Place, why: str, tail: str, now: float) -> Effects:
    """Only a confirmed stop shows that no part of it holds the cards."""
    return (*place.fail(Cause.LAUNCH_FAILED, why, tail, now), *place.stop())


@_loading.upon(Life.due).to(_stopping)
def _took_too_long(_: Life, place: Place, now: float) -> Effects:
    why = f"not ready within {place.rules.launch_timeout:g} s"
    return (*place.fail(Cause.LAUNCH_FAILED, why, "", now), *place.stop())


@_loading.upon(Life.answered).to(_ready)
def _first_answer(_: Life, place: Place, now: float) -> Effects:
    seconds = None if place.adopted else now - place.began
    return (*_enter_rotation(place, now), place.note(Note.READY, seconds=seconds), Record())


def _enter_rotation(place: Place, now: float) -> Effects:
    place.deadline = place.lost = None
    place.why = ""
    place.abandoned = False
    if place.served is None:
        place.served = now
    place.replica.ready = place.replica.seen = True
    return (Routed(place.slot.name),)


# Retirement during a launch: the launcher has to answer before anything can be stopped for certain.


@_launching.upon(Life.retire).to(_doomed)
def _doom(_: Life, place: Place, why: str, now: float) -> Effects:
    place.cause, place.why = Cause.RETIRED, why
    return (*place.withdraw(why), place.note(Note.DRAINING, why))


@_doomed.upon(Life.launched).to(_stopping)
def _came_up_doomed(_: Life, place: Place, handle: Handle, now: float) -> Effects:
    place.handle = handle
    return (Record(), *place.stop())


@_doomed.upon(Life.launch_failed).to(_free)
def _never_came_up_doomed(_: Life, place: Place, why: str, tail: str, now: float) -> Effects:
    return place.vacate()


@_doomed.upon(Life.launch_uncertain).to(_stopping)
def _maybe_came_up_doomed(_: Life, place: Place, why: str, tail: str, now: float) -> Effects:
    return place.stop()


# Service, silence and death


@_ready.upon(Life.fell_silent).to(_failed)
def _fell_silent(_: Life, place: Place, why: str, now: float) -> Effects:
    place.lost = now
    place.why = why
    place.deadline = now + place.rules.replace_after
    place.replica.ready = False
    return (Unrouted(place.slot.name, why),)


@_failed.upon(Life.answered).to(_ready)
def _recovered(_: Life, place: Place, now: float) -> Effects:
    return _enter_rotation(place, now)


@_failed.upon(Life.due).to(_draining)
def _died(_: Life, place: Place, now: float) -> Effects:
    assert place.lost is not None
    why = f"no good answer for {now - place.lost:.0f} s ({place.why})"
    return (*place.fail(Cause.LOST, why, "", now), *place.drain(now))


@_ready.upon(Life.exited).to(_draining)
@_failed.upon(Life.exited).to(_draining)
def _exited(_: Life, place: Place, why: str, tail: str, now: float) -> Effects:
    if place.lost is None:
        place.lost = now
    effects = (*place.fail(Cause.LOST, why, tail, now), *place.drain(now))
    place.replica.ready = False
    return effects


# Retirement


@_loading.upon(Life.retire).to(_draining)
@_ready.upon(Life.retire).to(_draining)
@_failed.upon(Life.retire).to(_draining)
def _retire(_: Life, place: Place, why: str, now: float) -> Effects:
    place.cause, place.why = Cause.RETIRED, why
    return place.drain(now)


@_doomed.upon(Life.retire).loop()
@_draining.upon(Life.retire).loop()
@_stopping.upon(Life.retire).loop()
def _retire_going(_: Life, place: Place, why: str, now: float) -> Effects:
    """It goes already; that somebody wants it gone means that it is not replaced."""
    place.cause = Cause.RETIRED
    return ()


@_waiting.upon(Life.retire).to(_free)
def _do_not_replace(_: Life, place: Place, why: str, now: float) -> Effects:
    place.cause, place.why, place.deadline = Cause.RETIRED, why, None
    return (Retired(place.slot.name, place.instance, True, why),)


@_reclaimed.upon(Life.retire).to(_stopping)
def _retire_reclaimed(_: Life, place: Place, why: str, now: float) -> Effects:
    place.cause, place.why = Cause.RETIRED, why
    return place.stop()


@_draining.upon(Life.due).to(_stopping)
def _stop(_: Life, place: Place, now: float) -> Effects:
    return place.stop()


@_stopping.upon(Life.stop_confirmed).to(_free)
def _stopped(_: Life, place: Place, now: float) -> Effects:
    return place.vacate()


@_stopping.upon(Life.stop_unconfirmed).to(_reserved)
def _not_stopped(_: Life, place: Place, why: str, now: float) -> Effects:
    return _unresolved(place, Reservation.STOP_UNCONFIRMED, why, now)


def _unresolved(place: Place, reason: Reservation, why: str, now: float) -> Effects:
    note = _reserve(place, reason, why, now)
    return (Record(), note, Retired(place.slot.name, place.instance, False, why))


def _reserve(place: Place, reason: Reservation, why: str, since: float) -> SlotNote:
    place.member = place.deadline = None
    place.reason, place.why, place.since = reason, why, since
    return place.note(Note.RESERVED, f"{reason.value}: {why}")


@_free.upon(Life.wait).to(_waiting)
def _wait(_: Life, place: Place, seconds: float, why: str, now: float) -> Effects:
    place.deadline = now + seconds
    place.since = now
    return (place.note(Note.WAITING, why, seconds),)


@_reserved.upon(Life.release).to(_free)
def _release(_: Life, place: Place) -> Effects:
    place.cause, place.why = Cause.RETIRED, ""
    place.handle = place.reason = None
    return (Record(), place.note(Note.RELEASED))


# Adoption (manual: If the router restarts)


@_free.upon(Life.reclaim).to(_reclaimed)
def _reclaim(_: Life, place: Place, record: SlotRecord, now: float) -> Effects:
    place.settle_in(record.instance, record.handle, now, adopted=True)
    place.losses = 0
    place.replacing = False
    return (place.note(Note.RECLAIMED),)


@_free.upon(Life.reserve).to(_reserved)
def _stay_reserved(_: Life, place: Place, record: SlotRecord, now: float) -> Effects:
    place.instance, place.handle = record.instance, record.handle
    reason = record.reason or Reservation.UNREACHABLE
    return (_reserve(place, reason, record.why, now - record.age),)


def _adopt(place: Place) -> Effects:
    watch = () if place.handle is None else (Watch(place.slot, place.handle),)
    return (*watch, place.note(Note.ADOPTED), Record())


@_reclaimed.upon(Life.adopted_ready).to(_ready)
def _adopt_ready(_: Life, place: Place, now: float) -> Effects:
    return (*_enter_rotation(place, now), *_adopt(place))


@_reclaimed.upon(Life.adopted_loading).to(_loading)
def _adopt_loading(_: Life, place: Place, now: float) -> Effects:
    place.deadline = now + place.rules.launch_timeout
    return _adopt(place)


@_reclaimed.upon(Life.unreachable).to(_reserved)
def _unreachable(_: Life, place: Place, why: str, now: float) -> Effects:
    return _unresolved(place, Reservation.UNREACHABLE, why, now)


for _name, _state in _states.items():
    _state.upon(Life.state).loop().returns(_name)

#: Makes the machine of a slot: ``new_life(place)`` is free, ``place`` is what its outputs change.
new_life = _builder.build()
