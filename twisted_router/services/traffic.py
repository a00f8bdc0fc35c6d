"""Counts the proxied requests under way, so that a stopping router can refuse, await and cut them."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred, succeed

from ..errors import ShuttingDown


class Traffic:
    """A gate that every proxied request passes on its way in and on its way out.

    :ivar closing: no new request is let in any more.
    """

    def __init__(self) -> None:
        self._under_way: dict[Callable[[], object], None] = {}  # in the order they came
        self._waiting: list[Deferred[None]] = []
        self.closing = False

    def __len__(self) -> int:
        return len(self._under_way)

    def enter(self, abort: Callable[[], object]) -> None:
        """Let one request in, until ``leave`` is called.

        :param abort: breaks the request off; called when a stopping router cannot wait for it any longer.
        :raises ShuttingDown: the router is stopping.
        """
        if self.closing:
            raise ShuttingDown("the router is shutting down; send the request to another one or try again")
        self._under_way[abort] = None

    def leave(self, abort: Callable[[], object]) -> None:
        """The request that ``abort`` breaks off has ended, in whatever way; once is enough."""
        self._under_way.pop(abort, None)
        if not self._under_way:
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                one.callback(None)

    def refuse(self) -> None:
        """From now on let nobody in."""
        self.closing = True

    def drained(self) -> Deferred[None]:
        """Fire when nothing is under way, perhaps at once; each caller gets one of its own to cancel."""
        if not self._under_way:
            return succeed(None)
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        return waiting

    def cut(self) -> int:
        """Break off everything that is under way; return how much that was."""
        aborts = tuple(self._under_way)
        for abort in aborts:
            abort()
        return len(aborts)
