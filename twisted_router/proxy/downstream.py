"""What an exchange needs of the client's side."""

from __future__ import annotations

from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.web.http_headers import Headers

from ..errors import RouterError


class Downstream(Protocol):
    """The client's side of an exchange: a request that is complete and an answer to be written."""

    method: bytes
    uri: bytes
    clientproto: bytes
    requestHeaders: Headers

    def take_body(self) -> bytes:
        """Return the upload and forget it, so that a long answer does not keep it in memory."""

    def forget_head(self) -> None:
        """Let go of the request's fields, which nobody will look at again."""

    def is_persistent(self) -> bool:
        """Tell whether the connection may serve another request afterwards."""

    def registerProducer(self, producer: IPushProducer, streaming: bool) -> None:
        """Let ``producer`` be paused while the client does not keep up."""

    def unregisterProducer(self) -> None:
        """There will be no more."""

    def notifyFinish(self) -> Deferred[None]:
        """Fail when the client leaves before the answer is complete."""

    def send(self, data: bytes) -> None:
        """Write bytes as they are."""

    def complete(self) -> None:
        """The answer has been written."""

    def break_off(self, *, reset: bool) -> None:
        """Close the connection so that what was written cannot look whole.

        :param reset: only a reset can say so, because the end of the connection is the end of the body.
        """

    def fail(self, error: RouterError, session: str) -> None:
        """Answer with an error of our own; nothing has been written yet."""
