"""Lines for a person or a log collector, written so that nobody who does not read can hold us up."""

from __future__ import annotations

import os
import select

#: A pipe that is ready takes this much without blocking (POSIX: PIPE_BUF on Linux), so no line is longer.
LINE_BYTES = 4096


class LossyLines:
    """A text stream over a file descriptor that drops a line rather than wait for its reader.

    It leaves the descriptor's flags alone: they belong to everybody who shares the terminal.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def write(self, text: str) -> int:
        """Write ``text``, line by line; each is cut at ``LINE_BYTES`` and dropped when it has to wait."""
        for line in text.splitlines():
            data = line.encode("utf-8", "backslashreplace")
            self._write_line(data[: LINE_BYTES - 1] + b"\n")
        return len(text)

    def flush(self) -> None:
        """Nothing is kept back."""

    def _write_line(self, data: bytes) -> None:
        try:
            if any(state & select.POLLOUT for _, state in self._poll.poll(0)):
                os.write(self._descriptor, data)
        except OSError:
            # The reader is gone or the disk is full: the line is lost, the work goes on.
            return


def claim_standard_descriptors() -> None:
    """Open what is closed among 0, 1 and 2, lest a socket gets that number and is written to as a log."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number is this one: those below are open by now.
            os.open(os.devnull, os.O_RDWR)
