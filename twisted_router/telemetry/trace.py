"""Records live traffic for the laboratory: when, whose, how large, never what (``--record-trace``)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import IO

from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from ..core.effects import Turn

#: Seconds for which lines may stay in memory.
FLUSH = 1.0

#: Bytes of an answer that count as a token where the engine does not tell how many there were.
TOKEN_BYTES = 4


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class TraceFile(Service):
    """Appends one line of JSON for each served request; ``pypto-router lab --replay`` reads them.

    A file that cannot be written any more ends the recording with one log line, and nothing else.

    :param now: monotonic seconds; times in the file count from the start of the service.
    """

    _log = Logger()

    def __init__(self, path: str, clock: IReactorTime, now: Callable[[], float]) -> None:
        self._path = path
        self._now = now
        self._began = now()
        self._file: IO[str] | None = None
        self._loop = LoopingCall(self._flush)
        self._loop.clock = clock

    def startService(self) -> None:
        """Open the file, readable by its owner only."""
        super().startService()
        self._began = self._now()
        try:
            self._file = open(self._path, "a", encoding="utf-8", opener=_private)  # closed in stopService
        except OSError as error:
            self._give_up(error)
            return
        looping = self._loop.start(FLUSH, now=False)
        looping.addErrback(lambda failure: self._log.failure("writing the trace stopped", failure))

    def stopService(self) -> None:
        """Write what is left."""
        super().stopService()
        if self._loop.running:
            self._loop.stop()
        try:
            if self._file is not None:
                self._file.close()
        except OSError as error:
            self._give_up(error)
        self._file = None

    def record(self, turn: Turn) -> None:
        """Take one request; its arrival is what the line's time is."""
        if self._file is None:
            return
        line: dict[str, object] = {
            "time": round(max(0.0, self._now() - turn.seconds - self._began), 3),
            "session": turn.session,
            "bytes": turn.size,
            "output_tokens": turn.usage.completion or max(1, turn.sent // TOKEN_BYTES),
            "chain": turn.chain,
        }
        if turn.usage.prompt is not None:
            line["tokens"] = turn.usage.prompt
        if turn.final:
            line["final"] = True
        try:
            self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
        except OSError as error:
            self._give_up(error)

    def _flush(self) -> None:
        try:
            if self._file is not None:
                self._file.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._file = None
        self._log.error(
            "no trace is recorded any more: {path}: {why}", path=self._path, why=error.strerror or str(error)
        )
