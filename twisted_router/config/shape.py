"""From plain values to records: which keys there are, what each may hold, and every way it does not.

Written by hand: a table per record. A structuring library would stop a record at its first bad key or know
no positions, and its texts name classes, not what to write instead. A value that is refused is replaced by
a harmless one, so that everything else of the file is still judged; nobody sees the result, because the
report is no longer empty.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from ipaddress import IPv6Address
from typing import Any

from attrs import define, evolve, field, frozen

from .locate import Marks, Path, quote, show_path
from .model import FleetConfig, HostConfig, ReplicaConfig, split_destination

MAX_PORT = 65535
#: Digits of the longest whole number that is read as one; longer ones are never valid here.
MAX_DIGITS = 18

_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_PORT = r"(?:6553[0-5]|655[0-2]\d|65[0-4]\d\d|6[0-4]\d{3}|[1-5]\d{4}|[1-9]\d{0,3})"


@frozen
class LongNumber:
    """Stands for a whole number with more digits than any value here can have."""

    digits: int


def whole_number(digits: str) -> int | LongNumber:
    """Read a whole number's digits; one of very many digits is kept as its length, for the message."""
    length = len(digits.lstrip("+-"))
    return int(digits) if length <= MAX_DIGITS else LongNumber(length)


@frozen
class Problem:
    """One thing that is wrong; ``at_key`` when the key, not the value, is to be looked at."""

    path: Path
    text: str
    at_key: bool = False


@define
class Report:
    """All problems of one file, and which values are not to be judged any further."""

    problems: list[Problem] = field(factory=list)
    _refused: set[Path] = field(factory=set)
    _refused_inside: set[Path] = field(factory=set)

    def add(self, path: Path, text: str, at_key: bool = False) -> None:
        """Take down one problem; the value at ``path`` is not sound from now on."""
        self.problems.append(Problem(path, text, at_key))
        self._refused.add(path)
        self._refused_inside.update(path[:n] for n in range(len(path)))

    def expected(self, path: Path, what: str, value: object, hint: str = "") -> None:
        """Take down that something else was expected than what is there."""
        self.add(path, f"expected {what}, got {describe(value)}{hint}")

    def is_sound(self, *path: str | int) -> bool:
        """Tell whether the value at ``path``, all inside it and all it lies in were accepted so far."""
        around = (path[:n] for n in range(len(path) + 1))
        return path not in self._refused_inside and self._refused.isdisjoint(around)

    def lines(self, filename: str, marks: Marks) -> tuple[str, ...]:
        """Render the problems as ``file:line:column: path: text``, in the order of the file."""
        placed = [(marks.find(p.path, p.at_key), show_path(p.path), p.text) for p in self.problems]
        for again in marks.repeated:
            first = f"line {again.first.line}, column {again.first.column}"
            text = f"expected each key once, got it again (first at {first})"
            placed.append((again.place, show_path(again.path), text))
        return tuple(
            f"{filename}:{place.line}:{place.column}: {path}: {text}" for place, path, text in sorted(placed)
        )


def describe(value: object) -> str:
    """Name a value in a few words, whatever it is."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return quote(value)
        case LongNumber():
            return f"a number of {value.digits} digits"
        case int():
            return str(value)
        case float():
            return repr(value) if math.isfinite(value) else "a number that is not finite"
        case list():
            return "a list" if value else "an empty list"
    return "an object" if value else "an empty object"


#: Judges one value; reports what is wrong and then returns something harmless.
Reader = Callable[[object, Path, Report], Any]


def text(value: object, path: Path, report: Report, what: str = "a string") -> str:
    """Accept a string that may be an argument of a process: no NUL, nothing UTF-8 cannot carry."""
    if not isinstance(value, str):
        hint = "; put it in quotes" if isinstance(value, int | float) else ""
        report.expected(path, what, value, hint)
        return ""
    if "\0" in value or any("\ud800" <= c <= "\udfff" for c in value):
        report.expected(path, f"{what} without NUL or lone surrogates", value)
        return ""
    return value


def word(value: object, path: Path, report: Report, what: str = "a non-empty string") -> str:
    """Accept a string that is not empty and has no control characters and no blanks at its ends."""
    found = text(value, path, report, what)
    if found and (found != found.strip() or not found.isprintable()):
        report.expected(path, f"{what} without control characters or blanks around it", value)
    elif not found and report.is_sound(*path):
        report.expected(path, what, value)
    return found


def name(value: object, path: Path, report: Report) -> str:
    """Accept a name: it becomes part of URLs, file names, log lines and metric labels. Empty is absent."""
    found = text(value, path, report, "a name")
    if not found.isprintable() or any(c.isspace() or c == "/" for c in found):
        report.expected(path, 'a name without blanks, control characters or "/"', value)
        return ""
    return found


def address(value: object, path: Path, report: Report) -> str:
    """Accept a host name or IP address, IPv6 without brackets."""
    found = text(value, path, report, "a host name or IP address")
    if report.is_sound(*path) and not is_address(found):
        report.expected(path, "a bare host name or IP address", value, _address_hint(found))
        return ""
    return found


def is_address(found: str) -> bool:
    """Tell whether a URL can carry this host: a plain name, an IPv4 or an IPv6 address without zone."""
    if ":" not in found:
        return _HOST_NAME.fullmatch(found) is not None and len(found) <= 253
    try:
        return IPv6Address(found).scope_id is None
    except ValueError:
        return False


def _address_hint(found: str) -> str:
    if "://" in found:
        return '; the scheme has its own key, "scheme"'
    if found.startswith("["):
        return "; write IPv6 addresses without brackets"
    return '; the port has its own key, "port"' if found.count(":") == 1 else ""


def destination(value: object, path: Path, report: Report) -> str:
    """Accept what ssh connects to; nothing that ssh could take for an option."""
    what = "an ssh destination such as user@node02 or ssh://user@node02:2222"
    found = text(value, path, report, what)
    if not report.is_sound(*path):
        return "refused"
    try:
        user, host, port = split_destination(found)
    except ValueError:
        user, host, port = None, "", None
    is_user = "@" not in found if user is None else re.fullmatch(r"[^\s:/@-][^\s:/@]*", user)
    if not is_address(host) or not is_user or (port is not None and not 1 <= port <= MAX_PORT):
        report.expected(path, what, value, "" if found else "; leave the key out for this machine")
        return "refused"
    return found


def whole(low: int, high: int, what: str) -> Reader:
    """Accept a whole number between two bounds, both included."""

    def read(value: object, path: Path, report: Report) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        report.expected(path, what, value)
        return high

    return read


port = whole(1, MAX_PORT, f"a port from 1 to {MAX_PORT}")


def choice(*allowed: str) -> Reader:
    """Accept one of a few words."""

    def read(value: object, path: Path, report: Report) -> str:
        if isinstance(value, str) and value in allowed:
            return value
        report.expected(path, " or ".join(f'"{a}"' for a in allowed), value)
        return allowed[0]

    return read


def own_path(value: object, path: Path, report: Report) -> str:
    """Accept the path of a file on the router's machine; a leading ``~`` is expanded."""
    found = word(value, path, report, "a path")
    if not report.is_sound(*path):
        return ""
    expanded = os.path.expanduser(found)
    if expanded.startswith("~"):
        report.expected(path, "a path, or ~ of a user known here", value)
    return expanded


def matching(pattern: str, what: str) -> Reader:
    """Accept a string that a pattern matches as a whole."""

    def read(value: object, path: Path, report: Report) -> str:
        found = text(value, path, report, what)
        if report.is_sound(*path) and not re.fullmatch(pattern, found):
            report.expected(path, what, value)
        return found

    return read


url_path = matching(r"/[!-~]*", "a path that begins with / and has no blanks")
endpoint = matching(rf"tcp://(\[[0-9A-Fa-f:.]+\]|[\w.-]+):{_PORT}", "an endpoint such as tcp://node02:5557")


def texts(value: object, path: Path, report: Report) -> tuple[str, ...]:
    """Accept a list of strings."""
    if not isinstance(value, list):
        report.expected(path, "a list of strings", value)
        return ()
    return tuple(text(item, (*path, i), report) for i, item in enumerate(value))


def argv(value: object, path: Path, report: Report) -> tuple[str, ...]:
    """Accept a list of strings whose first, if there is one, names a program."""
    found = texts(value, path, report)
    if found and report.is_sound(*path, 0):
        word(found[0], (*path, 0), report, "a program")
    return found


def device_ids(value: object, path: Path, report: Report) -> tuple[int, ...]:
    """Accept a non-empty list of distinct whole numbers from 0 on."""
    if not isinstance(value, list) or not value:
        report.expected(path, "a non-empty list of device numbers", value)
        return ()
    read = whole(0, MAX_PORT, f"a device number from 0 to {MAX_PORT}")
    found = tuple(read(item, (*path, i), report) for i, item in enumerate(value))
    seen: set[int] = set()
    for i, device in enumerate(found):
        if device in seen and report.is_sound(*path, i):
            report.add((*path, i), f"expected each device once, got {device} again")
        seen.add(device)
    return found


def variables(value: object, path: Path, report: Report) -> tuple[tuple[str, str], ...]:
    """Accept an object of environment variables."""
    if not isinstance(value, dict):
        report.expected(path, "an object of environment variables", value)
        return ()
    for key in value:
        if not isinstance(key, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
            report.add((*path, str(key)), f"expected a variable name, got {describe(key)}", at_key=True)
    return tuple((str(key), text(item, (*path, str(key)), report)) for key, item in value.items())


REPLICA: Mapping[str, Reader] = {
    "name": name,
    "host": address,
    "port": port,
    "scheme": choice("http", "https"),
    "ca_file": own_path,
    "client_cert": own_path,
    "health_path": url_path,
    "kv_events": endpoint,
    "kv_events_replay": endpoint,
}

HOST: Mapping[str, Reader] = {
    "name": name,
    "ssh": destination,
    "identity_file": own_path,
    "known_hosts": own_path,
    "ssh_config": own_path,
    "ssh_client": choice("openssh", "conch"),
    "devices": device_ids,
    "devices_per_replica": whole(1, MAX_PORT, "a whole number of at least 1"),
    "port_base": whole(0, MAX_PORT, f"a port from 0 to {MAX_PORT}"),
    "model": word,
    "served_model_name": word,
    "serve_args": texts,
    "env": variables,
    "launch_wrapper": argv,
    "stop_command": argv,
    "command": argv,
    "python": word,
    "workdir": word,
    "log_dir": word,
    "health_path": url_path,
}


def _members(
    value: object, path: Path, report: Report, table: Mapping[str, Reader], needs: Mapping[str, str]
) -> dict[str, Any]:
    """Read an object by a table of keys; ``needs`` names the required ones and what they hold."""
    if not isinstance(value, dict):
        report.expected(path, "an object", value)
        return {}
    unknown = [key for key in value if not isinstance(key, str) or key not in table]
    for key in unknown:
        # Likeness is slow to find; a file with this many strangers is no fleet file at all.
        close = get_close_matches(str(key), table, 1) if len(unknown) <= 40 else []
        hint = f'; did you mean "{close[0]}"?' if close else ""
        report.add((*path, str(key)), f"expected a known key, got {describe(key)}{hint}", at_key=True)
    for key, what in needs.items():
        if key not in value:
            report.add((*path, key), f"expected {what}, got nothing")
    return {key: table[key](value[key], (*path, key), report) for key in value if key in table}


def read_replica(value: object, path: Path, report: Report) -> ReplicaConfig:
    """Read one entry of ``replicas``."""
    needs = {"host": "a host name or IP address", "port": f"a port from 1 to {MAX_PORT}"}
    found = {"host": "", "port": 1, **_members(value, path, report, REPLICA, needs)}
    replica = ReplicaConfig(**(found | {"name": found.get("name", "")}))
    made_up = replica.url.partition("://")[2]
    return evolve(replica, name=replica.name or _name(made_up, path, report, "host", "port"))


def read_host(value: object, path: Path, report: Report) -> HostConfig:
    """Read one entry of ``hosts``; it is called after its place in the list when it has no name."""
    needs = {"devices": "a non-empty list of device numbers"}
    if not (isinstance(value, dict) and value.get("command")):
        needs["model"] = 'the path of a model (only "command" can do without)'
    found = {"devices": (), **_members(value, path, report, HOST, needs)}
    return HostConfig(**(found | {"name": found.get("name") or _name(f"host{path[-1]}", path, report)}))


def _name(made_up: str, path: Path, report: Report, *parts: str) -> str:
    """Name a record that gives no name, or one that was refused: then nothing else may seem to share it."""
    is_sound = all(report.is_sound(*path, key) for key in ("name", *parts))
    return made_up if is_sound else show_path(path)


def _entries(value: object, path: Path, report: Report) -> list[object]:
    if isinstance(value, list):
        return value
    report.expected(path, "a list", value)
    return []


def policy(value: object, path: Path, report: Report) -> str | None:
    """Accept a name, or an object with ``name`` and parameters; return what ``--policy`` takes."""
    if isinstance(value, str) and value:
        return value
    what = 'a policy\'s name, or an object with "name" and parameters'
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        report.expected(path, what, value)
        return None
    pairs = []
    for key, setting in value.items():
        if isinstance(setting, bool) or not isinstance(setting, str | int | float):
            report.expected((*path, str(key)), "a string or a number", setting)
        elif key != "name":
            pairs.append(f"{key}={setting}")
    return ":".join(filter(None, (value["name"], ",".join(pairs))))


def read_document(value: object, report: Report) -> FleetConfig:
    """Read a whole file's value; only what concerns single records is judged here."""
    if not isinstance(value, dict):
        report.expected((), 'an object with "replicas" or "hosts"', value)
        return FleetConfig()
    found = _members(value, (), report, {"replicas": _entries, "hosts": _entries, "policy": policy}, {})
    replicas, hosts = found.get("replicas", []), found.get("hosts", [])
    if not replicas and not hosts and not report.problems:
        report.add((), "expected at least one replica or host, got none")
    return FleetConfig(
        tuple(read_replica(item, ("replicas", i), report) for i, item in enumerate(replicas)),
        tuple(read_host(item, ("hosts", i), report) for i, item in enumerate(hosts)),
        found.get("policy"),
    )
