"""Replicas on another machine, by way of anything that can run a sh script there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from attrs import evolve, frozen
from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from zope.interface import implementer

from ..config.model import HostConfig
from ..core.slots import Handle, Slot
from ..errors import LaunchFailed, LaunchUncertain, StopUnconfirmed
from ..interfaces import ILauncher
from . import scripts
from .command import STOP_COMMAND_TIMEOUT, TOLD_LINES, ReplicaCommand, build
from .port import refuse_taken
from .process import how_ended
from .scripts import Reply, Script, read_reply

#: Where output and locks go on the other machine when ``log_dir`` does not say.
DEFAULT_LOG_DIR = "~/.local/state/pypto-router/logs"

#: Seconds a short step may take: to connect, to log in, to run a few commands.
STEP_TIMEOUT = 30.0

#: Seconds the proof of a stop takes beyond the grace period.
_PROOF_TIMEOUT = 25.0

#: Steps at once on one host; its sshd takes 10 on a connection (MaxSessions).
SESSIONS = 8

#: Seconds between looks at the watched processes of one host, all in one step.
LOOK_INTERVAL = 5.0


@frozen
class Trouble:
    """Why a script may not have run to its end, in one sentence.

    :ivar before: it is certain that nothing of it has run.
    :ivar lost: the connection broke; on a new one it may work.
    """

    sentence: str
    before: bool
    lost: bool = False


@frozen
class Ran:
    """What came of running a script over there; ``code`` is None when it is unknown."""

    output: bytes
    errors: bytes
    code: int | None
    trouble: Trouble | None = None


#: Runs a script over there, at most so many seconds. Never fails, unless cancelled.
Run = Callable[[Script, float], Deferred[Ran]]


class Incomplete(Exception):
    """A script whose end was not seen."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.sentence)
        self.before = trouble.before
        self.lost = trouble.lost


@implementer(ILauncher)
class RemoteLauncher:
    """Starts replicas in sessions of their own on another machine; every step is one bounded script.

    :ivar run: the way there. :ivar hang_up: gives the way up.
    """

    _log = Logger()

    def __init__(
        self, host: HostConfig, reactor: Any, run: Run, hang_up: Callable[[], Deferred[None]]
    ) -> None:
        self._host = host
        self._reactor = reactor
        self._run = run
        self._hang_up = hang_up
        self._sessions = DeferredSemaphore(SESSIONS)
        self._watched: dict[Deferred[str], Handle] = {}
        self._looking = LoopingCall(self._look)
        self._looking.clock = reactor

    def launch(self, slot: Slot, instance: str) -> Deferred[Handle]:
        """Start a replica; see ``ILauncher``."""
        return Deferred.fromCoroutine(self._launch(slot, instance))

    def stop(self, slot: Slot, instance: str, handle: Handle | None, grace: float) -> Deferred[None]:
        """Stop an instance and everything that came of it; see ``ILauncher``."""
        return Deferred.fromCoroutine(self._stop(slot, instance, handle, grace))

    def watch(self, handle: Handle) -> Deferred[str]:
        """Notice, within a few seconds, that the process is gone; see ``ILauncher``.

        A wrapper's end says nothing of what it started, so with one this never fires.
        """
        watch: Deferred[str] = Deferred(self._unwatch)
        if scripts.written(handle) and not self._host.launch_wrapper:
            self._watched[watch] = handle
            if not self._looking.running:
                looking = self._looking.start(LOOK_INTERVAL)
                looking.addErrback(lambda failure: self._log.failure("looking for processes failed", failure))
        return watch

    def is_held(self, slot: Slot) -> Deferred[bool]:
        """Whether a process over there holds the slot's lock; see ``ILauncher``."""
        return Deferred.fromCoroutine(self._is_held(slot))

    def is_running(self, slot: Slot, instance: str, handle: Handle | None) -> Deferred[bool]:
        """Whether anything of an instance is left over there; see ``ILauncher``."""
        return Deferred.fromCoroutine(self._is_running(slot, instance, handle))

    def tail(self, slot: Slot, lines: int) -> Deferred[str]:
        """Fetch the end of the slot's log; see ``ILauncher``."""
        return Deferred.fromCoroutine(self._tail(slot, lines))

    def close(self) -> Deferred[None]:
        """End all watches, which fail with ``CancelledError``, and hang up; replicas run on."""
        for watch in tuple(self._watched):
            watch.cancel()
        return self._hang_up()

    def _command(self, slot: Slot, instance: str) -> ReplicaCommand:
        return build(self._host, slot, instance, DEFAULT_LOG_DIR, None)

    def _where(self, slot: Slot) -> str:
        return f"slot {slot.name} on {self._host.ssh}"

    async def _ask(self, script: Script, timeout: float) -> Reply:
        """Run a script to its end. Raises Incomplete when that is not what happened."""
        ran = await self._sessions.run(self._run, script, timeout)
        reply = read_reply(script, ran.output)
        if reply.complete:
            return reply
        said = (ran.errors or ran.output).decode("utf-8", "replace").strip().rpartition("\n")[2][-400:]
        trouble = ran.trouble or Trouble(
            f"the remote shell exited with code {ran.code}: {said}", not reply.begun
        )
        raise Incomplete(evolve(trouble, before=trouble.before and not reply.begun))

    async def _launch(self, slot: Slot, instance: str) -> Handle:
        await refuse_taken(self._reactor, slot, self._where(slot))
        command = self._command(slot, instance)
        try:
            reply = await self._ask(scripts.launch_script(command, slot, instance, TOLD_LINES), STEP_TIMEOUT)
        except Incomplete as error:
            kind = LaunchFailed if error.before else LaunchUncertain
            raise kind(f"{self._where(slot)}: {error}") from error
        refused, exited = reply.fact("refused"), reply.fact("exited")
        if refused is not None:
            raise LaunchFailed(f"{self._where(slot)}: {refused}")
        if exited is not None:
            code = int(exited)
            how = how_ended(code, None) if code <= 128 else how_ended(None, code - 128)
            raise LaunchFailed(f"{self._where(slot)}: {command.argv[0]} {how} at once\n{reply.log}".rstrip())
        pid, _, started = (reply.fact("pid") or "").partition(" ")
        log_path = reply.fact("log_path") or command.log_path
        return Handle(slot.name, instance, int(pid) if started else None, started or None, log_path)

    async def _stop(self, slot: Slot, instance: str, handle: Handle | None, grace: float) -> None:
        script = scripts.stop_script(self._command(slot, instance), slot, instance, handle, grace)
        timeout = STEP_TIMEOUT + grace + _PROOF_TIMEOUT
        if self._host.stop_command:
            timeout += STOP_COMMAND_TIMEOUT
        reply = await self._find_out(slot, script, timeout)
        if reply.fact("stopped") is None:
            fact = reply.fact("failed") or "its stop could not be proved"
            raise StopUnconfirmed(f"{self._where(slot)}: {fact}\n{reply.log}".rstrip())

    async def _is_held(self, slot: Slot) -> bool:
        reply = await self._find_out(slot, scripts.held_script(self._command(slot, ""), slot))
        if reply.fact("unknown") is not None:
            raise StopUnconfirmed(f"{self._where(slot)}: its lock cannot be looked at")
        return reply.fact("held") is not None

    async def _is_running(self, slot: Slot, instance: str, handle: Handle | None) -> bool:
        script = scripts.running_script(self._command(slot, instance), slot, instance, handle)
        return (await self._find_out(slot, script)).fact("running") is not None

    async def _find_out(self, slot: Slot, script: Script, timeout: float = STEP_TIMEOUT) -> Reply:
        """Run a script that may as well run twice: once more when the connection broke under it."""
        try:
            return await self._ask(script, timeout)
        except Incomplete as error:
            first = error
        if first.lost:
            with suppress(Incomplete):
                return await self._ask(script, timeout)
        raise StopUnconfirmed(f"{self._where(slot)}: {first}") from first

    async def _tail(self, slot: Slot, lines: int) -> str:
        try:
            reply = await self._ask(scripts.tail_script(self._command(slot, ""), slot, lines), STEP_TIMEOUT)
        except Incomplete as error:
            self._log.debug("{where}: no log: {error}", where=self._where(slot), error=error)
            return ""
        return reply.log

    def _unwatch(self, watch: Deferred[str]) -> None:
        self._watched.pop(watch, None)
        if not self._watched and self._looking.running:
            self._looking.stop()

    def _look(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._look_once())

    async def _look_once(self) -> None:
        """See which of the watched processes are gone. A look that fails shows nothing."""
        watched = {scripts.written(handle) for handle in self._watched.values()}
        try:
            reply = await self._ask(scripts.look_script(tuple(watched)), STEP_TIMEOUT)
        except Incomplete as error:
            self._log.debug("host {host}: no look: {error}", host=self._host.name, error=error)
            return
        gone = {rest for word, rest in reply.facts if word == "gone"}
        for watch, handle in tuple(self._watched.items()):
            if scripts.written(handle) in gone:
                self._unwatch(watch)
                watch.callback(f"process {handle.pid} on {self._host.ssh} is gone")
