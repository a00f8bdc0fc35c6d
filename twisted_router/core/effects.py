"""The words of the core: frozen events go in, frozen effects come out."""

from __future__ import annotations

from enum import Enum

from attrs import frozen

from .policies.vocabulary import Reason


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
    """A probe got no HTTP answer."""

    instance: str
    how: Silence


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


Event = ProbeAnswered | ProbeSilent | ConnectRefused | SessionFinished | Tick


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
    """A replica left rotation."""

    name: str
    why: str


Effect = ProbeNow | Routed | Unrouted
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
class Outcome:
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
