"""The state file: what the router launched, kept so that no crash forgets a held card."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import attrs
from twisted.logger import Logger
from zope.interface import implementer

from ..core.records import FleetRecord, LaunchTime, PinRecord, Reservation, SlotRecord
from ..core.slots import Handle
from ..errors import StateFileBusy, StateFileError
from ..interfaces import IStateStore

PROGRAM = "pypto-router"
VERSION = 1

#: Pins written at a time: about a millisecond of the interpreter's time between two system calls.
_PINS_PER_LINE = 500

#: The largest process id a kernel's calls take.
_MOST_PID = 2**31 - 1

_DAMAGED = (
    "It may name replicas that still hold devices, so nothing is started: put a good copy back, or make sure"
    " that no launched replica is left on any host and move the file away"
)


class _Unusable(Exception):
    """What is wrong with a file's content, in words."""


@implementer(IStateStore)
class NoStateFile:
    """Stands in where no ``--state-file`` is given: remembers nothing."""

    def lock(self) -> None:
        """There is nothing to share."""

    def load(self) -> FleetRecord:
        """Every start is a first one."""
        return FleetRecord()

    def save(self, record: FleetRecord) -> None:
        """Forget it."""

    def load_pins(self) -> tuple[PinRecord, ...]:
        """Every start is a first one."""
        return ()

    def save_pins(self, pins: Iterable[PinRecord]) -> None:
        """Forget them."""

    def close(self) -> None:
        """There is nothing to give back."""


@implementer(IStateStore)
class StateFile:
    """Versioned JSON that is replaced whole: sibling, fsync, rename, fsync of the directory.

    Beside it lie ``<file>.pins``, apart so that 100,000 of them do not slow the write before a launch, and
    ``<file>.lock``, which the running router holds and which is never removed.

    :param wall: wall time in seconds; ages are stored with it, since no other clock survives a reboot.
    """

    _log = Logger()

    def __init__(self, path: str, wall: Callable[[], float] = time.time) -> None:
        self.path = os.path.realpath(os.path.expanduser(path))
        self.pins_path = self.path + ".pins"
        self.lock_path = self.path + ".lock"
        self._wall = wall
        self._locked: int | None = None
        self._pins_spoilt = False

    def lock(self) -> None:
        """Hold the lock file for the life of this process and its forks; see ``IStateStore``."""
        if self._locked is None:
            self._locked = self._take_lock()
        try:
            os.ftruncate(self._locked, 0)
            os.pwrite(self._locked, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            self._log.warn("cannot write our pid into {path}: {why}", path=self.lock_path, why=error.strerror)

    def _take_lock(self) -> int:
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            held = os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateFileError(
                f"state file {self.path} cannot be locked: {self.lock_path}: {error.strerror}."
                " Give the router a directory it may write to"
            ) from error
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            other = _pid_in(held)
            os.close(held)
            if not isinstance(error, BlockingIOError):
                raise StateFileError(
                    f"state file {self.path} cannot be locked: {error.strerror}."
                    " Put it on a file system that supports flock"
                ) from error
            who = "another router" if other is None else f"another router (pid {other})"
            raise StateFileBusy(
                f"state file {self.path} is in use by {who}."
                " Stop that one first, or give this one a --state-file of its own"
            ) from error
        return held

    def load(self) -> FleetRecord:
        """See ``IStateStore``. The file is only read, whatever is in it."""
        try:
            with open(self.path, "rb") as file:
                content = file.read()
        except FileNotFoundError:
            return FleetRecord()
        except OSError as error:
            raise StateFileError(
                f"state file {self.path} cannot be read: {error.strerror}. {_DAMAGED}"
            ) from error
        try:
            document = _document(content)
            away = self._away(document)
            return _fleet(document, away)
        except _Unusable as unusable:
            raise StateFileError(
                f"state file {self.path} cannot be used: {unusable}. {_DAMAGED}"
            ) from unusable

    def save(self, record: FleetRecord) -> None:
        """See ``IStateStore``."""
        document = self._header() | attrs.asdict(record, value_serializer=_plain)
        self._replace(self.path, [json.dumps(document, indent=1).encode() + b"\n"])

    def load_pins(self) -> tuple[PinRecord, ...]:
        """See ``IStateStore``. Pins that cannot be read are left lying, and none are saved over them."""
        try:
            with open(self.pins_path, "rb") as file:
                header = _document(file.readline())
                away = self._away(header)
                return tuple(_pins(file, away))
        except FileNotFoundError:
            return ()
        except (OSError, _Unusable) as error:
            self._pins_spoilt = True
            self._log.error(
                "session pins in {path} cannot be used and none will be saved, conversations will be routed"
                " anew: {why}. Move the file away and restart the router",
                path=self.pins_path,
                why=error.strerror if isinstance(error, OSError) else error,
            )
            return ()

    def save_pins(self, pins: Iterable[PinRecord]) -> None:
        """See ``IStateStore``."""
        if not self._pins_spoilt:
            self._replace(self.pins_path, self._pin_lines(pins))

    def close(self) -> None:
        """See ``IStateStore``."""
        held, self._locked = self._locked, None
        if held is not None:
            os.close(held)

    def _header(self) -> dict[str, Any]:
        return {"version": VERSION, "program": PROGRAM, "saved": self._wall()}

    def _away(self, document: dict[str, Any]) -> float:
        """Seconds since the document was saved, none where the wall clock stepped back meanwhile."""
        saved: float = _take(document, "saved", float)
        return max(0.0, self._wall() - saved)

    def _pin_lines(self, pins: Iterable[PinRecord]) -> Iterator[bytes]:
        yield json.dumps(self._header()).encode() + b"\n"
        remaining = iter(pins)
        while chunk := [
            [pin.session, pin.home, round(pin.idle, 1)] for pin in islice(remaining, _PINS_PER_LINE)
        ]:
            yield json.dumps(chunk).encode() + b"\n"
        yield b"[]\n"

    def _replace(self, path: str, parts: Iterable[bytes]) -> None:
        """Put new content in place of ``path`` so that a crash at any moment leaves the old or the new."""
        sibling = path + ".new"
        try:
            self._write(sibling, parts)
            os.rename(sibling, path)
            _sync_directory(os.path.dirname(path))
        except OSError as error:
            with suppress(OSError):
                os.unlink(sibling)
            raise StateFileError(
                f"state file {path} cannot be written: {error.strerror}."
                " What was saved before is still there; make room or mend the directory"
            ) from error

    def _write(self, path: str, parts: Iterable[bytes]) -> None:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb", buffering=0) as file:
            for part in parts:
                _write_all(file.fileno(), part)
            os.fsync(file.fileno())


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _pid_in(descriptor: int) -> int | None:
    with suppress(OSError, ValueError):
        return int(os.pread(descriptor, 32, 0))
    return None


def _plain(_: object, __: object, value: Any) -> Any:
    return value.value if isinstance(value, Reservation) else value


def _document(content: bytes) -> dict[str, Any]:
    """Parse one of our documents and check that it is one of ours."""
    if not content.strip(b"\x00 \t\r\n"):
        raise _Unusable("it is empty" if not content else "it holds nothing but blanks or NULs")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _Unusable(f"it is not JSON or was cut off ({error})") from error
    if not isinstance(document, dict) or document.get("program") != PROGRAM:
        raise _Unusable("it was not written by this router")
    version = _take(document, "version", int)
    if version > VERSION:
        raise _Unusable(f"it was written by a newer router (version {version}, this one reads {VERSION})")
    if version != VERSION:
        raise _Unusable(f"it has the unknown version {version}")
    return document


def _take(document: Any, key: str, *kinds: type) -> Any:
    """Return a member of an object that has to be of one of ``kinds``; an int serves for a float."""
    value = document.get(key) if isinstance(document, dict) else None
    if float in kinds and type(value) is int and abs(value) < 1e300:
        value = float(value)
    if type(value) not in kinds or (isinstance(value, float) and not abs(value) < float("inf")):
        raise _Unusable(f"{key!r} is missing or not what it should be")
    return value


def _fleet(document: dict[str, Any], away: float) -> FleetRecord:
    slots = tuple(_slot(entry, away) for entry in _take(document, "slots", list))
    if len({record.instance for record in slots}) < len(slots):
        raise _Unusable("two of its 'slots' have one 'instance'")
    return FleetRecord(
        slots,
        tuple(
            LaunchTime(_take(entry, "host", str), _take(entry, "model", str), _take(entry, "seconds", float))
            for entry in _take(document, "launch_times", list)
        ),
    )


def _text(entry: Any, key: str) -> str:
    """Return a member that has to be text with something in it, for something is known by it."""
    value: str = _take(entry, key, str)
    if not value:
        raise _Unusable(f"{key!r} is empty")
    return value


def _number(entry: Any, key: str, most: int) -> int:
    """Return a member that has to be a whole number from 1 to ``most``."""
    value: int = _take(entry, key, int)
    if not 1 <= value <= most:
        raise _Unusable(f"{key!r} is not from 1 to {most}")
    return value


def _slot(entry: Any, away: float) -> SlotRecord:
    devices = _take(entry, "devices", list)
    if not all(type(device) is int for device in devices):
        raise _Unusable("'devices' are not numbers")
    reason = _take(entry, "reason", str, type(None))
    if reason is not None and reason not in {known.value for known in Reservation}:
        raise _Unusable(f"the reason {reason!r} is unknown")
    handle = _take(entry, "handle", dict, type(None))
    return SlotRecord(
        slot=_text(entry, "slot"),
        instance=_text(entry, "instance"),
        devices=tuple(devices),
        address=_text(entry, "address"),
        port=_number(entry, "port", 65535),
        handle=None if handle is None else _handle(handle),
        reason=None if reason is None else Reservation(reason),
        why=_take(entry, "why", str),
        age=_take(entry, "age", float) + away,
    )


def _handle(entry: dict[str, Any]) -> Handle:
    return Handle(
        slot=_text(entry, "slot"),
        instance=_text(entry, "instance"),
        pid=None if _take(entry, "pid", int, type(None)) is None else _number(entry, "pid", _MOST_PID),
        started=_take(entry, "started", str, type(None)),
        log_path=_take(entry, "log_path", str),
    )


def _pins(lines: Iterable[bytes], away: float) -> Iterator[PinRecord]:
    chunk: Any = None
    for line in lines:
        try:
            chunk = json.loads(line)
            for session, home, idle in chunk:
                if not abs(idle) < float("inf"):
                    raise ValueError("a time without end")
                yield PinRecord(str(session), str(home), float(idle) + away)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise _Unusable(f"a line is damaged ({error})") from error
    if chunk != []:
        raise _Unusable("its end is missing")
