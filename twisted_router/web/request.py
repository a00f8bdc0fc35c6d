"""A client's request: its body in memory, its answer written byte for byte."""

from __future__ import annotations

import re
from io import BytesIO
from typing import TYPE_CHECKING, cast

from twisted.python.failure import Failure
from twisted.web.http_headers import Headers
from twisted.web.server import Request

from ..errors import BadRequest, NotImplementedHere, RouterError
from . import problems

if TYPE_CHECKING:
    from .site import RouterChannel

_ABSOLUTE = re.compile(rb"[A-Za-z][A-Za-z0-9+.\-]*://[^/?#]*").match
_NO_FIELDS = Headers()
_NOT_IN_TARGETS = re.compile(rb"[^\x21-\x7e]").search


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

    def getRequestHostname(self) -> bytes:
        """Name the server as our own pages know it: for them Host means nothing, and Klein fails on some."""
        return b"router"

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
        """See ``proxy.downstream.Downstream``."""
        content = cast(BytesIO, self.content)
        self.content = BytesIO()
        return content.getvalue()

    def forget_head(self) -> None:
        """See ``proxy.downstream.Downstream``."""
        self.requestHeaders = _NO_FIELDS

    def is_persistent(self) -> bool:
        """See ``proxy.downstream.Downstream``."""
        return bool(self.channel.persistent)

    def send(self, data: bytes) -> None:
        """See ``proxy.downstream.Downstream``."""
        self.startedWriting = 1
        self.channel.send(data)

    def complete(self) -> None:
        """See ``proxy.downstream.Downstream``."""
        self.startedWriting = 1
        self.finish()

    def break_off(self, *, reset: bool) -> None:
        """See ``proxy.downstream.Downstream``."""
        self.channel.break_off(reset=reset)

    def fail(self, error: RouterError, session: str | None = None) -> None:
        """Answer with an error of our own."""
        content = problems.answer(self, error)
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
