"""Log lines: one for each request if asked for, and a compact JSON form for machines."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any

from twisted.logger import ILogObserver, LogEvent, Logger, formatEvent
from zope.interface import implementer

from ..core.effects import RequestEnd
from .storms import Damped

#: Characters of a traceback that are kept.
_TRACEBACK = 2500

_access = Logger(namespace="twisted_router.access")


def access(outcome: RequestEnd) -> None:
    """Log one request; never its content, never a credential."""
    reason = outcome.reason
    _access.info(
        "{method} {path} {status} {replica} affinity={affinity} reason={reason} session={session} "
        "{seconds:.3f}s {sent}B {ending}",
        method=outcome.method,
        path=outcome.path,
        status=outcome.status,
        replica=outcome.replica or "-",
        affinity="none" if reason is None else reason.affinity.value,
        reason="-" if reason is None else reason.value,
        session=outcome.session,
        seconds=outcome.seconds,
        sent=outcome.sent,
        ending=outcome.ending.value,
    )


@implementer(ILogObserver)
class JsonLines:
    """Writes each event as one line of JSON: time, level, where, the sentence, and its simple fields."""

    def __init__(self, write: Any) -> None:
        self._write = write

    def __call__(self, event: LogEvent) -> None:
        """Write one event."""
        level = event.get("log_level")
        record: dict[str, Any] = {
            "time": datetime.fromtimestamp(event.get("log_time", 0.0), UTC).isoformat(
                timespec="milliseconds"
            ),
            "level": "info" if level is None else level.name,
            "logger": event.get("log_namespace", "-"),
            "message": formatEvent(event),
        }
        for key, value in event.items():
            if not key.startswith("log_") and isinstance(value, str | int | float | bool):
                record.setdefault(key, value)
        failure = event.get("log_failure")
        if failure is not None:
            # A line has to fit into a pipe; the end is where it broke.
            record["traceback"] = failure.getTraceback()[-_TRACEBACK:]
        self._write(json.dumps(record, default=str) + "\n")


def json_lines() -> ILogObserver:
    """An observer on stdout, for ``twistd --logger twisted_router.telemetry.logs.json_lines``."""
    return Damped(JsonLines(sys.stdout.write))
