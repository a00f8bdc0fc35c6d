"""The treq surface of every request to a replica, proxied or probing."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from treq.client import HTTPClient
from treq.response import _Response
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IConsumer, ITCPTransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IResponse
from zope.interface import implementer

from .headers import VerbatimHeaders
from .pool import Pool
from .wire import Wire, WireResponse


class RelayResponse(_Response):
    """What treq gives for a response; ``original`` is the ``WireResponse`` whose body can be relayed.

    treq's own ways to read a body never touch one of length 0, whose connection would wait for a reader for
    ever, and read on when they are cancelled.
    """

    original: WireResponse

    def collect(self, collector: Callable[[bytes], object]) -> Deferred[None]:
        """Read the body to its end, piece by piece, so that the connection can be used again.

        Fails with ``ReplicaCut`` or ``ReplicaReset`` when it has no end. Cancelling it drops the connection.
        """
        reader = _Reader(collector)
        self.original.deliverBody(reader)
        return reader.over

    def content(self) -> Deferred[bytes]:
        """Read the whole body; see ``collect``."""
        pieces: list[bytes] = []
        return self.collect(pieces.append).addCallback(lambda _: b"".join(pieces))

    def discard(self) -> Deferred[None]:
        """Read the body and forget it; see ``collect``."""
        return self.collect(lambda data: None)


class _Reader(Protocol):
    """Hands a body on, piece by piece."""

    def __init__(self, take: Callable[[bytes], object]) -> None:
        self.over: Deferred[None] = Deferred(self._give_up)
        self._take = take

    def dataReceived(self, data: bytes) -> None:
        self._take(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if reason.check(ResponseDone):
            self.over.callback(None)
        else:
            self.over.errback(reason)

    def _give_up(self, _: object) -> None:
        cast("ITCPTransport", self.transport).abortConnection()


@implementer(IBodyProducer)
class BytesBody:
    """A request body that is in memory already."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.length = len(data)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        """Write it all at once."""
        consumer.write(self.data)
        return succeed(None)

    def pauseProducing(self) -> None:
        """It is one write; there is nothing to pause."""

    def resumeProducing(self) -> None:
        """It is one write; there is nothing to resume."""

    def stopProducing(self) -> None:
        """It is one write; there is nothing to stop."""


@implementer(IAgent)
class ReplicaAgent:
    """Sends requests to one replica over its pool.

    :param base: ``scheme://host:port`` of the replica; what follows it in a URI goes out byte for byte.
    """

    def __init__(self, pool: Pool, base: bytes) -> None:
        self._pool = pool
        self._base = base
        self._host = b"Host: " + base.partition(b"://")[2] + b"\r\n"

    def request(
        self,
        method: bytes,
        uri: bytes,
        headers: Headers | None = None,
        bodyProducer: IBodyProducer | None = None,
    ) -> Deferred[IResponse]:
        """Send a request; see ``IAgent``.

        Fails with ``ReplicaRefused`` or ``ReplicaUnreachable`` while nothing of it has left, ``ReplicaReset``
        afterwards. It is never sent twice. Cancelling it drops the connection at once.
        """
        target = uri[len(self._base) :] if uri.startswith(self._base) else uri
        if not isinstance(bodyProducer, BytesBody | None):
            raise TypeError(f"bodies are sent from memory, as BytesBody, not {bodyProducer!r}")
        body = None if bodyProducer is None else bodyProducer.data
        head = self._head(method, target, headers, body)
        wire = self._pool.take()
        if wire is not None:
            sent = wire.send(method, head, body or b"")
        else:
            sent = self._pool.connect().addCallback(_send, method, head, body or b"")
        return cast("Deferred[IResponse]", sent)

    def close(self) -> Deferred[None]:
        """Close the pool. Fires when every connection is gone."""
        return self._pool.close()

    def _head(self, method: bytes, target: bytes, headers: Headers | None, body: bytes | None) -> bytes:
        if isinstance(headers, VerbatimHeaders):
            lines = headers.lines
        else:
            lines = [
                b"%b: %b" % (name, value)
                for name, values in (headers or Headers()).getAllRawHeaders()
                for value in values
            ]
        parts = [b"%b %b HTTP/1.1\r\n%b" % (method, target, self._host)]
        # One line at a time: joining an empty list would leave a blank line, and the body would be a request.
        for line in lines:
            parts.append(line + b"\r\n")
        if body is not None:
            parts.append(b"Content-Length: %d\r\n" % len(body))
        parts.append(b"\r\n")
        return b"".join(parts)


def _send(wire: Wire, method: bytes, head: bytes, body: bytes) -> Deferred[WireResponse]:
    return wire.send(method, head, body)


class ReplicaClient(HTTPClient):
    """treq without what would change a message in passing.

    No cookie jar (a replica's cookie would go out with other clients' requests), no redirects, no gzip, no
    rewriting of the target, no buffering of bodies.
    """

    _agent: ReplicaAgent

    def request(  # type: ignore[override]  # bytes only, nothing that rewrites
        self, method: bytes, url: bytes, *, headers: Headers | None = None, data: bytes | None = None
    ) -> Deferred[RelayResponse]:
        """Send ``method url``, the target byte for byte; see ``ReplicaAgent.request``."""
        body = None if data is None else BytesBody(data)
        return self._agent.request(method, url, headers, body).addCallback(RelayResponse, self._cookiejar)

    def close(self) -> Deferred[None]:
        """Close every connection to the replica. Fires when they are gone."""
        return self._agent.close()
