"""The composition root: the command line, and the service built from it. It decides nothing."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, TextIO, cast

import attrs
from twisted.application.service import IService
from twisted.logger import ILogObserver
from twisted.python import usage

from .complaint import complaint
from .config.model import SESSION_SOURCES, FleetConfig, Settings
from .errors import ConfigError
from .output import LossyLines, claim_standard_descriptors

if TYPE_CHECKING:
    from .core.policies.vocabulary import Policy

#: Characters a token file may have; whoever names a device or a disk image by mistake is told so.
_TOKEN_LIMIT = 64 * 1024
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class BadValue(usage.UsageError):
    """A flag that parses and a value, or a file, that cannot be used."""


def _seconds(text: str) -> float:
    value = float(text)
    if math.isnan(value):
        raise ValueError(text)
    return value


def _size(text: str) -> int:
    number = text.strip().lower().removesuffix("b").removesuffix("i")
    unit = number[-1:] if number[-1:] in "kmg" else ""
    return int(number.removesuffix(unit)) * _UNITS[unit]


@attrs.frozen
class _Kind:
    """How a flag's text becomes a value, and what it takes, for whom that fails."""

    read: Callable[[str], object]
    takes: str


_SECONDS = _Kind(_seconds, "a number of seconds")
_WHOLE = _Kind(int, "a whole number")
_SIZE = _Kind(_size, "bytes, such as 67108864 or 64MiB")
_TEXT = _Kind(str, "text")

#: Judges a value: the rest of a sentence that begins with its flag, or None where nothing is wrong.
_Rule = Callable[[Any], str | None]


def _positive(seconds: float) -> str | None:
    return None if 0 < seconds < math.inf else f"must be a positive number of seconds, got {seconds:g}"


def _not_negative(seconds: float) -> str | None:
    return None if 0 <= seconds < math.inf else f"must be 0 or a positive number of seconds, got {seconds:g}"


def _least(least: int) -> _Rule:
    return lambda value: None if value >= least else f"must be at least {least}, got {value}"


def _port(value: int) -> str | None:
    return None if 0 <= value <= 65535 else f"must be between 0 and 65535, got {value}"


def _session_sources(text: str) -> str | None:
    sources = _sources(text)
    for source in sources:
        name = source.removeprefix("body.")
        if not name.replace("-", "").replace("_", "").replace(".", "").isalnum() or not name.isascii():
            return f"must name headers, or body.KEY, not {source!r}"
    return None if sources else "must name at least one source"


@attrs.frozen
class _Value:
    """One flag's value: how it is read, and the rule it has to keep. ``usage.Options`` calls it to coerce."""

    flag: str
    kind: _Kind
    rule: _Rule

    def __call__(self, text: str) -> object:
        try:
            return self.kind.read(text)
        except ValueError:
            raise ValueError(f"--{self.flag} takes {self.kind.takes}, not {text!r}") from None

    def problem(self, value: object) -> str | None:
        """Say what is wrong with a value; nothing is with one that was not given."""
        wrong = None if value is None else self.rule(value)
        return None if wrong is None else f"--{self.flag} {wrong}"


def _parameter(flag: str, kind: _Kind, rule: _Rule, text: str) -> list[Any]:
    """One row of ``optParameters`` whose default is that of ``Settings``."""
    default = getattr(attrs.fields_dict(Settings)[flag.replace("-", "_")], "default", None)
    return [flag, None, default, text, _Value(flag, kind, rule)]


class Options(usage.Options):
    """``pypto-serving-router``'s command line, and that of ``twistd pypto-router``."""

    synopsis = "--replicas FILE [options]"
    longdesc = (
        "Routes OpenAI-compatible requests over the replicas that FILE describes, keeping each conversation "
        "on the replica that holds its KV cache. FILE is JSON, or YAML when its name ends in .yaml; "
        "'pypto-router check-config FILE' explains what is wrong with one. All durations are seconds."
    )
    optParameters: ClassVar[list[list[Any]]] = [
        ["replicas", "r", None, "File that names the replicas, and the hosts to launch more on (required)."],
        ["host", None, "0.0.0.0", "Address to listen on."],
        _parameter("port", _WHOLE, _port, "Port to listen on; 0 takes a free one."),
        _parameter(
            "session-ttl", _SECONDS, _positive, "Seconds of inactivity before a conversation loses its pin."
        ),
        _parameter(
            "affinity-slack",
            _WHOLE,
            _least(0),
            "Extra outstanding requests a pinned replica may carry before a session moves; 0: no affinity "
            "(default: 8, none under policy work).",
        ),
        [
            "policy",
            None,
            None,
            "Routing policy, NAME or NAME:key=value,... (default: the file's, else session); "
            "'pypto-router lab --list' has their names and keys.",
        ],
        _parameter(
            "max-outstanding", _WHOLE, _least(1), "Requests one replica may have at once (default: no limit)."
        ),
        _parameter(
            "queue-size", _WHOLE, _least(0), "Requests that may wait for a replica; 0 answers 503 at once."
        ),
        _parameter(
            "queue-timeout", _SECONDS, _positive, "Seconds a request may wait for a replica; 503 then."
        ),
        _parameter("max-hold", _SECONDS, _positive, "Seconds --gate may hold a request; it is sent then."),
        _parameter("health-interval", _SECONDS, _positive, "Seconds between replica health probes."),
        _parameter("request-timeout", _SECONDS, _positive, "Seconds one proxied request may take in all."),
        _parameter("connect-timeout", _SECONDS, _positive, "Seconds a connection to a replica may take."),
        _parameter(
            "max-connections",
            _WHOLE,
            _least(1),
            "Clients connected at once; 503 beyond (default: from the limit on open files).",
        ),
        _parameter("max-body", _SIZE, _least(0), "Bytes one request body may have, 64MiB say; 413 beyond."),
        _parameter("max-body-total", _SIZE, _least(0), "Bytes of request bodies held at once; 503 beyond."),
        [
            "session-sources",
            None,
            ",".join(SESSION_SOURCES),
            "Where a session id is looked for, in order: header names, and body.KEY for keys of a JSON body.",
            _Value("session-sources", _TEXT, _session_sources),
        ],
        _parameter(
            "initial-replicas",
            _WHOLE,
            _least(0),
            "Replicas to launch at startup (default: 1 with hosts, else 0).",
        ),
        _parameter("max-replicas", _WHOLE, _least(1), "Cap launched replicas below the declared devices."),
        _parameter("launch-timeout", _SECONDS, _positive, "Seconds a launch may take to report ready."),
        _parameter(
            "drain-timeout",
            _SECONDS,
            _not_negative,
            "Seconds to wait for in-flight requests before a replica is stopped.",
        ),
        _parameter(
            "replace-after",
            _SECONDS,
            _not_negative,
            "Seconds without an answer after which a replica is replaced; at least two health intervals.",
        ),
        _parameter(
            "stop-grace", _SECONDS, _not_negative, "Seconds a stopping replica has before it is killed."
        ),
        [
            "record-trace",
            None,
            None,
            "File to record traffic in for the laboratory: sizes and times, no text.",
        ],
        ["state-file", None, None, "Where to record launched replicas so that a restart can adopt them."],
        [
            "admin-token",
            None,
            None,
            "Bearer token for the administrative calls; visible in the process list.",
        ],
        ["admin-token-file", None, None, "File that holds the administrative bearer token."],
    ]
    optFlags = [
        ["no-traffic-veto", None, "Count a timed-out probe even while the replica completes requests."],
        [
            "gate",
            None,
            "Let conversations wait between turns while the caches are full (--policy work or kv).",
        ],
        [
            "kv-events",
            None,
            "Follow the cache events of the replicas that FILE gives a kv_events endpoint (extra kv-events).",
        ],
        ["no-receipts", None, "Send no X-Router-Replica and X-Router-Affinity headers with answers."],
        ["access-log", None, "Log one line for each proxied request."],
        ["admin-open", None, "Without a token, allow administrative calls from anywhere."],
        ["detach-on-exit", None, "Leave launched replicas running when the router stops."],
    ]

    fleet: FleetConfig
    settings: Settings

    def opt_version(self) -> None:
        """Print the version and exit."""
        from . import __version__

        print(f"pypto-router {__version__}")
        raise SystemExit(0)

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Read the command line.

        :raises usage.UsageError: it cannot be used.
        :raises SystemExit: the same, below twistd: it would put all of its usage before the complaint.
        """
        try:
            super().parseOptions(options)
        except usage.UsageError as problem:
            if _twistd(self) is None:
                raise
            lines = complaint(self, problem).splitlines()
            raise SystemExit("\n".join(f"twistd pypto-router: error: {line}" for line in lines)) from None

    def postOptions(self) -> None:
        """Check the values and read the file.

        :raises usage.UsageError: ``--replicas`` is missing.
        :raises BadValue: a value is out of range, or the file cannot be used.
        """
        if self["replicas"] is None:
            raise usage.UsageError("--replicas FILE is required: the file that names the replicas")
        from .config.reading import read_fleet

        problems = [*range_problems(self)]
        try:
            self.fleet = read_fleet(self["replicas"])
        except ConfigError as error:
            problems += error.problems
        if problems:
            raise BadValue("\n".join(problems))
        self.settings = self._settings()
        from .core.policies.registry import policy_of
        from .core.slots import plan_pool

        try:
            plan_pool(self.fleet.hosts, self.settings.initial_replicas, self.settings.max_replicas)
            policy = policy_of(self.settings)
        except ConfigError as error:
            raise BadValue(str(error)) from None
        except ValueError as error:
            is_files = self["policy"] is None and self.fleet.policy is not None
            where = f"{self['replicas']}: $.policy" if is_files else "--policy"
            raise BadValue(f"{where}: {error}") from None
        if self.settings.kv_events:
            _check_kv_events(policy, self.fleet)
        if self.settings.record_trace is not None:
            _check_trace(self.settings.record_trace)

    def _settings(self) -> Settings:
        """Gather the values, which are in range."""
        values = {
            field.name: self[field.name.replace("_", "-")]
            for field in attrs.fields(Settings)
            if field.name.replace("_", "-") in self
        }
        values["policy"] = self["policy"] or self.fleet.policy or "session"
        values["session_sources"] = _sources(self["session-sources"])
        values["traffic_veto"] = not self["no-traffic-veto"]
        values["receipts"] = not self["no-receipts"]
        for flag in ("access-log", "admin-open", "detach-on-exit", "gate", "kv-events"):
            values[flag.replace("-", "_")] = bool(self[flag])
        values["admin_token"] = _token(self, os.environ)
        return Settings(**values)


def _check_kv_events(policy: Policy, fleet: FleetConfig) -> None:
    """Refuse ``--kv-events`` where it could not do anything."""
    from .core.policies.registry import inform

    try:
        inform(policy)
    except ValueError as error:
        raise BadValue(f"--kv-events: {error}") from None
    if not any(replica.kv_events for replica in fleet.replicas):
        raise BadValue("--kv-events: no replica in the file has a kv_events endpoint")
    missing = [name for name in ("zmq", "msgpack") if find_spec(name) is None]
    if missing:
        raise BadValue(
            f"--kv-events: no Python package {' and '.join(missing)}: pip install 'pypto-router[kv-events]'"
        )


def _check_trace(path: str) -> None:
    """Refuse ``--record-trace`` where nothing could be recorded."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
    except OSError as error:
        raise BadValue(f"--record-trace {path}: {error.strerror}") from None


def _twistd(options: usage.Options) -> usage.Options | None:
    """Return twistd's own options where it is twistd that reads ours, None in a program of ours."""
    parent = options.parent
    return parent if parent is not None and "nodaemon" in parent else None


def _sources(text: str) -> tuple[str, ...]:
    return tuple(source.strip().lower() for source in text.split(",") if source.strip())


def _token(options: Options, environ: Mapping[str, str]) -> str | None:
    """Return the admin token: file before flag before ``PYPTO_ROUTER_ADMIN_TOKEN``."""
    path = options["admin-token-file"]
    if path is None:
        if options["admin-token"] == "":
            raise BadValue("--admin-token is empty; leave it out to have no token")
        return options["admin-token"] or environ.get("PYPTO_ROUTER_ADMIN_TOKEN") or None
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read(_TOKEN_LIMIT + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise BadValue(f"--admin-token-file {path}: {getattr(error, 'strerror', None) or error}") from None
    if len(token) > _TOKEN_LIMIT:
        raise BadValue(f"--admin-token-file {path} is no token: it has over {_TOKEN_LIMIT} characters")
    token = token.strip()
    if not token:
        raise BadValue(f"--admin-token-file {path} is empty")
    return token


def range_problems(options: Options) -> list[str]:
    """Name every value that is out of range, one sentence each, in the order of the flags."""
    values = [row[-1] for row in options.optParameters if isinstance(row[-1], _Value)]
    problems = [*filter(None, (value.problem(options[value.flag]) for value in values))]
    if options["max-body-total"] < options["max-body"]:
        problems.append("--max-body-total must not be less than --max-body")
    return problems


def damped(observer: ILogObserver) -> ILogObserver:
    """Wrap a log observer so that no kind of warning can flood it."""
    from .telemetry.storms import Damped

    return Damped(observer)


def makeService(options: Options) -> IService:
    """Build the router from parsed options.

    :raises SystemExit: a file that the configuration names cannot be used; 1 and a line for each problem.
    """
    from twisted.internet import reactor

    from .assembly import assemble

    twistd = _twistd(options)
    if twistd is not None and twistd["nodaemon"]:
        # twistd is about to log there, and would stop with whoever does not read it.
        claim_standard_descriptors()
        sys.stdout = cast(TextIO, open(os.devnull, "w") if sys.stdout is None else LossyLines(1))
    try:
        return assemble(options.fleet, options.settings, reactor)
    except ConfigError as error:
        raise SystemExit("\n".join(error.problems)) from error
