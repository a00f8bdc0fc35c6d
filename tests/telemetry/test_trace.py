"""Traffic recorded for the laboratory."""

from __future__ import annotations

import json
import os
import stat

from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.core.effects import Turn, Usage
from twisted_router.lab.replay import read_trace
from twisted_router.telemetry.trace import FLUSH, TraceFile


class TraceFileTests(SynchronousTestCase):
    """One line for each request, without its text."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.path = self.mktemp()
        self.events: list[LogEvent] = []
        globalLogPublisher.addObserver(self.events.append)  # type: ignore[arg-type]
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)  # type: ignore[arg-type]

    def start(self, path: str | None = None) -> TraceFile:
        trace = TraceFile(path or self.path, self.clock, self.clock.seconds)
        trace.startService()
        return trace

    def lines(self) -> list[dict[str, object]]:
        with open(self.path, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def test_line(self) -> None:
        """A line says when the request came, whose it is, and how large; written within a second."""
        trace = self.start()
        self.clock.advance(10)
        trace.record(Turn("s", 4096, (1, 2), Usage(900, 800, 40), 2.5, 700, True))
        self.assertEqual(self.lines(), [])
        self.clock.advance(FLUSH)
        told = {"time": 7.5, "session": "s", "bytes": 4096, "tokens": 900, "output_tokens": 40}
        self.assertEqual(self.lines(), [{**told, "chain": [1, 2], "final": True}])
        trace.stopService()

    def test_untold(self) -> None:
        """Where the engine tells nothing, the answer's size stands in for its tokens."""
        trace = self.start()
        trace.record(Turn(None, 10, (), Usage(), 0.0, 400, False))
        trace.stopService()
        told = {"time": 0.0, "session": None, "bytes": 10, "output_tokens": 100, "chain": []}
        self.assertEqual(self.lines(), [told])

    def test_replayed(self) -> None:
        """The laboratory reads what was recorded."""
        trace = self.start()
        for number in range(3):
            self.clock.advance(1)
            trace.record(Turn(f"s{number}", 4096, (number,), Usage(900, 0, 40), 0.5, 700, False))
        trace.stopService()
        with open(self.path, encoding="utf-8") as file:
            records = read_trace(file, self.path)
        self.assertEqual(
            [(one.at, one.session, one.tokens, one.output) for one in records],
            [(float(at), f"s{at}", 900.0, 40) for at in range(3)],
        )

    def test_private(self) -> None:
        """Nobody else may read it, and a second start goes on where the first ended."""
        for _ in range(2):
            trace = self.start()
            trace.record(Turn(None, 1, (), Usage(), 0.0, 4, False))
            trace.stopService()
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)
        self.assertEqual(len(self.lines()), 2)

    def test_unwritable(self) -> None:
        """A file that cannot be opened costs one log line."""
        trace = self.start(os.path.join(self.path, "missing", "trace"))
        trace.record(Turn(None, 1, (), Usage(), 0.0, 4, False))
        trace.stopService()
        (event,) = [event for event in self.flushed() if "no trace" in event]
        self.assertIn("No such file", event)

    def test_full_disk(self) -> None:
        """So does a disk that is full."""
        trace = self.start("/dev/full")
        for _ in range(2):
            trace.record(Turn(None, 1, (), Usage(), 0.0, 4, False))
            self.clock.advance(FLUSH)
        trace.stopService()
        self.assertEqual(len([event for event in self.flushed() if "No space left" in event]), 1)

    def flushed(self) -> list[str]:
        """What was logged by the recording."""
        return [formatEvent(event) for event in self.events if "path" in event]
