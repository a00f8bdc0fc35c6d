"""The listening side of HTTP: strict heads, bounded bodies in memory, deadlines by absolute time."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

from twisted.internet.interfaces import IAddress, IPushProducer, IReactorTime
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
    Overloaded,
    RequestTimedOut,
    RouterError,
)
from ..proxy.deadlines import Deadlines
from ..proxy.writing import writer
from . import problems
from .heads import PlainHead, read_plain_head
from .limits import Doors, Limits, Shut
from .request import RouterRequest

_NOT_IN_HOSTS = re.compile(rb"[^A-Za-z0-9._~!$&'()*+,;=%:\[\]-]").search
#: Digits of a Content-Length; more than that is no size of anything.
_LENGTH_DIGITS = 18


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
    _host: IAddress | None = None
    _peer: IAddress | None = None

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
            if not self._buffer and not self.paused and self.persistent:
                plain = read_plain_head(data, self.totalHeadersSize)
                if plain is not None:
                    self._take_head(plain, data)
                    return
        super().dataReceived(data)

    def _take_head(self, head: PlainHead, data: bytes) -> None:
        """Begin a request whose head came whole, as the line by line reading would have."""
        request = RouterRequest(self, len(self.requests))
        self.requests.append(request)
        self._command, self._path, self._version = head.method, head.target, b"HTTP/1.1"
        request.requestHeaders._rawHeaders.update(head.fields)
        for length in head.fields.get(b"Content-Length", ()):
            self._maybeChooseTransferDecoder(b"Content-Length", length)
        if not self._refused:
            self.allHeadersReceived()
        if self.length == 0:
            self.allContentReceived()
        else:
            self.setRawMode()
        if len(data) > head.size:
            self.dataReceived(data[head.size :])

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

    def getHost(self) -> IAddress:
        """Our address, which every request wants; the kernel is asked once a connection."""
        if self._host is None:
            self._host = self.transport.getHost()
        return self._host

    def getPeer(self) -> IAddress:
        """The client's address."""
        if self._peer is None:
            self._peer = self.transport.getPeer()
        return self._peer

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

    def __init__(
        self, root: IResource, relay: IResource, limits: Limits, doors: Doors, clock: IReactorTime
    ) -> None:
        super().__init__(root, timeout=None, reactor=clock, parsePOSTFormSubmission=False)
        self.limits = limits
        self.doors = doors
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
