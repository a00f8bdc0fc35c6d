"""So many warnings of one kind and no more: a fault that every request meets must not become the load."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from attrs import define
from twisted.logger import ILogObserver, LogEvent, LogLevel
from zope.interface import implementer

#: Events of one kind that are passed on within ``WINDOW`` seconds.
BURST = 10
WINDOW = 10.0

_CALM = (LogLevel.debug, LogLevel.info)


@define
class _Kind:
    """What has come of one kind since ``since``."""

    since: float
    last: LogEvent
    seen: int = 0


@implementer(ILogObserver)
class Damped:
    """Passes events on to ``observer``, of warnings and errors only ``BURST`` of a kind within ``WINDOW``.

    A kind is a place in the program: a logger and its sentence. How many were left out is told with the next
    event of any kind after that time. Our own information and debugging go through: they are what was asked
    for. Twisted's do not: it tells of each connection that it has to close for want of descriptors.
    """

    def __init__(self, observer: ILogObserver, seconds: Callable[[], float] = time.monotonic) -> None:
        self._observer = observer
        self._seconds = seconds
        self._kinds: dict[tuple[Any, Any], _Kind] = {}

    def __call__(self, event: LogEvent) -> None:
        """Take one event."""
        now = self._seconds()
        if self._kinds:
            self._settle(now)
        if _is_calm(event):
            self._observer(event)
            return
        key = (event.get("log_namespace"), event.get("log_format"))
        kind = self._kinds.setdefault(key, _Kind(now, event))
        kind.seen += 1
        kind.last = event
        if kind.seen <= BURST:
            self._observer(event)

    def _settle(self, now: float) -> None:
        """Begin anew with the kinds whose time has passed."""
        for key, kind in tuple(self._kinds.items()):
            if now - kind.since < WINDOW:
                continue
            del self._kinds[key]
            if kind.seen > BURST:
                self._observer(_summary(kind))


def _is_calm(event: LogEvent) -> bool:
    if "log_failure" in event or str(event.get("log_namespace")).startswith("twisted."):
        return False
    return event.get("log_level", LogLevel.warn) in _CALM


def _summary(kind: _Kind) -> LogEvent:
    last = kind.last
    return {
        "log_level": last.get("log_level", LogLevel.warn),
        "log_namespace": last.get("log_namespace", "-"),
        "log_time": last.get("log_time", 0.0),
        "log_format": "{left_out} more like this within {window:g} seconds were left out: {sentence}",
        "left_out": kind.seen - BURST,
        "window": WINDOW,
        "sentence": last.get("log_format", "-"),
    }
