"""Runs an engine in real time: one timer, one listener for each job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_router.sim.engine import Engine, Job, Work

#: Seconds between two looks at least; shorter steps are taken several at a time.
FINEST = 0.002


class Listener(Protocol):
    """Who wants to know how a job goes."""

    def progressed(self, job: Job) -> None:
        """``job`` has one more token; ``job.done`` tells whether it was the last."""


class Driver:
    """The only caller of ``engine.step``.

    A timer that fires late costs no simulated time: each step ends and the next begins when it is due.

    :param seconds: a monotonic clock; ``scale`` simulated seconds pass in each of its seconds.
    :param stepped: called after each step, before its listeners.
    """

    def __init__(
        self,
        engine: Engine,
        timer: IReactorTime,
        seconds: Callable[[], float],
        scale: float = 1.0,
        stepped: Callable[[], None] | None = None,
    ) -> None:
        self.engine = engine
        self._stepped = stepped
        self._timer = timer
        self._seconds = seconds
        self._scale = scale
        self._listeners: dict[Job, Listener] = {}
        self._due: float | None = None
        self._stepping = False
        self._call: IDelayedCall | None = None

    def submit(self, work: Work, listener: Listener) -> Job:
        """Queue ``work``; ``listener`` hears of each token. Raises ``engine.DoesNotFit``."""
        # One time for all of it: what is over by now was so before this work came, which only begins.
        now = self._now()
        self._catch_up(now)
        job = self.engine.submit(work, now)
        self._listeners[job] = listener
        self._catch_up(now)
        return job

    def abort(self, job: Job) -> None:
        """End ``job`` at once; its listener hears nothing more."""
        if self._listeners.pop(job, None) is not None:
            self.engine.abort(job)

    def _now(self) -> float:
        return self._seconds() * self._scale

    def _woken(self, due: float) -> None:
        self._call = None
        # A timer may fire a rounding error early; the step is over all the same.
        self._catch_up(max(due, self._now()))

    def _catch_up(self, now: float) -> None:
        """Take the steps that are over by ``now``, and be woken for the next one."""
        if self._stepping:
            # A listener has submitted: whoever called it goes on when it returns.
            return
        self._stepping = True
        try:
            if self._due is None and self.engine.waiting:
                self._due = now
            while self._due is not None and self._due <= now:
                self._step(self._due)
                if self._due is None and self.engine.waiting:
                    self._due = now
        finally:
            self._stepping = False
        if self._call is None and self._due is not None:
            delay = max(FINEST, (self._due - now) / self._scale)
            self._call = self._timer.callLater(delay, self._woken, self._due)

    def _step(self, at: float) -> None:
        step = self.engine.step(at)
        self._due = step.wake
        if self._stepped is not None:
            self._stepped()
        for job in step.tokens:
            # A listener told before this one may have aborted the job.
            listener = self._listeners.pop(job, None) if job.done else self._listeners.get(job)
            if listener is not None:
                listener.progressed(job)
