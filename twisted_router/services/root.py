"""The root of the service tree: what starts first and what stops last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.application.service import MultiService
from twisted.internet.defer import CancelledError, Deferred, TimeoutError, maybeDeferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from .traffic import Traffic

#: Seconds the upstream pool may take to close: one stuck connection must not keep the process alive.
POOL_TIMEOUT = 2.0

#: Seconds for which connections wait unaccepted while recorded replicas are looked at. Those that run answer
#: within milliseconds, and a request that came before would find no replica, or move its session to another.
HOLD = 0.5


class Port(Protocol):
    """A bound port: Twisted's own, which can also leave connections waiting in the kernel."""

    def stopReading(self) -> None:
        """Accept nothing for now."""

    def startReading(self) -> None:
        """Accept again."""

    def stopListening(self) -> Deferred[None] | None:
        """Close it."""


class Recorded(Protocol):
    """What the root asks of the adoption of recorded replicas."""

    def reclaim(self) -> None:
        """Take back every recorded slot. Raises ``StateFileError``; nothing has been started by then."""

    def adopt(self) -> Deferred[None]:
        """Look at what was taken back, then launch; fires when each has its verdict and never fails."""


class Replicas(Protocol):
    """What the root asks of the keeper of launched replicas."""

    def stop_replicas(self) -> Deferred[None]:
        """Launch no more; drain and stop what was launched. Fires when each is confirmed or given up."""

    def leave_running(self) -> None:
        """Let ``stop_replicas`` leave them running for the next router."""

    def hasten(self) -> None:
        """Wait less; when nothing can be hastened any more, do not wait."""

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
        listen: Callable[[], Port],
        when_running: Callable[[Callable[[], None]], object],
        traffic: Traffic,
        recorded: Recorded,
        replicas: Replicas,
        close_pool: Callable[[], Deferred[None]],
        drain_timeout: float,
    ) -> None:
        super().__init__()
        self._clock = clock
        self._listen = listen
        self._when_running = when_running
        self._traffic = traffic
        self._recorded = recorded
        self._replicas = replicas
        self._close_pool = close_pool
        self._drain_timeout = drain_timeout
        self._port: Port | None = None
        self._draining: Deferred[None] | None = None
        self._adopting: Deferred[None] | None = None
        self._holding: IDelayedCall | None = None

    @property
    def port(self) -> Port | None:
        """The bound port, or None before the start and after the end."""
        return self._port

    def privilegedStartService(self) -> None:
        """Take back recorded slots and bind the port; a failure of either ends the start.

        :raises StateFileError: the state file cannot be used.
        :raises CannotListenError: the port cannot be bound.
        """
        self._recorded.reclaim()
        self._port = self._listen()
        super().privilegedStartService()

    def startService(self) -> None:
        """Start the children; adopt and launch once the reactor runs and signals are handled."""
        super().startService()
        self._when_running(self._begin)

    def _begin(self) -> None:
        if not self.running:
            return
        self._adopting = self._recorded.adopt()
        if self._port is not None and not self._adopting.called:
            self._port.stopReading()
            self._holding = self._clock.callLater(HOLD, self._accept)
        self._adopting.addCallback(lambda _: self._accept())
        self._adopting.addErrback(lambda failure: self._log.failure("adopting replicas failed", failure))

    def _accept(self) -> None:
        """Take in the connections that were kept waiting, if any were."""
        holding, self._holding = self._holding, None
        if holding is not None and self._port is not None:
            if holding.active():
                holding.cancel()
            self._port.startReading()

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
        self._accept()
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
            self._log.info("waiting for requests under way: {count}", count=len(self._traffic))
        draining.addTimeout(self._drain_timeout, self._clock)
        return draining.addErrback(self._cut).addBoth(self._drained)

    def _cut(self, failure: Failure) -> None:
        failure.trap(TimeoutError, CancelledError)
        self._log.warn("cut requests that had not ended: {count}", count=self._traffic.cut())

    def _drained(self, result: Failure | None) -> Failure | None:
        self._draining = None
        return result

    def _close_port(self) -> object:
        port, self._port = self._port, None
        return port.stopListening() if port is not None else None

    def _bounded_close(self) -> Deferred[None]:
        return self._close_pool().addTimeout(POOL_TIMEOUT, self._clock)
