"""Running a program to its end: bounded in time and in what it may say."""

from __future__ import annotations

import signal
from collections import deque
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.internet.interfaces import IDelayedCall, IReactorProcess, IReactorTime
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

#: Bytes of each output stream that are kept; the last ones count.
KEPT = 64 * 1024

#: Seconds a program has to end after its last word, and its pipes to close after its end.
_PATIENCE = 0.5


@frozen
class Ended:
    """How a program ended.

    :ivar code: its exit code, None when a signal ended it.
    :ivar signal: that signal's number, else None.
    :ivar timed_out: whether we killed it because its time was up.
    """

    code: int | None
    signal: int | None
    output: bytes
    errors: bytes
    timed_out: bool = False

    @property
    def how(self) -> str:
        """Say it in words: ``exited with code 1``."""
        return "took too long" if self.timed_out else how_ended(self.code, self.signal)


def how_ended(code: int | None, signum: int | None) -> str:
    """Say how a process ended: ``exited with code 1`` or ``was killed by SIGKILL``."""
    if signum is None:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(signum).name}"
    except ValueError:
        return f"was killed by signal {signum}"


def exit_of(reason: Failure) -> tuple[int | None, int | None]:
    """Exit code and signal number out of what ``processEnded`` is told."""
    if reason.check(ProcessDone):
        return 0, None
    error = reason.value
    assert isinstance(error, ProcessTerminated)
    return (None, error.signal) if error.signal is not None else (error.exitCode, None)


class Tail:
    """Keeps the last ``limit`` bytes of a stream."""

    def __init__(self, limit: int = KEPT) -> None:
        self._limit = limit
        self._chunks: deque[bytes] = deque()
        self._size = 0

    def add(self, data: bytes) -> None:
        """Append, and forget whole chunks from the front that are no longer needed."""
        self._chunks.append(data)
        self._size += len(data)
        while self._size - len(self._chunks[0]) >= self._limit:
            self._size -= len(self._chunks.popleft())

    def has(self, word: bytes, within: int) -> bool:
        """Whether a word ends in the last ``within`` bytes."""
        return word in self.value()[-within - len(word) + 1 :]

    def value(self) -> bytes:
        """What is kept."""
        return b"".join(self._chunks)[-self._limit :]


class _Run(ProcessProtocol):
    """Feeds one program, collects what it says, ends it when its time is up."""

    def __init__(self, clock: IReactorTime, stdin: bytes, timeout: float, last_word: bytes | None) -> None:
        self.done: Deferred[Ended] = Deferred(lambda _: self._give_up())
        self._clock = clock
        self._stdin = stdin
        self._last_word = last_word
        self._streams = {1: Tail(), 2: Tail()}
        self._timed_out = False
        self._timer: IDelayedCall | None = clock.callLater(timeout, self._time_is_up)

    def connectionMade(self) -> None:
        self._pipes.write(self._stdin)
        self._pipes.closeStdin()

    def childDataReceived(self, childFD: int, data: bytes) -> None:
        self._streams[childFD].add(data)
        if childFD == 1 and self._last_word is not None and self._streams[1].has(self._last_word, len(data)):
            self._last_word = None
            self._set_timer(_PATIENCE, self._kill)

    def processExited(self, reason: Failure) -> None:
        """A child of it may keep the pipes open for ever; what it said itself is nearly here."""
        if not self.done.called:
            self._set_timer(_PATIENCE, self._pipes.loseConnection)

    def processEnded(self, reason: Failure) -> None:
        self._set_timer()
        if not self.done.called:
            code, signum = exit_of(reason)
            output, errors = self._streams[1].value(), self._streams[2].value()
            self.done.callback(Ended(code, signum, output, errors, self._timed_out))

    @property
    def _pipes(self) -> Any:
        """The transport; IProcessTransport lacks half of what a process's transport can do."""
        return self.transport

    def _set_timer(self, seconds: float = 0.0, function: Any = None) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = self._clock.callLater(seconds, function) if function is not None else None

    def _give_up(self) -> None:
        self._set_timer()
        self._kill()
        self._pipes.loseConnection()

    def _time_is_up(self) -> None:
        self._timed_out = True
        self._kill()

    def _kill(self) -> None:
        try:
            self._pipes.signalProcess("KILL")
        except ProcessExitedAlready:
            self._pipes.loseConnection()


def run(
    reactor: Any,
    argv: tuple[str, ...],
    timeout: float,
    stdin: bytes = b"",
    env: dict[str, str] | None = None,
    workdir: str | None = None,
    last_word: bytes | None = None,
) -> Deferred[Ended]:
    """Run a program, at most ``timeout`` seconds; after that it is killed and what it said is given.

    Fires when the program itself has ended, even if a child of it keeps its output open. Fails with
    OSError when it cannot be started. Cancelling kills it. ``env`` None means our own environment.
    After ``last_word`` on its output it has half a second to end, then it is killed.
    """
    protocol = _Run(IReactorTime(reactor), stdin, timeout, last_word)
    try:
        IReactorProcess(reactor).spawnProcess(protocol, argv[0], argv, env=env, path=workdir)
    except OSError:
        protocol._set_timer()
        return fail()
    return protocol.done
