"""Requests that wait in the router for a replica: bounded, in order, each free to leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol as Shape

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from ..core.fleet import Fleet
from ..core.waiting import Hold, Waiter, WaitingRoom
from ..core.wish import Wish
from ..errors import QueueFull, QueueTimedOut, RouterError

#: How many may wait for room in a cache where ``--queue-size`` sets no bound.
GATE_SIZE = 10_000


class Held(Shape):
    """A request that can wait."""

    wish: Wish

    def resume(self) -> None:
        """Go on: there is room now, or waiting is over."""

    def refuse(self, error: RouterError) -> None:
        """Give up: answer with ``error``."""


#: A place in the queue; give it back with ``Holding.leave``.
Ticket = Waiter[Held]


class Holding:
    """Keeps requests while nothing is routable, everything is at its limit, or caches are full.

    :param size: how many may wait (``--queue-size``); 0 lets nobody wait for a replica.
    :param timeout: seconds one may wait for a replica (``--queue-timeout``), then 503.
    :param max_hold: seconds one may wait for room in a cache (``--max-hold``), then it is sent anyway.
    :param eta: seconds until the next launch should be ready, or None; for ``Retry-After``.
    """

    _log = Logger()

    def __init__(
        self,
        fleet: Fleet,
        clock: IReactorTime,
        now: Callable[[], float],
        *,
        size: int,
        timeout: float,
        max_hold: float,
        eta: Callable[[], float | None],
    ) -> None:
        self._fleet = fleet
        self._clock = clock
        self._now = now
        self._size = size
        self._timeout = timeout
        self._max_hold = max_hold
        self._eta = eta
        self._room: WaitingRoom[Held] = WaitingRoom(size or (GATE_SIZE if fleet.is_gated else 0))
        self._timer: IDelayedCall | None = None
        self._poking = False

    def __len__(self) -> int:
        return len(self._room)

    def ask(self, held: Held) -> Ticket | None:
        """Let a request go on at once (None) or wait: it is resumed or refused once, unless it leaves.

        :raises QueueFull: it would have to wait and cannot.
        """
        why = self._why(held.wish, len(self._room))
        if why is None or (why is Hold.COLD and not self._size):
            return None
        now = self._now()
        rank = self._fleet.rank(held.wish, now)
        patience = self._timeout if why is Hold.COLD else self._max_hold
        ticket = self._room.enter(held, why, now, patience, rank)
        if ticket is None:
            self._fleet.reject()
            error = QueueFull(f"{len(self._room)} requests wait already (--queue-size); try again later")
            error.retry_after = self._retry_after()
            raise error
        self._set_timer()
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Take a request out that waits no longer."""
        self._room.leave(ticket)
        self._set_timer()

    def poke(self) -> None:
        """Something may have become free: let go on who can, one after the other, in order."""
        if self._poking or not len(self._room):
            return
        self._poking = True
        try:
            while (ticket := self._room.take(self._may_go)) is not None:
                ticket.what.resume()
        finally:
            self._poking = False
        self._set_timer()

    def _why(self, wish: Wish, ahead: int) -> Hold | None:
        return self._fleet.must_wait(wish, self._now(), ahead)

    def _may_go(self, held: Held) -> bool:
        return self._why(held.wish, 0) is None

    def _retry_after(self) -> int:
        eta = self._eta()
        return 1 if eta is None else max(1, round(eta))

    def _set_timer(self) -> None:
        deadline = self._room.next_deadline()
        if self._timer is not None and (deadline is None or self._timer.getTime() > deadline):
            self._timer.cancel()
            self._timer = None
        if self._timer is None and deadline is not None:
            self._timer = self._clock.callLater(max(0.0, deadline - self._now()), self._wake)

    def _wake(self) -> None:
        self._timer = None
        for ticket in self._room.expire(self._now()):
            if ticket.why is Hold.WORKING_SET:
                ticket.what.resume()
            else:
                self._fleet.reject()
                error = QueueTimedOut(f"no replica was free within {self._timeout:g} seconds")
                error.retry_after = self._retry_after()
                ticket.what.refuse(error)
        self._set_timer()
