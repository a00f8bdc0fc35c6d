"""Supervision frozen: what the state file stores of it, and what a person is shown."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from .effects import Phase
from .places import Place, State
from .records import FleetRecord, LaunchTime, Reservation, SlotRecord
from .snapshot import CapacityView, FailureView, ReplicaView, UnconfirmedView
from .supervision import Kept, Supervision


def record(supervision: Supervision, now: float) -> FleetRecord:
    """Freeze what must survive the router: every slot on which something of ours is, or may be."""
    held = [
        _slot_record(place, now)
        for place, state in supervision.places()
        if state not in (State.FREE, State.WAITING)
    ]
    kept = [evolve(each.record, age=now - each.since) for each in supervision.kept.values()]
    times = [LaunchTime(*key, seconds) for key, seconds in supervision.launch_times.items()]
    return FleetRecord((*held, *kept), tuple(times))


def _slot_record(place: Place, now: float) -> SlotRecord:
    slot = place.slot
    return SlotRecord(
        slot.name,
        place.instance,
        slot.devices,
        slot.address,
        slot.port,
        place.handle,
        place.reason,
        place.why if place.reason is not None else "",
        now - place.since,
    )


def capacity(supervision: Supervision, now: float) -> CapacityView:
    """Freeze what may be launched on and what has been launched."""
    states = tuple(supervision.places())
    return CapacityView(
        owned=sum(1 for _, state in states if state not in (State.FREE, State.RESERVED)),
        ceiling=supervision.pool.ceiling,
        free_slots=tuple(place.slot.name for place, state in states if supervision.is_free(place, state)),
        unconfirmed=(
            *(_reserved(place, now) for place, state in states if state is State.RESERVED),
            *(_kept(each, now) for each in supervision.kept.values()),
        ),
        abandoned=tuple(
            place.slot.name for place, state in states if place.abandoned and state is State.FREE
        ),
        failures=tuple(_failures(supervision, now)),
    )


def _reserved(place: Place, now: float) -> UnconfirmedView:
    slot = place.slot
    assert place.reason is not None
    return UnconfirmedView(
        slot.name,
        place.instance,
        place.reason,
        place.why,
        now - place.since,
        slot.devices,
        slot.address,
        slot.port,
    )


def _kept(kept: Kept, now: float) -> UnconfirmedView:
    record = kept.record
    why = "the configuration has no such slot any more"
    if record.reason is not None:
        why = f"{why}; before that {record.reason.value}: {record.why}"
    return UnconfirmedView(
        record.slot,
        record.instance,
        Reservation.LEFT_CONFIG,
        why,
        now - kept.since,
        record.devices,
        record.address,
        record.port,
    )


def _failures(supervision: Supervision, now: float) -> Iterator[FailureView]:
    for place, _ in supervision.places():
        failure = place.failure
        if failure is not None:
            yield FailureView(place.slot.name, failure.instance, failure.why, failure.tail, now - failure.at)


def replicas(supervision: Supervision, now: float) -> Iterator[ReplicaView]:
    """Freeze every launched replica; one that is lost and waits for its replacement shows as failed."""
    for place, state in supervision.places():
        if place.member is not None:
            view = evolve(place.member.view(now), why=place.why, losses=place.losses)
            launching = state in (State.LAUNCHING, State.LOADING) and not place.adopted
            yield _starting(supervision, place, view, now) if launching else view
        elif state is State.WAITING:
            yield _waiting(place, now)


def _starting(supervision: Supervision, place: Place, view: ReplicaView, now: float) -> ReplicaView:
    """Say how long the launch has been going and, after the last one of its kind, may still go."""
    elapsed = now - place.began
    before = supervision.launch_times.get((place.slot.host, place.slot.model))
    return evolve(view, elapsed=elapsed, eta=None if before is None else max(0.0, before - elapsed))


def _waiting(place: Place, now: float) -> ReplicaView:
    slot = place.slot
    return ReplicaView(
        slot.name,
        place.instance,
        slot.url,
        ready=False,
        phase=Phase.FAILED,
        draining=False,
        owned=True,
        outstanding=0,
        routed=0,
        age=now - place.since,
        why=place.why,
        retry_in=None if place.deadline is None else max(0.0, place.deadline - now),
        losses=place.losses,
    )
