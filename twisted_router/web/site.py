"""The listening side of HTTP: strict heads, bounded bodies in memory, deadlines by absolute time."""

from __future__ import annotations

import re
from collections.abc import Callable
from io import BytesIO
from typing import Any, cast

from twisted.internet.interfaces import IPushProducer, IReactorTime
from twisted.internet.protocol import connectionDone
from twisted.internet.tcp import Connection
from twisted.python.failure import Failure
from twisted.web.http import RESPONSES, HTTPChannel
from twisted.web.resource import IResource
from twisted.web.server import Request, Site

from ..errors import (
    BadRequest,
    BodyTooLarge,
    HeadTooLarge,
    NotImplementedHere,
    Overloaded,
    RequestTimedOut,
    RouterError,
)
from ..proxy.deadlines import Deadlines
from ..proxy.wire import writer
from . import problems
from .limits import Limits, Shut

_ABSOLUTE = re.compile(rb"[A-Za-z][A-Za-z0-9+.\-]*://[^/?#]*").match
_NOT_IN_HOSTS = re.compile(rb"[^A-Za-z0-9._~!$&'()*+,;=%:\[\]-]").search
_NOT_IN_TARGETS = re.compile(rb"[^\x21-\x7e]").search
#: Digits of a Content-Length; more than that is no size of anything.
_LENGTH_DIGITS = 18


class RouterRequest(Request):
    """A request whose body is in memory, and whose answer may be written byte for byte."""

    channel: RouterChannel
    defaultContentType = None
    _held = 0

    def gotLength(self, length: int | None) -> None:
        """Prepare for the body; its announced length has been checked by the channel."""
        self.content = BytesIO()
        if length:
            self.hold(length)

    def hold(self, size: int) -> None:
        """Count bytes of upload as held by this request."""
        self._held += size
        self.channel.site.held += size

    def handleContentChunk(self, data: bytes) -> None:
        """Take a piece of the body; one of unknown length is checked as it grows."""
        channel = self.channel
        channel.body_seen += len(data)
        if channel.length is None:
            problem = channel.site.body_problem(self._held + len(data), len(data))
            if problem is not None:
                channel.refuse(problem)
                return
            self.hold(len(data))
        cast(BytesIO, self.content).write(data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """Bring the target into origin form and refuse what is no request for us."""
        if command == b"CONNECT":
            self.channel.refuse(NotImplementedHere("tunnels are not offered"))
            return
        absolute = _ABSOLUTE(path)
        if absolute:
            path = path[absolute.end() :]
            path = path if path[:1] == b"/" else b"/" + path
        elif path[:1] != b"/" and (path != b"*" or command != b"OPTIONS"):
            self.channel.refuse(BadRequest("the request target is neither a path nor an absolute URL"))
            return
        if _NOT_IN_TARGETS(path):
            self.channel.refuse(BadRequest("the request target contains characters that no URL has"))
            return
        upgrade = self.requestHeaders.getRawHeaders(b"upgrade")
        if upgrade and upgrade[0].strip().lower() == b"websocket":
            self.channel.refuse(NotImplementedHere("WebSocket connections are not relayed"))
            return
        super().requestReceived(command, path, version)

    def parseCookies(self) -> None:
        """Cookies are the replica's business."""

    def process(self) -> None:
        """Relay what is below ``/v1/`` without what only our own pages need: date, split path, encoders."""
        site = self.channel.site
        if self.path.startswith(b"/v1/"):
            self.site = site
            self.render(site.getResourceFor(self))
        else:
            super().process()

    def take_body(self) -> bytes:
        """See ``proxy.exchange.Downstream``."""
        content = cast(BytesIO, self.content)
        self.content = BytesIO()
        return content.getvalue()

    def is_persistent(self) -> bool:
        """See ``proxy.exchange.Downstream``."""
        return bool(self.channel.persistent)

    def send(self, data: bytes) -> None:
        """See ``proxy.exchange.Downstream``."""
        self.startedWriting = 1
        self.channel.send(data)

    def complete(self) -> None:
        """See ``proxy.exchange.Downstream``."""
        self.startedWriting = 1
        self.finish()

    def break_off(self, *, reset: bool) -> None:
        """See ``proxy.exchange.Downstream``."""
        self.channel.break_off(reset=reset)

    def fail(self, error: RouterError, session: str | None = None) -> None:
        """Answer with an error of our own."""
        content = problems.body(error)
        self.setResponseCode(error.status)
        for name, value in problems.fields(error):
            self.setHeader(name, value)
        if session is not None:
            self.setHeader(b"X-Session-Id", session.encode("ascii"))
        self.setHeader(b"Content-Length", b"%d" % len(content))
        self.write(content)
        self.finish()

    def _cleanup(self) -> None:
        self.release()
        super()._cleanup()

    def connectionLost(self, reason: Failure) -> None:
        """The client is gone."""
        self.release()
        super().connectionLost(reason)

    def release(self) -> None:
        """Count the upload as held no longer."""
        channel = self.channel
        if self._held and channel is not None:
            channel.site.held -= self._held
            self._held = 0


class RouterChannel(HTTPChannel):
    """A client's connection."""

    #: Twisted's own idle timer is renewed by every byte; our deadlines are not.
    timeOut = None
    MAX_LENGTH = 64 * 1024
    totalHeadersSize = 128 * 1024
    site: RouterSite
    transport: Connection
    requests: list[RouterRequest]
    persistent: bool
    length: int | None
    body_seen = 0
    _refused = False
    _deadline: Deadlines | None = None

    def connectionMade(self) -> None:
        """Start to wait for the first request."""
        super().connectionMade()
        self.send: Callable[[bytes], None] = writer(self.transport)
        descriptor = self.transport.fileno() if isinstance(self.transport, Connection) else 0
        try:
            problem = self.site.doors.enter(descriptor)
        except Shut:
            self.transport.abortConnection()
            return
        if problem is not None:
            self.refuse(problem)
        else:
            self._enter(self.site.idle)

    def dataReceived(self, data: bytes) -> None:
        """Take bytes; a refused client's are dropped."""
        if self._refused:
            return
        if self._deadline is self.site.idle:
            self._enter(self.site.heads)
        super().dataReceived(data)

    def lineReceived(self, line: bytes) -> None:
        """Take a line of a head, up to the limit."""
        if self._refused:
            return
        if self._receivedHeaderSize + len(line) > self.totalHeadersSize:
            self.lineLengthExceeded(line)
        elif line[:1] in (b" ", b"\t"):
            self.refuse(BadRequest("a header line is folded, or begins with a blank"))
        else:
            super().lineReceived(line)

    def lineLengthExceeded(self, line: bytes) -> None:
        """A head that is too large is answered, not just dropped."""
        self.refuse(HeadTooLarge(f"a request head may have {self.totalHeadersSize} bytes"))

    def allHeadersReceived(self) -> None:
        """The head is complete: refuse before the body is sent what would be refused after it."""
        request = self.requests[-1]
        hosts = request.requestHeaders.getRawHeaders(b"host") or []
        problem: RouterError | None = None
        if len(hosts) > 1 or (not hosts and self._version == b"HTTP/1.1"):
            problem = BadRequest("a request needs exactly one Host header")
        elif hosts and _NOT_IN_HOSTS(hosts[0]):
            problem = BadRequest("the Host header is no host")
        elif self.length:
            problem = self.site.body_problem(self.length, self.length)
        if problem is not None:
            self.refuse(problem)
            return
        self.body_seen = 0
        self._enter(self.site.bodies)
        super().allHeadersReceived()

    def allContentReceived(self) -> None:
        """The request is complete."""
        if not self._refused:
            self._enter(None)
            super().allContentReceived()

    def rawDataReceived(self, data: bytes) -> None:
        """Take a piece of a body, or of what a client sends ahead."""
        if not self._refused:
            super().rawDataReceived(data)

    def _maybeChooseTransferDecoder(self, header: bytes, data: bytes) -> bool:
        """Refuse framing that others might read differently, or that is no number anybody could mean."""
        if (header == b"Content-Length" and len(data) > _LENGTH_DIGITS) or (
            header == b"Transfer-Encoding" and (data.lower() != b"chunked" or self._version != b"HTTP/1.1")
        ):
            return bool(self._failChooseTransferDecoder())
        return bool(super()._maybeChooseTransferDecoder(header, data))

    def checkPersistence(self, request: Request, version: bytes) -> bool:
        """Tell whether another request may follow; ``close`` may stand anywhere in the field."""
        fields = request.requestHeaders.getRawHeaders(b"connection") or ()
        if b"close" in [token.strip().lower() for field in fields for token in field.split(b",")]:
            request.responseHeaders.setRawHeaders(b"Connection", [b"close"])
            return False
        return version == b"HTTP/1.1"

    def requestDone(self, request: Request) -> None:
        """An answer is complete: wait for the next request.

        One that was sent ahead waits until the client has read what it has got, lest replicas work for a
        client that only asks.
        """
        self._enter(self.site.idle)
        if self._waitingForTransport:
            self.paused = True
            self._networkProducer.pauseProducing()
        super().requestDone(request)

    def resumeProducing(self) -> None:
        """The client has read on: go on with what it sent ahead."""
        super().resumeProducing()
        if self.paused:
            self.paused = False
            if self._buffer:
                self.dataReceived(b"")

    def registerProducer(self, producer: IPushProducer, streaming: bool) -> None:
        """Pause a new producer at once when the client has not read what came before."""
        super().registerProducer(producer, streaming)
        if self._waitingForTransport:
            producer.pauseProducing()

    def refuse(self, error: RouterError) -> None:
        """Answer a request that is not taken, and close without losing the answer.

        Closing at once would reset the connection of a client that is still sending, and the reset would
        overtake the answer. So only our side is closed; what comes is dropped until the client has seen it.
        """
        if self._refused:
            return
        self._refused = True
        content = problems.body(error)
        lines = [b"HTTP/1.1 %d %b" % (error.status, RESPONSES.get(error.status, b""))]
        lines += [b"%b: %b" % field for field in problems.fields(error)]
        lines += [b"Content-Length: %d" % len(content), b"Connection: close", b"", content]
        self.transport.write(b"\r\n".join(lines))
        self.transport.loseWriteConnection()
        self._enter(self.site.lingers)

    def _respondToBadRequestAndDisconnect(self) -> None:
        if self._receivedHeaderCount > self.maxHeaders:
            self.refuse(HeadTooLarge(f"a request head may have {self.maxHeaders} header fields"))
            return
        self.refuse(BadRequest("the request is not well-formed HTTP/1.1"))

    def break_off(self, *, reset: bool) -> None:
        """End the connection within an answer."""
        if reset:
            self.transport.abortConnection()
        else:
            self._refused = True
            self._enter(self.site.lingers)
            self.loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The client is gone."""
        self._enter(None)
        self.site.doors.leave()
        super().connectionLost(reason)

    def expire(self) -> None:
        """The present deadline has passed."""
        deadline, self._deadline = self._deadline, None
        if deadline is self.site.heads:
            self.refuse(RequestTimedOut(f"the request's head took over {self.site.limits.head:g} seconds"))
        elif deadline is self.site.bodies and self.body_seen < self.site.limits.stall_bytes:
            self.refuse(RequestTimedOut("the request's body stopped coming"))
        elif deadline is self.site.bodies:
            self.body_seen = 0
            self._enter(deadline)
        elif deadline is self.site.idle:
            self.loseConnection()
            self._enter(self.site.lingers)  # it would wait for ever for a client that does not read
        else:
            self.transport.abortConnection()

    def _enter(self, deadline: Deadlines | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel(self.expire)
        self._deadline = deadline
        if deadline is not None:
            deadline.arm(self.expire)


class RouterSite(Site):
    """The site: ``/v1/`` goes straight to its leaf, the rest through the Klein tree the leaf is part of.

    :param root: the whole tree.
    :param relay: the leaf at ``/v1/`` in that tree. Matching it by its prefix spares a match per request, and
        spares targets with ``//``, ``%2F`` or bytes that are not UTF-8 what a URL router would do to them.
    """

    protocol = RouterChannel  # type: ignore[assignment]  # without the wrapper that would switch to HTTP/2
    requestFactory = RouterRequest
    noisy = False

    def __init__(self, root: IResource, relay: IResource, limits: Limits, clock: IReactorTime) -> None:
        super().__init__(root, timeout=None, reactor=clock, parsePOSTFormSubmission=False)
        self.limits = limits
        self.doors = limits.doors
        self.held = 0
        self.idle = Deadlines(clock, limits.idle)
        self.heads = Deadlines(clock, limits.head)
        self.bodies = Deadlines(clock, limits.stall)
        self.lingers = Deadlines(clock, limits.linger)
        self._relay = relay

    def getResourceFor(self, request: Request) -> IResource:
        """Find a request's resource."""
        if request.path.startswith(b"/v1/"):
            return self._relay
        try:
            b"/".join(request.postpath or ()).decode("utf-8")
        except UnicodeDecodeError:
            request.postpath = [b"?"]  # names nothing either, and Klein logs no traceback for it
        return cast(IResource, super().getResourceFor(request))

    def body_problem(self, size: int, more: int) -> RouterError | None:
        """Tell why an upload of ``size`` bytes, ``more`` of them new, cannot be taken, or None."""
        if size > self.limits.body:
            return BodyTooLarge(f"a request body may have {self.limits.body} bytes (--max-body)")
        if self.held + more > self.limits.bodies:
            return Overloaded(f"uploads in flight have reached {self.limits.bodies} bytes (--max-body-total)")
        return None

    def startFactory(self) -> None:
        """No access log of Twisted's, hence no timer for its date."""

    def stopFactory(self) -> None:
        """Forget every deadline."""
        for deadlines in (self.idle, self.heads, self.bodies, self.lingers):
            deadlines.stop()

    def log(self, request: Any) -> None:
        """Requests are counted, and logged if asked for, where they end."""
