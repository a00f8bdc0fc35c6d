"""A launcher without processes, held to the same contract as the real ones, for tests of its users."""

from __future__ import annotations

from attrs import define, field
from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer

from twisted_router.core.slots import Handle, Slot
from twisted_router.errors import LaunchFailed, LaunchUncertain, StopUnconfirmed
from twisted_router.interfaces import ILauncher


@define
class MemoryProcess:
    """One replica that is said to run."""

    slot: str
    instance: str
    pid: int


@define
class MemoryMachine:
    """What outlives a launcher: processes, logs, ports, and how the next launch will go.

    :ivar exit_code: the next replica ends at once with this code.
    :ivar refusal: launches fail with this sentence; nothing is left running.
    :ivar uncertain: launches start the process and then say that they do not know.
    :ivar unconfirmed: stops fail with this sentence; the process runs on.
    :ivar held_by_others: names of slots whose lock a foreign process holds.
    :ivar answering: ports something already listens on.
    :ivar paused: launches and stops wait until ``resume``.
    """

    processes: dict[str, MemoryProcess] = field(factory=dict)
    logs: dict[str, list[str]] = field(factory=dict)
    launches: list[tuple[str, str]] = field(factory=list)
    stops: list[tuple[str, str]] = field(factory=list)
    exit_code: int | None = None
    refusal: str | None = None
    uncertain: bool = False
    unconfirmed: str | None = None
    held_by_others: set[str] = field(factory=set)
    answering: set[int] = field(factory=set)
    paused: bool = False
    _pid: int = 1000
    _waiting: list[Deferred[None]] = field(factory=list)
    _watches: list[tuple[Handle, Deferred[str]]] = field(factory=list)

    def go(self) -> Deferred[None]:
        """Fire at once, or when ``resume`` is called."""
        if not self.paused:
            return succeed(None)
        waiting: Deferred[None] = Deferred(self._waiting.remove)
        self._waiting.append(waiting)
        return waiting

    def resume(self) -> None:
        """Let everything go on that waits."""
        self.paused = False
        waiting, self._waiting = self._waiting, []
        for deferred in waiting:
            deferred.callback(None)

    def start(self, slot: Slot, instance: str) -> Handle:
        """Say that a process runs."""
        self._pid += 1
        self.processes[instance] = MemoryProcess(slot.name, instance, self._pid)
        self.logs.setdefault(slot.name, []).append(f"started {instance}")
        handle = Handle(slot.name, instance, self._pid, f"t{self._pid}", f"/logs/{slot.name}.log")
        if self.exit_code is not None:
            code, self.exit_code = self.exit_code, None
            self.end(instance, f"exited with code {code}")
        return handle

    def end(self, instance: str, how: str = "was killed by SIGKILL") -> None:
        """Say that a process has ended, to all who watch it."""
        process = self.processes.pop(instance, None)
        if process is None:
            return
        self.logs[process.slot].append(how)
        for handle, watch in tuple(self._watches):
            if handle.instance == instance:
                self._watches.remove((handle, watch))
                watch.callback(f"process {process.pid} {how}")

    def watch(self, handle: Handle) -> Deferred[str]:
        """Wait for the end of a process."""
        if handle.instance not in self.processes:
            last = self.logs.get(handle.slot, ["is gone"])[-1]
            return succeed(f"process {handle.pid} {last}")
        entry: tuple[Handle, Deferred[str]] = (handle, Deferred(lambda _: self._watches.remove(entry)))
        self._watches.append(entry)
        return entry[1]

    def is_held(self, slot: str) -> bool:
        """Whether the slot's lock is held."""
        return slot in self.held_by_others or any(each.slot == slot for each in self.processes.values())


@implementer(ILauncher)
class MemoryLauncher:
    """Starts and stops what is only said to run on a ``MemoryMachine``."""

    def __init__(self, machine: MemoryMachine) -> None:
        self.machine = machine
        self.closed = False
        self._watches: list[Deferred[str]] = []

    def launch(self, slot: Slot, instance: str) -> Deferred[Handle]:
        self.machine.launches.append((slot.name, instance))

        def launched(_: None) -> Handle:
            if self.machine.refusal is not None:
                raise LaunchFailed(f"slot {slot.name}: {self.machine.refusal}")
            if self.machine.is_held(slot.name):
                raise LaunchFailed(f"slot {slot.name}: a running process holds its lock")
            if slot.port in self.machine.answering:
                raise LaunchFailed(f"slot {slot.name}: something already answers on port {slot.port}")
            handle = self.machine.start(slot, instance)
            if self.machine.uncertain:
                raise LaunchUncertain(f"slot {slot.name}: the connection was lost")
            return handle

        return self.machine.go().addCallback(launched)

    def stop(self, slot: Slot, instance: str, handle: Handle | None, grace: float) -> Deferred[None]:
        self.machine.stops.append((slot.name, instance))

        def stopped(_: None) -> None:
            if self.machine.unconfirmed is not None:
                raise StopUnconfirmed(f"slot {slot.name}: {self.machine.unconfirmed}")
            self.machine.end(instance, "was killed by SIGTERM")
            if self.machine.is_held(slot.name):
                raise StopUnconfirmed(f"slot {slot.name}: somebody still holds its lock")

        return self.machine.go().addCallback(stopped)

    def watch(self, handle: Handle) -> Deferred[str]:
        watch = self.machine.watch(handle)
        self._watches.append(watch)
        return watch

    def is_held(self, slot: Slot) -> Deferred[bool]:
        return succeed(self.machine.is_held(slot.name))

    def is_running(self, slot: Slot, instance: str, handle: Handle | None) -> Deferred[bool]:
        if self.machine.unconfirmed is not None:
            return fail(StopUnconfirmed(f"slot {slot.name}: {self.machine.unconfirmed}"))
        return succeed(instance in self.machine.processes)

    def tail(self, slot: Slot, lines: int) -> Deferred[str]:
        return succeed("\n".join(self.machine.logs.get(slot.name, [])[-lines:]))

    def close(self) -> Deferred[None]:
        self.closed = True
        for watch in self._watches:
            watch.cancel()
        return succeed(None)
