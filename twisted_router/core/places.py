"""What is known about one slot, whatever its state, and the effects that several of its moves share."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from attrs import define, frozen

from ..config.model import Settings
from .effects import Effects, Note, Record, Retired, SlotNote, Stop, Unrouted
from .members import Member
from .records import Reservation
from .slots import Handle, Slot


class State(Enum):
    """What a slot can be."""

    FREE = "free"
    RECLAIMED = "reclaimed"
    LAUNCHING = "launching"
    DOOMED = "doomed"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    DRAINING = "draining"
    STOPPING = "stopping"
    WAITING = "waiting"
    RESERVED = "reserved"


class Cause(Enum):
    """Why an instance is over."""

    RETIRED = "retired"
    LAUNCH_FAILED = "launch-failed"
    LOST = "lost"


@frozen
class Rules:
    """How patient the router is with a slot. All in seconds but the count.

    :ivar replace_after: silence that means dead; see ``of``.
    :ivar backoff: the wait before the first replacement; it doubles (manual: When a replica dies).
    :ivar losses_allowed: losses in a row after which a slot is given up (manual: When a replica dies).
    :ivar proven: service after which earlier losses are forgotten.
    """

    launch_timeout: float = 600.0
    drain_timeout: float = 300.0
    replace_after: float = 30.0
    backoff: float = 10.0
    losses_allowed: int = 3
    proven: float = 600.0

    @classmethod
    def of(cls, settings: Settings) -> Rules:
        """Derive them from the command line; two health intervals are the floor of ``replace_after``."""
        return cls(
            launch_timeout=settings.launch_timeout,
            drain_timeout=settings.drain_timeout,
            replace_after=max(settings.replace_after, 2 * settings.health_interval),
        )


@frozen
class Failure:
    """The last thing that went wrong on a slot; ``at`` in monotonic seconds."""

    instance: str
    why: str
    tail: str
    at: float


@define(eq=False)
class Place:
    """What is known about one slot. Times are monotonic seconds.

    :ivar idle: called when a draining replica has given back its last lease.
    :ivar instance: the launch that holds it, or held it last while it waits; empty when free.
    :ivar member: the replica in it, as the data path sees it.
    :ivar began: when the launch was asked for, or the replica was reclaimed.
    :ivar adopted: an earlier router launched it.
    :ivar served: when this replica was first ready.
    :ivar lost: when it left rotation.
    :ivar deadline: when something is due in this state.
    :ivar since: when it came into the state a person is shown.
    :ivar replacing: this launch is the router's own attempt to replace a lost replica.
    :ivar abandoned: free, and the router itself will not use it.
    """

    slot: Slot
    rules: Rules
    new_instance: Callable[[], str]
    idle: Callable[[], None]
    instance: str = ""
    handle: Handle | None = None
    member: Member | None = None
    began: float = 0.0
    adopted: bool = False
    served: float | None = None
    lost: float | None = None
    deadline: float | None = None
    since: float = 0.0
    cause: Cause = Cause.RETIRED
    why: str = ""
    reason: Reservation | None = None
    replacing: bool = False
    losses: int = 0
    abandoned: bool = False
    failure: Failure | None = None

    @property
    def replica(self) -> Member:
        """The replica in it, in a state that has one."""
        assert self.member is not None
        return self.member

    def settle_in(self, instance: str, handle: Handle | None, now: float, *, adopted: bool) -> None:
        """Take in a new instance."""
        self.instance = instance
        self.handle = handle
        self.served = self.lost = self.deadline = self.reason = None
        self.why = ""
        self.since = self.began = now
        self.adopted = adopted
        self.member = Member(
            self.slot.name,
            instance,
            self.slot.url,
            ready=False,
            owned=True,
            since=now,
            idle=self.idle,
        )

    def note(self, note: Note, why: str = "", seconds: float | None = None) -> SlotNote:
        """Say what happened here."""
        return SlotNote(self.slot.name, self.instance, note, why, seconds)

    def withdraw(self, why: str) -> Effects:
        """Take the replica out of selection for good."""
        was_routable = self.replica.ready and not self.replica.draining
        self.replica.draining = True
        planned = self.cause is Cause.RETIRED
        return (Unrouted(self.slot.name, why, planned),) if was_routable else ()

    def fail(self, cause: Cause, why: str, tail: str, now: float) -> Effects:
        """Remember what went wrong."""
        self.cause, self.why = cause, why
        self.failure = Failure(self.instance, why, tail, now)
        if cause is Cause.LOST:
            return (self.note(Note.LOST, why),)
        return (self.note(Note.LAUNCH_FAILED, why, now - self.began),)

    def drain(self, now: float) -> Effects:
        """No new work; what is under way may end within the drain timeout."""
        gone = self.withdraw(self.why)
        self.deadline = now + self.rules.drain_timeout
        return (*gone, self.note(Note.DRAINING, self.why))

    def stop(self) -> Effects:
        """Have the process stopped."""
        gone = self.withdraw(self.why)
        self.deadline = None
        return (*gone, self.note(Note.STOPPING, self.why), Stop(self.slot, self.instance, self.handle))

    def vacate(self) -> Effects:
        """Nothing of the instance is left."""
        self.member = self.handle = self.deadline = None
        return (Record(), Retired(self.slot.name, self.instance, True, self.why))
