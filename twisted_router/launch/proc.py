"""Who is who under ``/proc``: a process is its pid together with when it began, and nothing else is."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

from attrs import frozen

from .command import INSTANCE_MARKER


@frozen
class Process:
    """One process, never to be taken for a later one with the same number.

    :ivar started: start time in clock ticks since boot, a dot, and the boot's own id.
    """

    pid: int
    started: str


@frozen
class Status:
    """What ``/proc/PID/stat`` says that matters here (proc(5))."""

    process: Process
    alive: bool
    group: int
    session: int


def limit_open_files(pid: int, soft: int) -> None:
    """Give a process that has just been started another soft limit on open files; the hard one stays."""
    with suppress(OSError, ValueError):  # it has ended already, which others notice
        hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


@cache
def _boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def status(pid: int) -> Status | None:
    """Look at a process; None when there is none. A zombie with no thread left running is not alive."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may hold anything, so count from the last one.
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    alive = fields[0] not in (b"Z", b"X") or int(fields[17]) > 1
    process = Process(pid, f"{int(fields[19])}.{_boot_id()}")
    return Status(process, alive, int(fields[2]), int(fields[3]))


def is_alive(process: Process) -> bool:
    """Whether this very process still runs."""
    seen = status(process.pid)
    return seen is not None and seen.process == process and seen.alive


def members(instance: str, leader: Process | None) -> frozenset[Process]:
    """Everything alive that belongs to an instance: by its marker, or by its leader's group or session.

    Group and session count only while the leader itself exists: after that the number could be anybody's.
    """
    marker = f"{INSTANCE_MARKER}={instance}".encode()
    led = None
    if leader is not None:
        seen = status(leader.pid)
        led = leader.pid if seen is not None and seen.process == leader else None
    found = set()
    for seen in _everybody():
        pid = seen.process.pid
        if (
            pid != os.getpid()
            and seen.alive
            and (_carries(pid, marker) or led in (pid, seen.group, seen.session))
        ):
            found.add(seen.process)
    return frozenset(found)


def send(process: Process, signum: signal.Signals) -> None:
    """Signal this very process, or nobody: the pid is held by a descriptor while its start is compared."""
    with suppress(ProcessLookupError, PermissionError):
        held = os.pidfd_open(process.pid)
        try:
            if is_alive(process):
                signal.pidfd_send_signal(held, signum)
        finally:
            os.close(held)


def _everybody() -> Iterator[Status]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            seen = status(int(name))
            if seen is not None:
                yield seen


def _carries(pid: int, marker: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return marker in file.read().split(b"\0")
    except OSError:
        return False
