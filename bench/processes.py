"""Child processes that end with us, and what they cost: descendants, memory, descriptors."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = os.sysconf("SC_PAGESIZE")


class Unavailable(Exception):
    """Something cannot be measured here; the message is a sentence that says what to do."""


class Children:
    """The processes of one run. :meth:`end` stops them by pid, newest first, whatever happened."""

    def __init__(self, logs: Path, grace: float) -> None:
        self._logs = logs
        self._grace = grace
        self._running: list[subprocess.Popen[str]] = []

    def start(self, name: str, argv: list[str]) -> subprocess.Popen[str]:
        """Run *argv*; its stdout is a pipe only for programs that announce themselves there (``stub``)."""
        if setpriv := shutil.which("setpriv"):
            argv = [setpriv, "--pdeathsig", "TERM", *argv]
        with (self._logs / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if name.startswith("stub") else log,
                stderr=log,
                text=True,
                cwd=ROOT,
            )
        self._running.append(process)
        return process

    def end(self) -> None:
        """SIGTERM, the grace, SIGKILL; then the same for descendants that stayed behind."""
        for process in reversed(self._running):
            family = {pid: born(pid) for pid in tree(process.pid)[1:]}
            process.terminate()
            try:
                process.wait(self._grace)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
            for pid, since in family.items():
                _kill(pid, since)
        self._running.clear()


def _kill(pid: int, since: str | None) -> None:
    """SIGKILL a process that is no child of ours, if it is still the one born then, and wait for its end."""
    with contextlib.suppress(ProcessLookupError):
        held = os.pidfd_open(pid)
        try:
            if born(pid) == since:
                signal.pidfd_send_signal(held, signal.SIGKILL)
                select.select([held], [], [], 5)
        finally:
            os.close(held)


def _leave(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


@contextlib.contextmanager
def children(logs: Path, grace: float = 5) -> Iterator[Children]:
    """A :class:`Children` that is ended on the way out; SIGTERM counts as a way out.

    :param grace: seconds between SIGTERM and SIGKILL.
    """
    logs.mkdir(parents=True, exist_ok=True)
    before = signal.signal(signal.SIGTERM, _leave)
    family = Children(logs, grace)
    try:
        yield family
    finally:
        family.end()
        signal.signal(signal.SIGTERM, before)


def parse_stat(text: str) -> tuple[int, int]:
    """``/proc/PID/stat`` -> (pid, parent's pid). The name between may hold blanks and parentheses."""
    pid = int(text[: text.index(" ")])
    return pid, int(text[text.rindex(")") + 1 :].split()[1])


def born(pid: int) -> str | None:
    """When *pid* started (clock ticks), to tell it from a later process of that number; None if gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text[text.rindex(")") + 1 :].split()[19]


def tree(root: int) -> list[int]:
    """*root* and all that descend from it, parents first."""
    below: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            pid, parent = parse_stat(path.read_text())
            below.setdefault(parent, []).append(pid)
    found = [root]
    for pid in found:
        found.extend(below.get(pid, ()))
    return found


def cpu_us(pids: list[int]) -> float:
    """Processor time of *pids* so far, ended threads included."""
    return sum(time.clock_gettime_ns((~pid << 3) | 2) for pid in pids) / 1e3


def rss_kb(pids: list[int]) -> int:
    """Resident memory of *pids*."""
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE // 1024 for pid in pids)


def descriptors(pids: list[int]) -> int:
    """Open file descriptors of *pids*."""
    return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)


def free_port() -> int:
    """A loopback port that nobody listens on at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
