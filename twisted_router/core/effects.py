"""The words of the core: frozen events go in, frozen effects come out."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from attrs import frozen

from .policies.vocabulary import Reason
from .records import SlotRecord
from .slots import Handle, Slot


class Phase(Enum):
    """Where a replica is in its life, in the manual's four words."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


class Silence(Enum):
    """How a replica failed to answer a probe."""

    REFUSED = "refused"
    TIMED_OUT = "timed-out"
    BROKEN = "broken"


@frozen
class ProbeAnswered:
    """A probe got an HTTP answer; only status 200 is health (manual: Readiness and Failover)."""

    instance: str
    status: int


@frozen
class ProbeSilent:
    """A probe got no HTTP answer.

    :ivar why: what went wrong, where more is known than ``how``; or empty.
    """

    instance: str
    how: Silence
    why: str = ""


@frozen
class ConnectRefused:
    """A proxied request found nobody listening at the replica's address."""

    instance: str


@frozen
class SessionFinished:
    """A client says that a conversation will not go on."""

    session: str


@frozen
class Tick:
    """Time has passed; whatever is due is due."""


# Events of launched replicas. All but the first name an instance: one that is over changes nothing.


@frozen
class Grow:
    """A person wants one more replica, in ``slot`` or wherever there is room.

    The only event, with ``ReleaseSlot``, that ``Fleet.apply`` refuses by raising; nothing has changed then.
    """

    slot: str | None = None


@frozen
class Retire:
    """A person wants this replica gone: drained, stopped, its slot free. A second one changes nothing."""

    instance: str


@frozen
class Launched:
    """The process of ``handle.instance`` exists."""

    handle: Handle


@frozen
class LaunchFailed:
    """A launch came to nothing.

    :ivar tail: the last lines the replica wrote, or empty.
    :ivar certain: nothing of it is left running; otherwise only a confirmed stop frees the slot.
    """

    instance: str
    reason: str
    tail: str = ""
    certain: bool = True


@frozen
class StopConfirmed:
    """It is proved that nothing of the instance is left."""

    instance: str


@frozen
class StopUnconfirmed:
    """The instance was told to stop and nothing proves that it did."""

    instance: str
    why: str


@frozen
class ProcessExited:
    """The process was seen to end; ``how`` is a sentence like ``exited with code 1``."""

    instance: str
    how: str
    tail: str = ""


@frozen
class TailRead:
    """The last lines of an instance whose launch failed or that was lost were fetched afterwards."""

    instance: str
    tail: str


@frozen
class Reclaimed:
    """The state file names this slot: it is taken before anything is asked of it.

    Apply one for every record before anything else; then ``Adopted`` or ``Unreachable`` for each record
    without a reservation that ``Fleet.to_adopt`` lists.
    """

    record: SlotRecord


@frozen
class Adopted:
    """Something answered at a reclaimed slot; ``ready`` when with status 200."""

    instance: str
    ready: bool


@frozen
class Unreachable:
    """Nothing answered at a reclaimed slot, which does not prove that nothing is there."""

    instance: str
    why: str


@frozen
class ReleaseSlot:
    """A person vouches that the reserved slot is empty; ``instance`` shows that they mean this reservation.

    Whether anything is still there is looked at before this event is made.
    """

    slot: str
    instance: str


@frozen
class ShutdownBegan:
    """The router is going: no launch from here on, and every launched replica retired unless ``detach``."""

    detach: bool = False


@frozen
class Hasten:
    """Whoever asked for the shutdown will not wait for requests any longer: what drains is stopped now."""


Event = (
    ProbeAnswered
    | ProbeSilent
    | ConnectRefused
    | SessionFinished
    | Tick
    | Grow
    | Retire
    | Launched
    | LaunchFailed
    | StopConfirmed
    | StopUnconfirmed
    | ProcessExited
    | TailRead
    | Reclaimed
    | Adopted
    | Unreachable
    | ReleaseSlot
    | ShutdownBegan
    | Hasten
)


@frozen
class ProbeNow:
    """Look at this replica at once instead of at the next round."""

    instance: str


@frozen
class Routed:
    """A replica came into rotation."""

    name: str


@frozen
class Unrouted:
    """A replica left rotation.

    :ivar planned: it was asked to; otherwise service is reduced.
    """

    name: str
    why: str
    planned: bool = False


@frozen
class Record:
    """Save ``Fleet.record`` and do nothing that follows before it is on the disk.

    When it cannot be saved, a ``Launch`` that follows is not done but answered with a certain
    ``LaunchFailed``; everything else that follows is done all the same.
    """


@frozen
class Launch:
    """Start a replica; answer with ``Launched`` or ``LaunchFailed``, always."""

    slot: Slot
    instance: str


@frozen
class Stop:
    """Stop an instance and prove it; answer with ``StopConfirmed`` or ``StopUnconfirmed``, always.

    :ivar handle: None when the launcher never told; the marker in the environment still names it.
    """

    slot: Slot
    instance: str
    handle: Handle | None


@frozen
class Watch:
    """Report this process's end with ``ProcessExited``, where it can be seen, until ``Retired``."""

    slot: Slot
    handle: Handle


@frozen
class Retired:
    """An instance is over; whoever waits for its retirement is told now.

    :ivar confirmed: nothing of it is left; otherwise its slot is reserved.
    :ivar why: the reason of a reservation, or what ended it.
    """

    name: str
    instance: str
    confirmed: bool
    why: str


class Note(Enum):
    """What happened to a slot: log field and metric label."""

    LAUNCHING = "launching"
    LAUNCHED = "launched"
    READY = "ready"
    LAUNCH_FAILED = "launch-failed"
    LOST = "lost"
    DRAINING = "draining"
    STOPPING = "stopping"
    FREE = "free"
    WAITING = "waiting"
    ABANDONED = "abandoned"
    RESERVED = "reserved"
    RELEASED = "released"
    RECLAIMED = "reclaimed"
    ADOPTED = "adopted"


@frozen
class SlotNote:
    """Something a person may want to read in the log.

    :ivar why: a sentence, or empty.
    :ivar seconds: how long the launch took (``READY``, ``LAUNCH_FAILED``) or the wait will be (``WAITING``).
    """

    slot: str
    instance: str
    note: Note
    why: str = ""
    seconds: float | None = None


Effect = ProbeNow | Routed | Unrouted | Record | Launch | Stop | Watch | Retired | SlotNote
Effects = tuple[Effect, ...]


class Ending(Enum):
    """The ways a proxied request can end; a metric label."""

    DONE = "done"
    CLIENT_GONE = "client-gone"
    REJECTED = "rejected"
    UNREACHABLE = "unreachable"
    RESET = "reset"
    CUT = "cut"
    TIMED_OUT = "timed-out"


@frozen
class RequestEnd:
    """What became of one proxied request.

    :ivar replica: its name, or None when none could be chosen.
    :ivar status: the status the client saw, 499 when it left before one.
    :ivar seconds: from the complete request to the end.
    :ivar first_byte: seconds to the first body byte, or None when there was none.
    :ivar sent: body bytes relayed to the client.
    """

    ending: Ending
    replica: str | None
    status: int
    reason: Reason | None
    session: str
    method: str
    path: str
    seconds: float
    first_byte: float | None
    sent: int


class Usage(NamedTuple):
    """What an answer says of its tokens, as far as it does (``usage`` in OpenAI's API)."""

    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None


NO_USAGE = Usage()


@frozen
class Turn:
    """One request as a laboratory can replay it: sizes and fingerprints, never text.

    :ivar session: the id the client named, or None.
    :ivar size: bytes of its body.
    :ivar chain: fingerprints of its prompt, see ``core.prefix``.
    :ivar seconds: from the complete request to the end.
    :ivar sent: body bytes of the answer.
    :ivar final: the client said that the conversation ends with it.
    """

    session: str | None
    size: int
    chain: tuple[int, ...]
    usage: Usage
    seconds: float
    sent: int
    final: bool
