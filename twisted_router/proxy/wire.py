"""One upstream connection: a request out, a response head in, a body relayed as it comes.

A ``Wire`` is not shared: it serves one exchange at a time and goes back to its pool between two of them.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Protocol as Shape

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IProtocol, IPushProducer, ITCPTransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.tcp import Connection
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http_headers import Headers
from twisted.web.iweb import UNKNOWN_LENGTH, IResponse
from zope.interface import implementer

from ..errors import ReplicaCut, ReplicaReset, RouterError
from .framing import HEAD_LIMIT, BadResponse, Follower, Head, LengthBody, NoBody, follower, parse_head
from .writing import PIECE, Upload, has_unsent, is_plain, writer

_CUT = "the replica closed the connection within its answer"


class Sink(Shape):
    """Receives one relayed body."""

    def body_data(self, data: bytes) -> None:
        """Take bytes that go to the client as they are."""

    def body_done(self) -> None:
        """The body is complete."""

    def body_cut(self, error: RouterError) -> None:
        """The body broke off."""


class _State(Enum):
    IDLE = "idle"
    HEAD = "head"
    BODY = "body"
    DEAD = "dead"


@implementer(IPushProducer)
class Wire(Protocol):
    """See the module's docstring.

    :param idle: called with this wire when an exchange is over and another may follow.
    :param lost: called with this wire once it is gone.
    :ivar stale: it was lost when it was used again, before a byte of an answer.
    """

    transport: Connection  # or any stream transport: all have these calls

    def __init__(self, idle: Callable[[Wire], None], lost: Callable[[Wire], None]) -> None:
        self._on_idle = idle
        self._on_lost = lost
        self._state = _State.IDLE
        self._buffer = b""
        self._method = b""
        self._waiting: Deferred[WireResponse] | None = None
        self._follower: Follower = NoBody()
        self._sink: Sink | None = None
        self._keep = True
        self._paused = False
        self._untaken = False
        self._uses = 0
        self._skipped = 0  # bytes of interim responses and blank lines before the answer
        self._upload: Upload | None = None
        self.stale = False

    def connectionMade(self) -> None:
        """Send small writes at once; learn how to write."""
        transport = self.transport
        if ITCPTransport.providedBy(transport):
            transport.setTcpNoDelay(True)
        if isinstance(transport, Connection):
            # An endpoint's wrapper has done its work once this returns; it would only pass every read on.
            transport.protocol = self
        self._write = writer(transport)

    def is_fresh(self) -> bool:
        """Tell whether an idle connection can still be used: open, and nothing unread on it.

        The reactor may not yet have read a close that has arrived; the kernel would accept a request on the
        half-dead socket and no answer would ever come. So the socket is asked.
        """
        if self._state is not _State.IDLE or not self.connected:
            return False
        if not isinstance(self.transport, Connection):
            return True
        try:
            peeked = self.transport.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        # TLS may have a session ticket waiting, which is none of an answer.
        return bool(peeked) and bool(self.transport.TLS)

    def send(self, method: bytes, request: bytes, body: bytes) -> Deferred[WireResponse]:
        """Send one request.

        Fires with the response once its head is complete. Fails with ``ReplicaReset`` when the connection
        ends, or turns into nonsense, before that. Cancelling it aborts the connection at once.
        """
        self._state = _State.HEAD
        self._method = method
        self._keep = True
        self._uses += 1
        self._skipped = 0
        waiting = self._waiting = Deferred(self._cancelled)
        self._write(request + body[:PIECE] if body else request)
        if len(body) > PIECE or (is_plain(self.transport) and has_unsent(self.transport)):
            self._upload = Upload(self.transport, memoryview(body)[PIECE:], self._hear_out)
        return waiting

    def dataReceived(self, data: bytes) -> None:
        """Take part of a response."""
        if self._state is _State.BODY:
            if self._sink is None:
                self._buffer += data
            else:
                self._feed(data)
        elif self._state is _State.HEAD:
            self._buffer += data
            self._read_head()
        elif self._state is _State.IDLE:
            # Nobody asked: whatever it is, it must not become the next request's answer.
            self.abort()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Settle whatever was under way."""
        state, self._state = self._state, _State.DEAD
        self._upload = None
        self.stale = state is _State.HEAD and self._uses > 1 and not self._buffer
        self._on_lost(self)
        if state is _State.HEAD:
            self._fail(ReplicaReset("the replica closed the connection before it answered"))
        elif state is _State.BODY and self._sink is not None:
            sink, self._sink = self._sink, None
            last = self._follower.closed() if reason.check(ConnectionDone) else None
            if last is None:
                sink.body_cut(ReplicaCut(_CUT))
                return
            if last:
                sink.body_data(last)
            sink.body_done()

    def _hear_out(self) -> None:
        """The connection was lost while it was written to: take what the replica has said before."""
        transport = self.transport
        if not is_plain(transport):
            return
        with suppress(OSError):
            while self._state in (_State.HEAD, _State.BODY) and (data := transport.socket.recv(65536)):
                self.dataReceived(data)

    def abort(self) -> None:
        """Drop the connection now; the replica sees it at once and stops working."""
        self._state = _State.DEAD
        self._sink = None
        self.transport.abortConnection()

    def pauseProducing(self) -> None:
        """The client does not keep up: stop reading."""
        if self._state is not _State.DEAD:
            self._paused = True
            self.transport.pauseProducing()

    def resumeProducing(self) -> None:
        """The client has caught up."""
        if self._paused and self._state is not _State.DEAD:
            self._paused = False
            if not self._untaken:
                self.transport.resumeProducing()

    def stopProducing(self) -> None:
        """The client is gone."""
        if self._state is not _State.DEAD:
            self.abort()

    def attach(self, sink: Sink, follow: Follower) -> None:
        """Begin to relay the body, with what has come already."""
        self._sink = sink
        self._follower = follow
        if self._untaken:
            self._untaken = False
            if not self._paused and self._state is not _State.DEAD:
                self.transport.resumeProducing()
        data, self._buffer = self._buffer, b""
        if data or follow.done:
            self._feed(data)
        if self._sink is not None and self._state is _State.DEAD:
            self._sink = None
            sink.body_cut(ReplicaCut(_CUT))

    def _cancelled(self, _: object) -> None:
        self._waiting = None
        self.abort()

    def _fail(self, error: RouterError) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.errback(error)

    def _read_head(self) -> None:
        """Parse the head once it is complete; skip interim responses."""
        while True:
            if self._buffer[:1] in b"\r\n":
                self._skip(len(self._buffer) - len(self._buffer.lstrip(b"\r\n")))
            if self._skipped > HEAD_LIMIT:
                self._reject(f"no answer has come within {HEAD_LIMIT} bytes")
                return
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0 and len(self._buffer) <= HEAD_LIMIT:
                if self._buffer[:5] != b"HTTP/"[: len(self._buffer)]:
                    self._reject("its answer is not HTTP")
                return
            if end < 0 or end > HEAD_LIMIT:
                self._reject(f"its response head is larger than {HEAD_LIMIT} bytes")
                return
            try:
                head = parse_head(self._buffer[:end])
            except BadResponse as error:
                self._reject(str(error))
                return
            self._skip(end + 4)
            if head.status >= 200:
                break
            if head.status == 101:
                self._reject("it switched protocols, which nobody asked for")
                return
        self._state = _State.BODY
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            # Read no further until somebody takes the body.
            waiting.callback(WireResponse(self, head, self._method))
            if self._sink is None and self._state is _State.BODY:
                self._untaken = True
                self.transport.pauseProducing()

    def _skip(self, size: int) -> None:
        self._buffer = self._buffer[size:]
        self._skipped += size

    def _reject(self, why: str) -> None:
        waiting, self._waiting = self._waiting, None
        self.abort()
        if waiting is not None:
            waiting.errback(ReplicaReset(f"the replica's answer is malformed: {why}"))

    def _feed(self, data: bytes) -> None:
        sink, follow = self._sink, self._follower
        assert sink is not None
        try:
            out = follow.feed(data) if data else b""
        except BadResponse as error:
            self.abort()
            sink.body_cut(ReplicaCut(f"the replica's answer is malformed: {error}"))
            return
        if out:
            sink.body_data(out)
        if follow.done and self._sink is not None:
            self._sink = None
            self._settle()
            sink.body_done()

    def _settle(self) -> None:
        """The exchange is over: back to the pool, or away."""
        if self._state is _State.DEAD:
            return
        uploaded = self._upload is None or self._upload.done
        self._upload = None
        if self._keep and uploaded and not self._follower.rest and not has_unsent(self.transport):
            self.resumeProducing()
            self._state = _State.IDLE
            self._on_idle(self)
        else:
            self.abort()

    def limit(self, head: Head) -> None:
        """Note from a response head whether another exchange may follow on this connection."""
        tokens = b",".join(head.all(b"connection")).lower()
        both = head.all(b"transfer-encoding") and head.all(b"content-length")
        self._keep = bool(head.minor) and b"close" not in tokens and not both


@implementer(IResponse)
class WireResponse:
    """A response whose head has come and whose body is waiting.

    :ivar head: the parsed head, fields as they came.
    """

    request = None
    previousResponse = None

    def __init__(self, wire: Wire, head: Head, method: bytes) -> None:
        self._wire = wire
        self._method = method
        self.head = head
        self.version = (b"HTTP", 1, head.minor)
        self.code = head.status
        self.phrase = head.reason
        wire.limit(head)

    @property
    def headers(self) -> Headers:
        """The fields, as Twisted's own client gives them."""
        headers = Headers()
        for field in self.head.fields:
            headers.addRawHeader(field.name, field.value)
        return headers

    @property
    def length(self) -> int | str:
        """The announced length of the body, or ``UNKNOWN_LENGTH``."""
        follow, _ = follower(self.head, self._method, http11=False)
        return follow.left if isinstance(follow, LengthBody) else UNKNOWN_LENGTH

    def framing(self, *, http11: bool) -> tuple[Follower, tuple[bytes, ...]]:
        """How this body is relayed to a client, see ``framing.follower``."""
        return follower(self.head, self._method, http11=http11)

    def relay(self, sink: Sink, follow: Follower) -> None:
        """Start relaying the body to ``sink``."""
        self._wire.attach(sink, follow)

    @property
    def producer(self) -> Wire:
        """Whom to pause, resume or stop while the body is relayed."""
        return self._wire

    def deliverBody(self, protocol: IProtocol) -> None:
        """Deliver the bare content to a protocol, as Twisted's own client does."""
        try:
            follow, _ = follower(self.head, self._method, http11=False)
        except BadResponse as error:
            self._wire.abort()
            protocol.connectionLost(Failure(ReplicaReset(f"the replica's answer is malformed: {error}")))
            return
        protocol.makeConnection(_BodyTransport(self._wire))  # type: ignore[arg-type]  # as Twisted's own
        self._wire.attach(_Delivery(protocol), follow)

    def setPreviousResponse(self, response: IResponse) -> None:
        """There is none: redirects are the client's business."""
        raise NotImplementedError("redirects are not followed")


@implementer(IPushProducer)
class _BodyTransport:
    """The transport a body protocol sees; all it can do is slow down or give up."""

    def __init__(self, wire: Wire) -> None:
        self.pauseProducing = wire.pauseProducing
        self.resumeProducing = wire.resumeProducing
        self.stopProducing = wire.stopProducing
        self.abortConnection = self.loseConnection = wire.stopProducing


class _Delivery:
    """Adapts an ``IProtocol`` to a ``Sink``."""

    def __init__(self, protocol: IProtocol) -> None:
        self._protocol = protocol
        self.body_data = protocol.dataReceived

    def body_done(self) -> None:
        self._protocol.connectionLost(Failure(ResponseDone()))

    def body_cut(self, error: RouterError) -> None:
        self._protocol.connectionLost(Failure(error))
