"""A light HTTP client: kept connections, one streamed answer at a time on each, every answer checked."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from attrs import frozen
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:\s*chunked", re.IGNORECASE)
_CLOSING = re.compile(rb"\r\nconnection:\s*close", re.IGNORECASE)
_AFFINITY = re.compile(rb"\r\nx-router-affinity:\s*([^\r]*)", re.IGNORECASE)
_REPLICA = re.compile(rb"\r\nx-router-replica:\s*([^\r]*)", re.IGNORECASE)
_USAGE = re.compile(rb'"prompt_tokens":(\d+),"completion_tokens":(\d+),.*?"cached_tokens":(\d+)')
_DONE = b"data: [DONE]\n\n"


@frozen
class Answer:
    """One answer, or what became of it.

    :ivar failure: what is wrong with it, in a word or two; None when nothing is.
    :ivar affinity: the router's receipt, where there is one.
    :ivar replica: the replica's name, where the router gives it.
    """

    failure: str | None = None
    prompt: int = 0
    cached: int = 0
    output: int = 0
    affinity: str | None = None
    replica: str | None = None


def unchunked(data: bytes) -> bytes | None:
    """The content of a complete chunked body; None when it is not complete."""
    content, at = [], 0
    while True:
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        try:
            size = int(data[at:end], 16)
        except ValueError:
            return None
        at = end + 2 + size + 2
        if len(data) < at or data[at - 2 : at] != b"\r\n":
            return None
        if not size:
            return b"".join(content)
        content.append(data[end + 2 : at - 2])


def read(head: bytes, content: bytes, output: int) -> Answer:
    """Judge a complete answer to a request for ``output`` tokens."""
    status = head.split(b" ", 2)[1].decode("latin-1")
    if status != "200":
        return Answer(f"status {status}")
    usage = _USAGE.search(content, max(0, len(content) - 1000))
    if not content.endswith(_DONE) or usage is None:
        return Answer("no end of stream")
    prompt, completion, cached = map(int, usage.groups())
    if completion != output:
        return Answer("wrong length")
    return Answer(None, prompt, cached, completion, _field(_AFFINITY, head), _field(_REPLICA, head))


def _field(pattern: re.Pattern[bytes], head: bytes) -> str | None:
    found = pattern.search(head)
    return None if found is None else found[1].decode("latin-1")


class Talk(Protocol):
    """One connection.

    :param idle: told when another request may be sent.
    """

    def __init__(self, idle: Callable[[Talk], None]) -> None:
        self._idle = idle
        self._data = bytearray()
        self._done: Callable[[Answer], None] | None = None
        self._output = 0
        self.open = False

    def connectionMade(self) -> None:
        """No delay for what is written."""
        self.open = True
        transport: Any = self.transport
        transport.setTcpNoDelay(True)

    def ask(self, request: bytes, output: int, done: Callable[[Answer], None]) -> None:
        """Send a request for ``output`` tokens; ``done`` is called once."""
        self._data.clear()
        self._output, self._done = output, done
        transport: Any = self.transport
        transport.write(request)

    def dataReceived(self, data: bytes) -> None:
        """Collect until the answer is complete."""
        self._data += data
        end = self._data.find(b"\r\n\r\n")
        if end < 0 or self._done is None:
            return
        head, body = bytes(self._data[:end]), self._data[end + 4 :]
        if _CHUNKED.search(head):
            content = unchunked(bytes(body)) if body.endswith(b"0\r\n\r\n") else None
        else:
            length = _LENGTH.search(head)
            content = bytes(body) if length and len(body) >= int(length[1]) else None
        if content is not None:
            if _CLOSING.search(head):
                self._close()
            self._end(read(head, content, self._output))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """An answer under way will not come."""
        self.open = False
        self._end(Answer("cut" if self._data else "lost"))

    def _close(self) -> None:
        self.open = False
        transport: Any = self.transport
        transport.loseConnection()

    def _end(self, answer: Answer) -> None:
        done, self._done = self._done, None
        if done is not None:
            if self.open:
                self._idle(self)
            done(answer)


class Connections:
    """Kept connections to one port of this machine, newest first."""

    def __init__(self, reactor: Any, port: int) -> None:
        self._endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", port)
        self._idle: list[Talk] = []
        self._factory = Factory.forProtocol(lambda: Talk(self._idle.append))

    def ask(self, request: bytes, output: int, done: Callable[[Answer], None]) -> None:
        """Send a request on an idle connection, or a new one."""
        while self._idle:
            talk = self._idle.pop()
            if talk.open:
                talk.ask(request, output, done)
                return

        def connected(talk: Talk) -> None:
            talk.ask(request, output, done)

        def refused(_: Failure) -> None:
            done(Answer("no connection"))

        self._endpoint.connect(self._factory).addCallbacks(connected, refused)
