"""Every policy by name: how it is made, what it needs, where it does harm."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import field, frozen

from ...config.model import Settings
from .cache_aware import CacheAware
from .consistent_hash import ConsistentHash
from .gate import Gate, Marks
from .informed import Informed, InformedTracking
from .kv import Kv
from .least_conn import LeastConn
from .prefix_load import Basis, PrefixLoad
from .round_robin import RoundRobin
from .session import SessionAffinity
from .sticky_least_loaded import StickyLeastLoaded
from .vocabulary import Policy
from .work import Work

#: A parameter's value as a configuration file or a command line gives it.
Value = int | float | str


@frozen
class Parameter:
    """One setting of a policy.

    :ivar default: what it is when nobody says; its type is the parameter's type.
    :ivar least: the smallest number allowed.
    :ivar choices: the words allowed; empty where it is a number.
    """

    name: str
    default: Value
    about: str
    least: float = 0.0
    choices: tuple[str, ...] = ()

    def read(self, value: object) -> Value:
        """Return a value of the parameter's own type.

        :raises ValueError: with a sentence that says what was expected.
        """
        if self.choices:
            if value not in self.choices:
                raise ValueError(f"{self.name}: expected one of {', '.join(self.choices)}, got {value!r}")
            return str(value)
        whole = isinstance(self.default, int)
        wanted = "a whole number" if whole else "a number"
        try:
            number = float(value) if isinstance(value, (int, float, str)) else None
        except ValueError:
            number = None
        if number is None or isinstance(value, bool) or not self.least <= number < float("inf"):
            raise ValueError(f"{self.name}: expected {wanted} of at least {self.least:g}, got {value!r}")
        if not whole:
            return number
        if number != int(number):
            raise ValueError(f"{self.name}: expected {wanted}, got {value!r}")
        return int(number)


@frozen
class Entry:
    """One policy.

    :ivar make: makes one from a value for each parameter.
    :ivar about: one line for an operator.
    :ivar reads: what it looks at in a request.
    :ivar harm: when not to use it; printed at start, empty where there is nothing to warn of.
    """

    name: str
    make: Callable[..., Policy]
    about: str
    reads: str
    parameters: tuple[Parameter, ...] = field(default=())
    harm: str = ""


def _prefix(basis: str, alpha: float) -> Policy:
    return PrefixLoad(Basis(basis), alpha)


def _load(alpha: float) -> Policy:
    return PrefixLoad(None, alpha)


def _work(session_ttl: float, slack: int) -> Policy:
    return Work(session_ttl, slack if slack >= 0 else None)


def _thunderagent(capacity: float, session_ttl: float) -> Policy:
    return Gate(Kv(session_ttl), capacity, Marks(open=0.85, high=0.95, low=0.80, spare=100.0))


def _program(capacity: float, session_ttl: float) -> Policy:
    return Gate(Kv(session_ttl), capacity, Marks(open=1.0, high=1.0, low=0.95, window=10.0, spare=100.0))


_CAPACITY = Parameter("capacity", 0.0, "tokens a replica's cache holds; 0 takes what it reports or shows")

_ALPHA = Parameter("alpha", 4.0, "2 KiB chunks one unit of load outweighs")

_ENTRIES = (
    Entry(
        "session",
        SessionAffinity,
        "a conversation keeps its replica while that is at most a slack busier than the idlest",
        "session id",
        (
            Parameter(
                "slack", 8, "extra outstanding requests a pinned replica may carry; 0 disables affinity"
            ),
        ),
    ),
    Entry(
        "work",
        _work,
        "every request goes where it costs the fleet the fewest seconds; ids optional",
        "session id if any, text",
        (
            Parameter("session_ttl", 600.0, "seconds of idleness after which a conversation is forgotten"),
            Parameter(
                "slack", -1, "extra outstanding requests its replica may carry; -1 leaves it to the cost", -1
            ),
        ),
    ),
    Entry("least_conn", LeastConn, "fewest requests in flight; for single-turn work", "nothing"),
    Entry(
        "round_robin",
        RoundRobin,
        "one after the other",
        "nothing",
        harm="conversations lose their cached history at every turn; use it for comparisons",
    ),
    Entry(
        "consistent_hash",
        ConsistentHash,
        "the session id alone decides; several routers agree without talking",
        "session id",
        harm="the load is never looked at, and requests without a session id get no affinity",
    ),
    Entry(
        "cache_aware",
        CacheAware,
        "a conversation keeps its replica until the fleet is out of balance",
        "session id",
        (
            Parameter("balance_abs", 64, "more requests than the idlest that count as unbalanced"),
            Parameter("balance_rel", 1.5, "times the idlest's requests that count as unbalanced", 1.0),
            Parameter("ttl", 3600.0, "seconds of idleness after which a conversation is forgotten"),
        ),
    ),
    Entry(
        "sticky_least_loaded",
        StickyLeastLoaded,
        "a conversation stays for life where the fewest conversations lived",
        "session id",
        (Parameter("ttl", 7200.0, "seconds of idleness after which a conversation no longer counts"),),
        harm="conversations never move, so a slow replica keeps its share of them",
    ),
    Entry(
        "prefix",
        _prefix,
        "warm prompt text against load",
        "text",
        (
            Parameter(
                "basis", "absolute", "how warm text counts", choices=tuple(basis.value for basis in Basis)
            ),
            _ALPHA,
        ),
    ),
    Entry("load", _load, "uncached bytes in flight only", "text", (_ALPHA,)),
    Entry("kv", Kv, "fewest cache blocks to compute and to hold", "text"),
    Entry(
        "kv_session_affinity",
        Kv,
        "kv for the first turn, then the same replica",
        "session id, text",
        (Parameter("session_ttl", 1800.0, "seconds an idle conversation stays bound"),),
    ),
    Entry(
        "program",
        _program,
        "kv_session_affinity; conversations wait while a cache is full, a short pause keeps their room",
        "session id, text",
        (_CAPACITY, Parameter("session_ttl", 1800.0, "seconds an idle conversation stays bound")),
    ),
    Entry(
        "thunderagent",
        _thunderagent,
        "kv_session_affinity; conversations wait while a cache is full, longer pauses keep their room",
        "session id, text",
        (_CAPACITY, Parameter("session_ttl", 1800.0, "seconds an idle conversation stays bound")),
    ),
)

POLICIES: Mapping[str, Entry] = {entry.name: entry for entry in _ENTRIES}


def make_policy(name: str, given: Mapping[str, object] | None = None) -> Policy:
    """Make a policy by name.

    :param given: values for some of its parameters; the others take their defaults.
    :raises ValueError: no such policy or parameter, or a value it cannot take; the text lists what there is.
    """
    entry = POLICIES.get(name)
    if entry is None:
        raise ValueError(f"no policy {name!r}; there are {', '.join(POLICIES)}")
    given = given or {}
    known = {parameter.name for parameter in entry.parameters}
    for unknown in given:
        if unknown not in known:
            there = ", ".join(sorted(known)) or "none"
            raise ValueError(f"policy {name} has no parameter {unknown!r}; it has {there}")
    return entry.make(
        **{
            parameter.name: parameter.read(given.get(parameter.name, parameter.default))
            for parameter in entry.parameters
        }
    )


def policy_of(settings: Settings) -> Policy:
    """Make the policy that the command line names: ``NAME`` or ``NAME:key=value,key=value``.

    ``--affinity-slack`` gives the slack of ``session`` and ``work``, ``--session-ttl`` the TTL of ``work``.

    :raises ValueError: see ``make_policy``.
    """
    name, _, text = settings.policy.partition(":")
    given: dict[str, object] = {}
    if name in ("session", "work") and settings.affinity_slack is not None:
        given["slack"] = settings.affinity_slack
    if name == "work":
        given["session_ttl"] = settings.session_ttl
    for pair in filter(None, text.split(",")):
        key, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"policy {name}: expected key=value, got {pair!r}")
        given[key.strip()] = value.strip()
    policy = make_policy(name, given)
    return add_gate(policy) if settings.gate else policy


def add_gate(policy: Policy, capacity: float = 0.0) -> Gate:
    """Put a working-set gate before a policy; one that has a gate keeps it.

    :param capacity: tokens each replica's cache holds, or 0 for what is reported or learned.
    :raises ValueError: the policy does not tell conversations apart.
    """
    if isinstance(policy, Gate):
        return policy
    if isinstance(policy, Work | Kv):
        return Gate(policy, capacity)
    raise ValueError("a gate needs a policy that tells conversations apart: work, kv or kv_session_affinity")


def inform(policy: Policy) -> tuple[Policy, Informed]:
    """Let replicas' cache events correct a policy; return what to route by, and what to tell the events to.

    :raises ValueError: the policy keeps no fingerprints that could be corrected.
    """
    if isinstance(policy, Gate) and isinstance(policy.policy, Work | Kv):
        behind = policy.policy = InformedTracking(policy.policy)
        return policy, behind
    if isinstance(policy, Work | Kv | PrefixLoad):
        informed = Informed(policy)
        return informed, informed
    keep = ", ".join(name for name, entry in POLICIES.items() if "text" in entry.reads)
    raise ValueError(f"cache events correct fingerprints, which only these policies keep: {keep}")
