"""Whatever a client sends: what reaches a replica is what another parser would have read from it."""

from __future__ import annotations

import re

import h11
from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.fuzz.profile import cut, effort, spoilt
from tests.proxy.fakes import Answers, Line
from tests.web.scene import OK, Caller, Router

#: Method, target, body.
Request = tuple[bytes, bytes, bytes]

_ABSOLUTE = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")

_LINES = st.sampled_from(
    (
        b"Content-Length: 0",
        b"Content-Length: 5",
        b"Content-Length: 5",
        b"content-length:5",
        b"Content-Length: 44",
        b"Content-Length: +5",
        b"Content-Length: 5, 5",
        b"Content-Length: 0x5",
        b"Content-Length: -1",
        b"Content-Length:",
        b"Content-Length : 5",
        b"Content-Length: 00005",
        b"Content-Length: " + b"9" * 5000,
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: Chunked",
        b"Transfer-Encoding: identity",
        b"Transfer-Encoding: xchunked",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: chunked, identity",
        b"Transfer-Encoding:\x0bchunked",
        b"Transfer-Encoding:\r\n chunked",
        b"Transfer_Encoding: chunked",
        b"Connection: close",
        b"Connection: keep-alive, close",
        b"Connection: close,x-a",
        b"Connection: content-length, host",
        b"Connection: upgrade",
        b"Upgrade: h2c",
        b"Upgrade: websocket",
        b"Expect: 100-continue",
        b"X-A: b",
        b"X-A: b\n c",
        b" folded: start",
        b"X-Session-Id: s",
        b"X-Session-Id: \xff",
        b"Cookie: a=b; c",
        b"Trailer: X",
        b"Host: second",
    )
)
_SMUGGLED = b"GET /v1/smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
_BODIES = st.sampled_from(
    (
        b"",
        b"hello",
        b"5\r\nhello\r\n0\r\n\r\n",
        b"0\r\n\r\n",
        b"5;ext=1\r\nhello\r\n0\r\nX-T: 1\r\n\r\n",
        b"5 ;x\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"+5\r\nhello\r\n0\r\n\r\n",
        b"5\nhello\r\n0\r\n\r\n",
        b"5\r\nhelloXX0\r\n\r\n",
        b"5;\n\r\nhello\r\n0\r\n\r\n",
        b"0\r\n\r\n" + _SMUGGLED,
        _SMUGGLED,
        b"hello" + _SMUGGLED,
    )
)
_TARGETS = st.sampled_from(
    (
        b"/v1/x",
        b"/v1/x",
        b"/v1//x%2F..?q=%20[1]|",
        b"http://other/v1/x",
        b"http://other?x",
        b"/live",
        b"/%ff",
        b"*",
        b"host:443",
        b"/v1/\x80",
        b"/v1/ x",
        b"//v1/x",
    )
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """One to three requests, well-formed or nearly."""
    whole = b""
    for _ in range(draw(st.integers(1, 3))):
        method = draw(st.sampled_from((b"POST", b"POST", b"GET", b"HEAD", b"OPTIONS", b"CONNECT", b"PRI")))
        version = draw(st.sampled_from((b"HTTP/1.1",) * 6 + (b"HTTP/1.0", b"HTTP/1.2", b"HTTP/2.0")))
        lines = [b"%b %b %b" % (method, draw(_TARGETS), version)]
        if draw(st.integers(0, 9)):
            lines.append(b"Host: router")
        lines += draw(st.lists(_LINES, max_size=3))
        whole += b"\r\n".join((*lines, b"", draw(_BODIES)))
    return whole


def expected(data: bytes) -> list[Request]:
    """Read requests as h11 does, up to the first thing it does not take, or the end of the connection."""
    found: list[Request] = []
    while data:
        server = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        # One blank line may stand before a request.
        server.receive_data(data.removeprefix(b"\r\n"))
        try:
            request = _read(server)
        except h11.RemoteProtocolError:
            break
        if request is None or request[0] == b"CONNECT":
            break
        found.append(request)
        if server.their_state not in (h11.DONE, h11.MIGHT_SWITCH_PROTOCOL):
            break
        data = server.trailing_data[0]
    return found


def _read(server: h11.Connection) -> Request | None:
    method = target = body = b""
    while not isinstance(event := server.next_event(), h11.EndOfMessage):
        if isinstance(event, h11.Request):
            method, target = event.method, event.target
        elif isinstance(event, h11.Data):
            body += event.data
        else:
            return None
    return method, target, body


class Replica:
    """Answers every request on every connection, reading them with h11."""

    def __init__(self, router: Router, name: str) -> None:
        self._router = router
        self._endpoint = router.replicas[name]
        self._read: list[tuple[Line, h11.Connection]] = []
        self.seen: list[Request] = []
        self.heads: list[h11.Request] = []

    def work(self) -> None:
        """Take what has come, until nothing more comes."""
        while self._turn():
            self._router.clock.advance(0)

    def _turn(self) -> bool:
        for line in self._endpoint.lines[len(self._read) :]:
            self._read.append((line, h11.Connection(h11.SERVER)))
        worked = False
        for line, server in self._read:
            if data := line.value():
                line.clear()
                server.receive_data(data)
                worked = True
                self._requests(line, server)
        return worked

    def _requests(self, line: Line, server: h11.Connection) -> None:
        body = b""
        while True:
            event = server.next_event()
            if isinstance(event, h11.Request):
                self.heads.append(event)
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                head = self.heads[-1]
                self.seen.append((head.method, head.target, body))
                server.send(h11.Response(status_code=200, headers=[("Content-Length", "2")]))
                if head.method != b"HEAD":
                    server.send(h11.Data(data=b"ok"))
                server.send(h11.EndOfMessage())
                server.start_next_cycle()
                line.deliver(OK if head.method != b"HEAD" else OK[:-2])
                body = b""
            else:
                assert event is h11.NEED_DATA, event
                return


def statuses(heard: bytes, methods: list[bytes]) -> list[int]:
    """Read a client's answers; what is written has to be whole."""
    answers, found = Answers(heard.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")), []
    while rest := answers.rest():
        answers = Answers(rest)
        method = methods[len(found)] if len(found) < len(methods) else b"GET"
        answer = answers.next(method.decode())
        answer.read()
        found.append(answer.status)
    return found


def own(requests: list[Request]) -> list[Request]:
    """Those that are a replica's, with their targets in origin form."""
    found = []
    for method, target, body in requests:
        absolute = _ABSOLUTE.match(target)
        if absolute:
            target = target[absolute.end() :]
            target = target if target[:1] == b"/" else b"/" + target
        if target.lstrip(b"/").startswith(b"v1/"):
            found.append((method, target, body))
    return found


class RequestFuzz(SynchronousTestCase):
    """Bytes of a client against the whole data path in memory."""

    def relay(self, pieces: list[bytes]) -> tuple[Router, Caller, Replica]:
        router = Router("a")
        replica = Replica(router, "a")
        caller = router.call()
        for piece in pieces:
            caller.say(piece)
            replica.work()
        return router, caller, replica

    @effort(500)
    @given(cut(spoilt(requests())))
    @example([b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n"])
    def test_no_smuggling(self, pieces: list[bytes]) -> None:
        """One request of a client is one at the replica, body and all, or is refused; none is invented."""
        router, caller, replica = self.relay(pieces)
        ours, theirs = replica.seen, own(expected(b"".join(pieces)))
        common = min(len(ours), len(theirs))
        self.assertEqual(ours[:common], theirs[:common], pieces)
        if b"\x0b" not in b"".join(pieces):  # which h11 refuses in any value
            self.assertLessEqual(len(ours), len(theirs), pieces)
        self.assertEqual(router.notes.begun, len(ours))
        for head in replica.heads:
            names = [name for name, _ in head.headers]
            self.assertEqual(names.count(b"host"), 1)
            self.assertLessEqual(names.count(b"content-length"), 1)
            self.assertNotIn(b"transfer-encoding", names)
        self.assertEqual(self.flushLoggedErrors(), [])
        caller.leave()
        self.assertEqual((router.site.held, sum(router.load().values())), (0, 0))
        self.assertEqual(len(router.notes.outcomes), router.notes.begun)
