from __future__ import annotations

import json
from io import StringIO
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import Logger, LogLevel, globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tests.fuzz.profile import effort
from tests.telemetry.test_metrics import outcome
from twisted_router.core.effects import Ending
from twisted_router.telemetry.logs import JsonLines, access


class Awkward:
    """Has no text of its own."""

    def __repr__(self) -> str:
        raise ValueError("no text")


class JsonLinesTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.out = StringIO()
        self.log = Logger(namespace="somewhere", observer=JsonLines(self.out.write))

    def record(self) -> dict[str, Any]:
        text = self.out.getvalue()
        self.assertEqual(text[-1], "\n")
        (line,) = text.splitlines()
        document: dict[str, Any] = json.loads(line)
        return document

    def test_shape(self) -> None:
        """A line has time, level, origin and sentence, and the sentence's simple fields beside them."""
        self.log.warn("slot {slot} took {seconds}", slot="d1", seconds=1.5, count=2, good=True)
        record = self.record()
        self.assertRegex(record.pop("time"), r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00\Z")
        self.assertEqual(
            record,
            {
                "level": "warn",
                "logger": "somewhere",
                "message": "slot d1 took 1.5",
                "slot": "d1",
                "seconds": 1.5,
                "count": 2,
                "good": True,
            },
        )

    def test_levels(self) -> None:
        """Each level has its name."""
        for level in LogLevel.iterconstants():
            self.setUp()
            self.log.emit(level, "x")
            self.assertEqual(self.record()["level"], level.name)

    def test_no_field_hides_another(self) -> None:
        """A field called like one of ours does not replace it."""
        self.log.info("x", message="fake", time="fake", logger="fake")
        record = self.record()
        self.assertEqual((record["message"], record["level"], record["logger"]), ("x", "info", "somewhere"))

    def test_failure(self) -> None:
        """A failure's traceback is in its line, whole."""
        try:
            raise ZeroDivisionError("by zero")
        except ZeroDivisionError:
            self.log.failure("relaying failed", traceback="fake")
        record = self.record()
        self.assertEqual((record["message"], record["level"]), ("relaying failed", "critical"))
        self.assertIn("test_failure", record["traceback"])
        self.assertIn("ZeroDivisionError: by zero", record["traceback"])

    def test_failure_elsewhere(self) -> None:
        """So is one that was caught before, and is logged at any level."""
        self.log.warn("{what} failed", what="it", log_failure=Failure(ValueError("odd")))
        self.assertIn("ValueError: odd", self.record()["traceback"])

    def test_one_line(self) -> None:
        """An event is one line, whatever is in it; there is no record separator."""
        self.log.info("a\nb\x1e{field}", field="c\r\nd\u2028")
        text = self.out.getvalue()
        self.assertEqual(text.count("\n"), 1)
        self.assertNotIn("\x1e", text)
        self.assertEqual(self.record()["message"], "a\nb\x1ec\r\nd\u2028")

    def test_awkward(self) -> None:
        """An event that cannot be formatted, or has objects for fields, is a line all the same."""
        self.log.info("{missing}")
        self.log.info("{thing}", thing=Awkward())
        self.log.info("x", thing=object(), none=None, many=[1])
        lines = self.out.getvalue().splitlines()
        self.assertEqual(len(lines), 3)
        for line in lines:
            json.loads(line)
        self.assertNotIn("thing", json.loads(lines[2]))

    def test_foreign(self) -> None:
        """An event of Twisted's old log system has no level and is information."""
        JsonLines(self.out.write)({"log_time": 0.0, "log_format": "hello", "log_namespace": "old"})
        record = self.record()
        self.assertEqual((record["level"], record["message"]), ("info", "hello"))
        self.assertEqual(record["time"], "1970-01-01T00:00:00.000+00:00")

    @given(st.text(), st.text())
    @effort(100)
    def test_anything(self, text: str, field: str) -> None:
        """Any text is one line of JSON that gives it back."""
        self.setUp()
        self.log.info("{text}", text=text, field=field)
        record = self.record()
        self.assertEqual((record["text"], record["field"]), (text, field))


class AccessTests(SynchronousTestCase):
    def line(self, *outcomes: Any) -> dict[str, Any]:
        events: list[dict[str, Any]] = []
        globalLogPublisher.addObserver(events.append)  # type: ignore[arg-type]
        self.addCleanup(globalLogPublisher.removeObserver, events.append)  # type: ignore[arg-type]
        out = StringIO()
        for one in outcomes:
            access(one)
        (event,) = (event for event in events if event.get("log_namespace") == "twisted_router.access")
        JsonLines(out.write)(event)
        record: dict[str, Any] = json.loads(out.getvalue())
        return record

    def test_done(self) -> None:
        """A request is one line of information with all that an operator asks for."""
        record = self.line(outcome())
        self.assertEqual(record["level"], "info")
        self.assertEqual(
            record["message"],
            "POST /v1/secret-path 200 a affinity=hit reason=pinned session=secret-session 2.000s 10B done",
        )
        self.assertEqual((record["replica"], record["status"], record["sent"]), ("a", 200, 10))

    def test_rejected(self) -> None:
        """One that no replica was found for has a dash for it."""
        record = self.line(outcome(Ending.REJECTED, 503, replica=None, reason=None, first_byte=None, sent=0))
        self.assertIn(" 503 - affinity=none reason=- ", record["message"])
        self.assertTrue(record["message"].endswith(" 0B rejected"))
