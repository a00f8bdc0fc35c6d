"""``/v1/*``: every method and path below it is relayed to a replica."""

from __future__ import annotations

from typing import cast

from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from ..proxy.exchange import Exchange, Front
from .request import RouterRequest


class RelayResource(Resource):
    """The leaf under which everything belongs to the replicas."""

    isLeaf = True

    def __init__(self, front: Front) -> None:
        super().__init__()
        self._front = front

    def render(self, request: Request) -> int:
        """Start the exchange, whatever the method is."""
        Exchange(self._front, cast(RouterRequest, request)).start()
        return NOT_DONE_YET
