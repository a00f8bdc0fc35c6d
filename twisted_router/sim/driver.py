"""Runs an engine in real time: one timer, one listener for each job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_router.sim.engine import Engine, Job, Work


class Listener(Protocol):
    """Who wants to know how a job goes."""

    def progressed(self, job: Job) -> None:
        """``job`` has one more token; ``job.done`` tells whether it was the last."""


class Driver:
    """The only caller of ``engine.step``.

    :param seconds: a monotonic clock; ``scale`` simulated seconds pass in each of its seconds.
    """

    def __init__(
        self, engine: Engine, timer: IReactorTime, seconds: Callable[[], float], scale: float = 1.0
    ) -> None:
        self.engine = engine
        self._timer = timer
        self._seconds = seconds
        self._scale = scale
        self._listeners: dict[Job, Listener] = {}
        self._call: IDelayedCall | None = None

    def submit(self, work: Work, listener: Listener) -> Job:
        """Queue ``work``; ``listener`` hears of each token. Raises ``engine.DoesNotFit``."""
        job = self.engine.submit(work, self._now())
        self._listeners[job] = listener
        if self._call is None:
            self._step(self._now())
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
        self._step(max(due, self._now()))

    def _step(self, now: float) -> None:
        step = self.engine.step(now)
        if step.wake is not None:
            delay = max(0.0, (step.wake - now) / self._scale)
            self._call = self._timer.callLater(delay, self._woken, step.wake)
        for job in step.tokens:
            # A listener told before this one may have aborted the job.
            listener = self._listeners.pop(job, None) if job.done else self._listeners.get(job)
            if listener is not None:
                listener.progressed(job)
