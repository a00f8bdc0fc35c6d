"""Replicas on the router's own machine: children that outlive it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from time import strftime
from typing import Any, ParamSpec, TypeVar

from twisted.internet.defer import Deferred, DeferredLock, fail, succeed
from twisted.internet.interfaces import IReactorProcess
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from ..config.model import HostConfig
from ..core.slots import Handle, Slot
from ..disk import is_locked
from ..errors import LaunchFailed, StopUnconfirmed
from ..interfaces import ILauncher
from . import files, proc
from .command import STOP_COMMAND_TIMEOUT, TOLD_LINES, ReplicaCommand, build, inherited, without_markers
from .port import refuse_taken
from .process import exit_of, how_ended, run
from .watching import LOOK_INTERVAL, process_end

P = ParamSpec("P")
T = TypeVar("T")

#: Where the lock is found in the replica.
LOCK_FD = 3

#: Seconds between looks at what is left of an instance that was told to stop.
_PULSE = 0.1

#: Seconds after SIGKILL within which the processes have to be gone, and then the lock free.
_AFTER_KILL = 10.0
_LOCK_PATIENCE = 2.0


class _Child(ProcessProtocol):
    """One replica that this router process started; remembers how it ended."""

    def __init__(self) -> None:
        self.code: int | None = None
        self.how: str | None = None
        self._waiting: list[Deferred[None]] = []

    def processEnded(self, reason: Failure) -> None:
        self.code, signum = exit_of(reason)
        self.how = how_ended(self.code, signum)
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.callback(None)

    def ended(self) -> Deferred[None]:
        """Fire when it has ended. Cancelling gives up waiting."""
        if self.how is not None:
            return succeed(None)
        waiter: Deferred[None] = Deferred(self._waiting.remove)
        self._waiting.append(waiter)
        return waiter


@implementer(ILauncher)
class LocalLauncher:
    """Starts replicas in sessions of their own; finds them again by pid and start time, or by marker.

    Output and locks go to the host's ``log_dir``, by default ``logs`` under ``state_dir``.

    :param now: seconds on the monotonic clock, for how long a stop may take; the reactor only wakes us.
    :param open_files: soft limit on open files that replicas get, None for the router's own. The router
        raises its own, and a program that walks over every possible descriptor would start slowly.
    """

    _log = Logger()

    def __init__(
        self,
        host: HostConfig,
        reactor: Any,
        now: Callable[[], float],
        state_dir: str,
        open_files: int | None = None,
    ) -> None:
        self._host = host
        self._now = now
        self._open_files = open_files
        self._reactor = reactor
        self._log_dir = os.path.join(state_dir, "logs")
        self._children: dict[str, _Child] = {}
        self._turns = DeferredLock()
        self._watches: set[Deferred[Any]] = set()

    def launch(self, slot: Slot, instance: str) -> Deferred[Handle]:
        """Start a replica; see ``ILauncher``."""
        return Deferred.fromCoroutine(self._launch(slot, instance))

    def stop(self, slot: Slot, instance: str, handle: Handle | None, grace: float) -> Deferred[None]:
        """Stop an instance and everything that came of it; see ``ILauncher``."""
        return Deferred.fromCoroutine(self._stop(slot, instance, _leader(handle), grace))

    def watch(self, handle: Handle) -> Deferred[str]:
        """Notice the end of a process, a child of ours or an adopted one; see ``ILauncher``."""
        return Deferred.fromCoroutine(self._watch(handle))

    def is_held(self, slot: Slot) -> Deferred[bool]:
        """Whether a process holds the slot's lock; see ``ILauncher``."""
        try:
            return succeed(is_locked(self._command(slot, "").lock_path))
        except FileNotFoundError:
            return succeed(False)
        except OSError as error:
            return fail(StopUnconfirmed(f"slot {slot.name}: cannot look at its lock: {_reason(error)}"))

    def is_running(self, slot: Slot, instance: str, handle: Handle | None) -> Deferred[bool]:
        """Whether anything of an instance is left on this machine; see ``ILauncher``."""
        return self._seen(proc.members, instance, _leader(handle)).addCallback(bool)

    def tail(self, slot: Slot, lines: int) -> Deferred[str]:
        """Read the end of the slot's log; see ``ILauncher``."""
        return succeed(files.last_lines(self._command(slot, "").log_path, lines))

    def close(self) -> Deferred[None]:
        """End all watches, which fail with ``CancelledError``; replicas run on."""
        for watch in tuple(self._watches):
            watch.cancel()
        return succeed(None)

    def _command(self, slot: Slot, instance: str) -> ReplicaCommand:
        return build(self._host, slot, instance, self._log_dir, os.path.expanduser("~"))

    def _seen(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """Walk over /proc in a thread: with thousands of processes it takes more than a few ms."""
        pool = self._reactor.getThreadPool()
        return self._turns.run(lambda: deferToThreadPool(self._reactor, pool, function, *args, **kwargs))

    async def _launch(self, slot: Slot, instance: str) -> Handle:
        command = self._command(slot, instance)
        environ = {**inherited(dict(os.environ)), **dict(command.env)}
        setsid = _checked(slot, command, environ)
        with ExitStack() as opened:
            null, log, lock = _files(slot, command, instance)
            opened.callback(os.close, null)
            opened.callback(os.close, log)
            opened.callback(os.close, lock)
            await refuse_taken(self._reactor, slot, f"slot {slot.name}")
            child = _Child()
            try:
                transport = IReactorProcess(self._reactor).spawnProcess(
                    child,
                    setsid,
                    ("setsid", *command.argv),
                    env=environ,
                    path=command.workdir,
                    childFDs={0: null, 1: log, 2: log, LOCK_FD: lock},
                )
            except (OSError, TypeError, ValueError) as error:
                raise LaunchFailed(
                    f"slot {slot.name}: {command.argv[0]} cannot be started: {error}"
                ) from error
        if self._open_files is not None and transport.pid is not None:
            proc.limit_open_files(transport.pid, self._open_files)
        started = proc.status(transport.pid) if transport.pid is not None else None
        pid = since = None
        if started is not None:
            pid, since = started.process.pid, started.process.started
        # Reaped before we could look, it ran for less than a moment. A wrapper that is done may do so.
        elif not (self._host.launch_wrapper and child.code == 0):
            told = files.last_lines(command.log_path, TOLD_LINES)
            raise LaunchFailed(f"slot {slot.name}: {command.argv[0]} {child.how} at once\n{told}")
        self._children[instance] = child
        return Handle(slot.name, instance, pid, since, command.log_path)

    async def _watch(self, handle: Handle) -> str:
        child = self._children.get(handle.instance)
        leader = _leader(handle)
        if child is not None:
            await self._watched(child.ended())
            how = f"process {handle.pid} {child.how}"
        elif leader is not None:
            await self._watched(process_end(self._reactor, leader))
            how = f"process {leader.pid} is gone"
        else:
            return await self._watched(Deferred[str]())
        if not self._host.launch_wrapper or (child is not None and child.code != 0):
            return how
        # The wrapper is done, its charge need not be. What it started on this machine carries the marker.
        if not await self._seen(proc.members, handle.instance, None):
            return await self._watched(Deferred[str]())
        while await self._seen(proc.members, handle.instance, None):
            await self._watched(deferLater(self._reactor, LOOK_INTERVAL))
        return f"instance {handle.instance} is gone"

    def _watched(self, deferred: Deferred[T]) -> Deferred[T]:
        self._watches.add(deferred)

        def forget(result: T | Failure) -> T | Failure:
            self._watches.discard(deferred)
            return result

        return deferred.addBoth(forget)

    async def _stop(self, slot: Slot, instance: str, leader: proc.Process | None, grace: float) -> None:
        command = self._command(slot, instance)
        known = set(await self._seen(proc.members, instance, leader))

        async def left() -> list[proc.Process]:
            """What still runs; all of /proc is searched again only when nobody known does."""
            alive = [process for process in known if proc.is_alive(process)]
            if not alive:
                known.update(await self._seen(proc.members, instance, leader))
                alive = [process for process in known if proc.is_alive(process)]
            return alive

        if known or self._host.launch_wrapper or await self.is_held(slot):
            if command.stop_argv:
                await self._run_stop_command(slot, command)
            else:
                for process in known:
                    proc.send(process, signal.SIGTERM)
            until = self._now() + grace
            while await left() and self._now() < until:
                await deferLater(self._reactor, _PULSE)
            await self._make_sure(slot, left)
        self._children.pop(instance, None)

    async def _make_sure(self, slot: Slot, left: Callable[[], Awaitable[list[proc.Process]]]) -> None:
        """Kill what is left, and hold on until nothing is and the lock is free."""
        until = self._now() + _AFTER_KILL
        while alive := await left():
            for process in alive:
                proc.send(process, signal.SIGKILL)
            if self._now() >= until:
                pids = ", ".join(str(process.pid) for process in alive)
                raise StopUnconfirmed(f"slot {slot.name}: processes {pids} outlive SIGKILL")
            await deferLater(self._reactor, _PULSE)
        until = self._now() + _LOCK_PATIENCE
        while await self.is_held(slot):
            if self._now() >= until:
                lock = self._command(slot, "").lock_path
                raise StopUnconfirmed(f"slot {slot.name}: somebody else holds its lock {lock}")
            await deferLater(self._reactor, _PULSE)

    async def _run_stop_command(self, slot: Slot, command: ReplicaCommand) -> None:
        environ = {**inherited(dict(os.environ)), **dict(without_markers(command.env))}
        program = command.stop_argv[0]
        try:
            ended = await run(
                self._reactor, command.stop_argv, STOP_COMMAND_TIMEOUT, env=environ, workdir=command.workdir
            )
        except OSError as error:
            raise StopUnconfirmed(f"slot {slot.name}: stop command {program}: {_reason(error)}") from error
        if ended.code != 0 or ended.timed_out:
            said = (ended.errors or ended.output).decode("utf-8", "replace").strip()[-800:]
            raise StopUnconfirmed(f"slot {slot.name}: stop command {program} {ended.how}: {said}")


def _leader(handle: Handle | None) -> proc.Process | None:
    if handle is None or handle.pid is None or handle.started is None:
        return None
    return proc.Process(handle.pid, handle.started)


def _reason(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{(error.strerror or str(error)).lower()}"


def _checked(slot: Slot, command: ReplicaCommand, environ: dict[str, str]) -> str:
    """Find out beforehand what would only be a line in the log; return where ``setsid`` is."""
    workdir, program = command.workdir, command.argv[0]
    if workdir is not None and not os.path.isdir(workdir):
        raise LaunchFailed(f"slot {slot.name}: its workdir {workdir} is no directory on this machine")
    where = os.path.join(workdir or "", program) if os.sep in program else program
    if shutil.which(where, path=environ.get("PATH")) is None:
        there = os.sep in program and os.path.exists(where)
        raise LaunchFailed(
            f"slot {slot.name}: {program} {'is not executable' if there else 'is not found'} on this machine"
        )
    setsid = shutil.which("setsid")
    if setsid is None:
        raise LaunchFailed(f"slot {slot.name}: the program setsid (util-linux) is missing on this machine")
    return setsid


def _files(slot: Slot, command: ReplicaCommand, instance: str) -> tuple[int, int, int]:
    """Open /dev/null, and the log with a line that says whose output follows; take the lock."""
    with ExitStack() as opened:
        try:
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            opened.callback(os.close, null)
            os.makedirs(command.log_dir, mode=0o700, exist_ok=True)
            lock = files.take_lock(command.lock_path)
            if lock is None:
                raise LaunchFailed(f"slot {slot.name}: a running process holds its lock {command.lock_path}")
            opened.callback(os.close, lock)
            log = files.open_log(command.log_path)
            opened.callback(os.close, log)
            os.write(log, f"--- {strftime('%Y-%m-%d %H:%M:%S%z')} {slot.name} {instance}\n".encode())
        except OSError as error:
            raise LaunchFailed(f"slot {slot.name}: its log cannot be written: {_reason(error)}") from error
        opened.pop_all()
    return null, log, lock
