"""The root of the service tree: what starts first and what stops last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.application.service import MultiService
from twisted.internet.defer import CancelledError, Deferred, TimeoutError, maybeDeferred
from twisted.internet.interfaces import IListeningPort, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from .traffic import Traffic

#: Seconds the upstream pool may take to close: one stuck connection must not keep the process alive.
POOL_TIMEOUT = 2.0


class Replicas(Protocol):
    """What the root asks of the keeper of launched replicas."""

    def reclaim(self) -> None:
        """Take back every recorded slot. Raises ``StateFileError``; nothing has been started by then."""

    def begin(self) -> None:
        """Adopt, then launch. The reactor runs; nothing is waited for."""

    def stop_replicas(self) -> Deferred[None]:
        """Launch no more; drain and stop what was launched. Fires when each is confirmed or given up."""

    def leave_running(self) -> None:
        """Let ``stop_replicas`` leave them running for the next router."""

    def hasten(self) -> None:
        """Kill instead of waiting; a second time, give up waiting."""

    def close(self) -> Deferred[None]:
        """Save the state and let go of the launchers."""


class RouterService(MultiService):
    """Starts and stops the router in order.

    Start: recorded slots are reclaimed, the port is bound, children start, and once the reactor runs,
    replicas are adopted and launched. Stop: new work is refused while the port still answers, requests are
    drained, replicas stopped (each as soon as its own requests have ended), children stopped, the state
    saved, the port closed, the pool closed. Every step is tried whatever became of the one before.

    ``MultiService`` would stop its children all at once and drop their failures.

    :param listen: binds the port; raises ``CannotListenError``.
    :param when_running: calls back once the reactor runs (``reactor.callWhenRunning``).
    :param close_pool: closes idle upstream connections; may hang.
    :param drain_timeout: seconds that requests under way may take to end (``--drain-timeout``).
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        *,
        listen: Callable[[], IListeningPort],
        when_running: Callable[[Callable[[], None]], object],
        traffic: Traffic,
        replicas: Replicas,
        close_pool: Callable[[], Deferred[None]],
        drain_timeout: float,
    ) -> None:
        super().__init__()
        self._clock = clock
        self._listen = listen
        self._when_running = when_running
        self._traffic = traffic
        self._replicas = replicas
        self._close_pool = close_pool
        self._drain_timeout = drain_timeout
        self._port: IListeningPort | None = None
        self._draining: Deferred[None] | None = None

    @property
    def port(self) -> IListeningPort | None:
        """The bound port, or None before the start and after the end."""
        return self._port

    def privilegedStartService(self) -> None:
        """Take back recorded slots and bind the port; a failure of either ends the start.

        :raises StateFileError: the state file cannot be used.
        :raises CannotListenError: the port cannot be bound.
        """
        self._replicas.reclaim()
        self._port = self._listen()
        super().privilegedStartService()

    def startService(self) -> None:
        """Start the children; adopt and launch once the reactor runs and signals are handled."""
        super().startService()
        self._when_running(self._begin)

    def _begin(self) -> None:
        if self.running:
            self._replicas.begin()

    def stopService(self) -> Deferred[None]:
        """Stop in order; fires when all is done and never fails."""
        self.running = 0
        return Deferred.fromCoroutine(self._stop())

    def leave_running(self) -> None:
        """Leave launched replicas running when the router stops, for the next router to adopt."""
        self._replicas.leave_running()

    def hasten(self) -> None:
        """Wait no longer for what is waited for now: requests are cut, or replicas killed."""
        if self._draining is not None:
            self._draining.cancel()
        else:
            self._replicas.hasten()

    async def _stop(self) -> None:
        self._traffic.refuse()
        stopping = maybeDeferred(self._replicas.stop_replicas)
        await self._try("draining requests", self._drain)
        await self._try("stopping replicas", lambda: stopping)
        for child in reversed(list(self)):
            await self._try(f"stopping {type(child).__name__}", child.stopService)
        await self._try("saving the state", self._replicas.close)
        await self._try("closing the port", self._close_port)
        await self._try("closing the pool", self._bounded_close)
        self._log.info("stopped")

    async def _try(self, what: str, step: Callable[[], object]) -> None:
        """Do one step; one that fails is logged and does not keep the rest from being done."""
        try:
            await maybeDeferred(step)
        except Exception:
            self._log.failure("{what} failed", what=what)

    def _drain(self) -> Deferred[None]:
        """Wait for requests under way, until ``drain_timeout`` or hastened; cut those that are left."""
        draining = self._draining = self._traffic.drained()
        if len(self._traffic):
            self._log.info("waiting for {count} requests under way", count=len(self._traffic))
        draining.addTimeout(self._drain_timeout, self._clock)
        return draining.addErrback(self._cut).addBoth(self._drained)

    def _cut(self, failure: Failure) -> None:
        failure.trap(TimeoutError, CancelledError)
        self._log.warn("cut {count} requests that had not ended", count=self._traffic.cut())

    def _drained(self, result: Failure | None) -> Failure | None:
        self._draining = None
        return result

    def _close_port(self) -> object:
        port, self._port = self._port, None
        return port.stopListening() if port is not None else None

    def _bounded_close(self) -> Deferred[None]:
        return self._close_pool().addTimeout(POOL_TIMEOUT, self._clock)
