"""Parts of the data path alone: one process, fake transports, processor time. Judge ratios within a run."""

from __future__ import annotations

import argparse
import cProfile
import pstats
import re
import secrets
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import treq.client
from klein import Klein
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.web.http import _ChunkedTransferDecoder
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IResponse
from twisted.web.resource import IResource, Resource
from twisted.web.server import Request, Site
from zope.interface import implementer

from bench.inmemory import DataPath, Silent
from bench.report import keep
from bench.tables import render
from twisted_router.config.model import SESSION_SOURCES
from twisted_router.core.fleet import Fleet
from twisted_router.core.policies.session import SessionAffinity
from twisted_router.core.sessions import Pins
from twisted_router.core.wish import Wish
from twisted_router.proxy.framing import ChunkedBody, LengthBody, parse_head
from twisted_router.proxy.head import SessionFinder
from twisted_router.proxy.headers import for_client, for_replica
from twisted_router.proxy.wire import Wire
from twisted_router.web.limits import Doors, Limits
from twisted_router.web.site import RouterRequest, RouterSite

Call = Callable[[], object]

BODY = b'{"model":"bench","messages":[{"role":"user","content":"%b"}]}' % (b"y" * 340)
FIELDS = (
    b"Host: 127.0.0.1:8000\r\nUser-Agent: bench/1\r\nAccept: application/json\r\n"
    b"Accept-Encoding: identity\r\nContent-Type: application/json\r\nAuthorization: Bearer bench\r\n"
    b"X-Stainless-Lang: python\r\nX-Session-Id: bench-0000001\r\n"
)
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (FIELDS, len(BODY), BODY)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1024\r\nServer: bench"
REPLY = HEAD + b"\r\n\r\n" + b"x" * 1024
CHUNK = b"fa\r\n%b\r\n" % (b"x" * 250)
PINS = 100_000


@dataclass(frozen=True)
class Row:
    """One thing to time. ``make`` prepares it; ``over`` names the row that its ratio is taken to."""

    name: str
    make: Callable[[], Call]
    over: str | None = None


class NullLeaf(Resource):
    """Answers two bytes the stock way."""

    isLeaf = True

    def render(self, request: Request) -> bytes:
        """See ``IResource``."""
        return b"{}"


class RawLeaf(Resource):
    """Answers two bytes the way the relay does."""

    isLeaf = True

    def render(self, request: Request) -> int:
        """See ``IResource``."""
        ours = cast(RouterRequest, request)
        ours.take_body()
        ours.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        ours.complete()
        return 1


class Unlogged(Site):
    """A stock site without its access log."""

    def log(self, request: Any) -> None:
        """Say nothing."""


def _feed(site: Site) -> Call:
    """Requests arriving on one kept connection of *site*."""
    protocol = site.buildProtocol(cast(Any, None))
    assert protocol is not None
    transport = Silent()
    protocol.makeConnection(transport)
    protocol.dataReceived(REQUEST)
    written = transport.written
    protocol.dataReceived(REQUEST)
    assert transport.written == 2 * written > 0, "the site does not answer"
    return lambda: protocol.dataReceived(REQUEST)


def stock_site() -> Call:
    """twisted.web with its defaults."""
    return _feed(Unlogged(NullLeaf(), reactor=Clock()))


def bare_site() -> Call:
    """twisted.web without form parsing."""
    return _feed(Unlogged(NullLeaf(), reactor=Clock(), parsePOSTFormSubmission=False))


def klein_site() -> Call:
    """twisted.web without form parsing, a Klein tree of four routes in front."""
    app = Klein()
    for path in ("/health", "/metrics", "/replicas"):
        app.route(path)(lambda request: b"{}")
    app.route("/v1/", branch=True)(lambda request: NullLeaf())
    return _feed(Unlogged(app.resource(), reactor=Clock(), parsePOSTFormSubmission=False))


def our_site() -> Call:
    """The router's own site and request, a leaf that answers at once."""
    leaf = cast(IResource, RawLeaf())
    return _feed(RouterSite(leaf, leaf, Limits(1 << 26, 1 << 30), Doors.of(None, 1 << 20, 0), Clock()))


@implementer(IAgent)
class IdleAgent:
    """Does nothing with a request."""

    def request(
        self,
        method: bytes,
        uri: bytes,
        headers: Headers | None = None,
        bodyProducer: IBodyProducer | None = None,
    ) -> Deferred[IResponse]:
        """Never fires."""
        return Deferred()


def stock_treq() -> Call:
    """treq's own client over an agent that does nothing."""
    client = treq.client.HTTPClient(IdleAgent())
    headers = request_headers()
    url = "http://127.0.0.1:8001/v1/chat/completions"
    return lambda: client.request("POST", url, headers=headers, data=BODY)


def request_headers() -> Headers:
    """The benchmark's request fields as twisted.web gives them."""
    headers = Headers()
    for line in FIELDS.split(b"\r\n")[:-1]:
        name, _, value = line.partition(b": ")
        headers.addRawHeader(name, value)
    return headers


class Nowhere:
    """A sink that takes everything."""

    def body_data(self, data: bytes) -> None:
        """Forget it."""

    def body_done(self) -> None:
        """Nothing follows."""

    def body_cut(self, error: Exception) -> None:
        """Fail: the replies here are complete."""
        raise error


def upstream() -> Call:
    """One exchange on an upstream connection: request out, head in, 1 KiB relayed."""
    wire = Wire(lambda _: None, lambda _: None)
    wire.makeConnection(Silent())
    sink, head = Nowhere(), b"POST /v1/chat/completions HTTP/1.1\r\n" + FIELDS + b"\r\n"

    def exchange() -> None:
        sent = wire.send(b"POST", head, BODY)
        sent.addCallback(lambda response: response.relay(sink, LengthBody(1024)))
        wire.dataReceived(REPLY)

    exchange()
    assert wire.is_fresh(), "the exchange did not end"
    return exchange


def whole_request() -> Call:
    """A request through every layer: client's bytes in, replica's 1 KiB answer out."""
    path = DataPath()

    def one() -> None:
        path.client.dataReceived(REQUEST)
        path.replica_sends(REPLY)

    one()
    written = path.downstream.written
    one()
    assert path.downstream.written == 2 * written > 1024, "the answer did not come through"
    return one


def whole_chunk(chunks: int) -> Callable[[], Call]:
    """*chunks* SSE events in one read, from the replica's connection to the client's, a stream under way."""

    def make() -> Call:
        path, data = DataPath(), CHUNK * chunks
        path.client.dataReceived(REQUEST)
        path.replica_sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        written = path.downstream.written
        path.replica_sends(data)
        assert path.downstream.written == written + len(data), "the chunks did not come through"
        return lambda: path.replica_sends(data)

    return make


def dechunk() -> Call:
    """Twisted's decoder, and framing again: one chunk."""
    out = Silent()
    decoder = _ChunkedTransferDecoder(
        lambda data: out.write(b"%x\r\n%b\r\n" % (len(data), data)), lambda _: None
    )
    return lambda: decoder.dataReceived(CHUNK)


def follow(chunks: int) -> Callable[[], Call]:
    """The verbatim relay's follower over *chunks* in one read."""

    def make() -> Call:
        body, data = ChunkedBody(decode=False), CHUNK * chunks
        return lambda: body.feed(data)

    return make


def pick(pins: int) -> Callable[[], Call]:
    """Choose among 8 replicas for sessions that are pinned already, count and uncount the load."""

    def make() -> Call:
        fleet = Fleet(SessionAffinity(8), Pins(600.0, PINS), veto=10.0)
        for i in range(8):
            fleet.add_static(f"r{i}", f"http://127.0.0.1:{8001 + i}")
        wishes = [Wish(name, name) for name in (f"bench-{i:07d}" for i in range(pins))]
        for wish in wishes:
            fleet.pick(wish, 0.0)
        at = 0

        def one() -> None:
            nonlocal at
            at = (at + 1) % pins
            with fleet.lease(fleet.pick(wishes[at], 1.0), lambda: 1.0):
                pass

        return one

    return make


def look_up() -> Call:
    """What a pick is held against: one look-up in a dict of 100,000."""
    table, key = {f"bench-{i:07d}": i for i in range(PINS)}, "bench-0000042"
    return lambda: table[key]


def find_session(body: bytes, *, header: bool) -> Callable[[], Call]:
    """Look for a session id, in a header that is there or in a body that has none."""

    def make() -> Call:
        finder, headers = SessionFinder(SESSION_SOURCES), request_headers()
        if not header:
            headers.removeHeader(b"x-session-id")
        assert (finder.find(headers, body) is not None) is header
        return lambda: finder.find(headers, body)

    return make


def peek() -> Call:
    """Ask a kept socket whether its peer has closed."""
    here, there = socket.socketpair()
    flags = socket.MSG_PEEK | socket.MSG_DONTWAIT

    def one(keep: socket.socket = there) -> None:
        try:
            here.recv(1, flags)
        except BlockingIOError:
            return
        raise AssertionError("somebody wrote")

    return one


def request_fields() -> Call:
    """Choose the fields that go to the replica."""
    headers = request_headers()
    return lambda: for_replica(headers)


def response_fields() -> Call:
    """Parse a replica's head and choose the fields that go to the client."""
    return lambda: for_client(parse_head(HEAD))


STOCK, DECHUNK, DICT = "twisted.web + null leaf, stock", "twisted dechunk + rechunk, 1 chunk", "dict look-up"
ROWS = (
    Row(STOCK, stock_site),
    Row("twisted.web + null leaf, no form parsing", bare_site, STOCK),
    Row("the same under a Klein tree", klein_site, STOCK),
    Row("our site + canned answer", our_site, STOCK),
    Row("treq's own client over an idle agent", stock_treq, STOCK),
    Row("request fields to the replica", request_fields, STOCK),
    Row("response head parsed, fields to the client", response_fields, STOCK),
    Row("upstream exchange: send, head, 1 KiB, end", upstream, STOCK),
    Row("whole request through every layer", whole_request, STOCK),
    Row(DECHUNK, dechunk),
    Row("whole path of 1 chunk", whole_chunk(1), DECHUNK),
    Row("whole path of 16 chunks in one read", whole_chunk(16), DECHUNK),
    Row("follow 1 chunk", follow(1), DECHUNK),
    Row("follow 16 chunks in one read", follow(16), DECHUNK),
    Row(DICT, look_up),
    Row("pick and lease, 8 replicas, 256 pins", pick(256), DICT),
    Row("pick and lease, 8 replicas, 100,000 pins", pick(PINS), DICT),
    Row("session id found in its header", find_session(BODY, header=True)),
    Row("no session id, 400 B body", find_session(BODY, header=False)),
    Row("no session id, 1 MB body", find_session(BODY * 2500, header=False)),
    Row("socket peek", peek),
    Row("mint an id: uuid4().hex", lambda: lambda: uuid.uuid4().hex),
    Row("mint an id: token_hex(16)", lambda: lambda: secrets.token_hex(16)),
)


def cost_us(call: Call, seconds: float) -> float:
    """Processor time of one *call* in microseconds, over about *seconds* of calls."""
    count = 1
    while True:
        begin = time.process_time()
        for _ in range(count):
            call()
        took = time.process_time() - begin
        if took >= seconds / 4:
            return took / count * 1e6
        count = max(2 * count, int(count * seconds / max(took, seconds / 1000)))


def profile(call: Call, seconds: float) -> None:
    """Print where the time of about *seconds* of calls goes."""
    profiler = cProfile.Profile()
    count = max(1, int(seconds / cost_us(call, seconds) * 1e6))
    profiler.enable()
    for _ in range(count):
        call()
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def micro(options: argparse.Namespace) -> int:
    """Time each row, best of the rounds; with ``--profile``, show where their time goes instead."""
    wanted = re.compile(options.only or "")
    if options.profile:
        for row in ROWS:
            if wanted.search(row.name):
                print(row.name)
                profile(row.make(), options.seconds)
        return 0
    best: dict[str, float] = {}
    for row in ROWS:
        if wanted.search(row.name):
            call = row.make()
            best[row.name] = min(cost_us(call, options.seconds) for _ in range(options.rounds))
    lines = []
    for row in ROWS:
        if row.name in best:
            ratio = f"{best[row.name] / best[row.over]:.3g}" if row.over in best else "-"
            lines.append([row.name, f"{best[row.name]:.2f}", ratio, row.over or ""])
    print(render(["piece", "us", "ratio", "over"], lines), end="\n\n")
    keep("micro", {"rounds": options.rounds, "us": best}, options.json)
    return 0
