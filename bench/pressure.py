"""What one rude client does to a router's memory, descriptors and to everybody else."""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.engines import Engine, ours, starters
from bench.gaps import between
from bench.processes import Unavailable, children, descriptors, rss_kb
from bench.report import OUT, keep
from bench.tables import render
from bench.tools import run_load, start_stub

BIG_REPLY = 300_000_000
Figures = dict[str, float]


def request(stream: bool, length: int = 0, chunks: int = 100_000, rate: int = 20) -> bytes:
    """One raw POST as the stub understands it, its body padded to *length* bytes."""
    asked = {"model": "bench", "stream": stream, "max_tokens": chunks, "seed": rate}
    body = json.dumps({**asked, "messages": [{"role": "user", "content": "y" * length}]})
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def _connect(engine: Engine, receive_buffer: int = 0) -> socket.socket:
    link = socket.socket()
    if receive_buffer:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    link.settimeout(20)
    link.connect(("127.0.0.1", engine.port))
    return link


def _growth(engine: Engine, seconds: float, base: int) -> float:
    """The most that memory rose above *base* (kB) within *seconds*; MB."""
    peak, end = base, time.monotonic() + seconds
    while time.monotonic() < end:
        peak = max(peak, rss_kb(engine.pids))
        time.sleep(0.05)
    return (peak - base) / 1024


def slow_reader(engine: Engine, seconds: float) -> Figures:
    """300 MB are asked for and not read."""
    base = rss_kb(engine.pids)
    with _connect(engine, 65536) as link:
        link.sendall(request(False))
        stalled = _growth(engine, seconds, base)
        got = 0
        while got < BIG_REPLY and (data := link.recv(1 << 20)):
            got += len(data)
    return {"rss_growth_mb": stalled, "read_later_mb": got / 1e6}


def connects(engine: Engine, seconds: float) -> Figures:
    """256 clients connect at once, each with one request."""
    flags = {"connections": 256, "requests": 256, "warmup": 0, "seconds": 20}
    result = run_load(engine.port, flags, engine.pids)
    times = result["latency_us"] or {"p50": 0, "max": 0}
    return {"p50_ms": times["p50"] / 1e3, "slowest_ms": times["max"] / 1e3, "errors": result["errors"]}


def _replica_streams(replica: int) -> int:
    link = http.client.HTTPConnection("127.0.0.1", replica, timeout=5)
    link.request("GET", "/stats")
    return int(json.loads(link.getresponse().read())["streams"])


def aborts(engine: Engine, seconds: float) -> Figures:
    """400 streams begin and their clients leave; what is still held afterwards."""
    replica = engine.replica
    base, files = rss_kb(engine.pids), descriptors(engine.pids)
    for _ in range(4):
        links = [_connect(engine) for _ in range(100)]
        for link in links:
            link.sendall(request(True))
        for link in links:
            link.recv(1)
        for link in links:
            link.close()
    left, end = time.monotonic(), time.monotonic() + 10
    while _replica_streams(replica) and time.monotonic() < end:
        time.sleep(0.005)
    gone = (time.monotonic() - left) * 1e3
    time.sleep(seconds)
    held = descriptors(engine.pids) - files
    grown = (rss_kb(engine.pids) - base) / 1024
    return {
        "replica_free_ms": gone,
        "descriptors": held,
        "rss_growth_mb": grown,
        "streams_left": _replica_streams(replica),
    }


def pipelined(engine: Engine, seconds: float) -> Figures:
    """1,500 requests on one connection, no answer read."""
    base = rss_kb(engine.pids)
    with _connect(engine, 65536) as link:
        link.setblocking(False)
        data = request(False) * 1500
        sent, end = 0, time.monotonic() + seconds
        while sent < len(data) and time.monotonic() < end:
            try:
                sent += link.send(data[sent : sent + 65536])
            except BlockingIOError:
                time.sleep(0.01)
            except OSError:
                break
        grown = _growth(engine, seconds, base)
    return {"rss_growth_mb": grown, "sent": sent * 1500 // len(data)}


@contextmanager
def _uploads(engine: Engine) -> Iterator[list[float]]:
    """Upload 20 MB without a session header, again and again; when each began is what is yielded."""
    data, stop, began = request(False, 20_000_000), threading.Event(), list[float]()

    def upload() -> None:
        while not stop.is_set():
            began.append(time.monotonic())
            with _connect(engine) as link:
                link.sendall(data)
                link.recv(65536)
            stop.wait(0.2)

    thread = threading.Thread(target=upload)
    thread.start()
    try:
        yield began
    finally:
        stop.set()
        thread.join()


def big_body(engine: Engine, seconds: float) -> Figures:
    """20 MB uploads without a session header, beside one client with small requests: what that one waits."""
    calm = run_load(engine.port, {"seconds": seconds}, engine.pids)
    with _uploads(engine) as uploads:
        busy = run_load(engine.port, {"seconds": seconds}, engine.pids)
    return {
        "calm_max_ms": calm["latency_us"]["max"] / 1e3,
        "busy_max_ms": busy["latency_us"]["max"] / 1e3,
        "busy_p99_ms": busy["latency_us"]["p99"] / 1e3,
        "uploads": len(uploads),
        "errors": busy["errors"],
    }


def reactor_gap(options: argparse.Namespace) -> int:
    """How long our reactor is kept from everything else, idle and with 20 MB uploads; every round afresh."""
    noted, rows = OUT / "gaps", []
    for turn in range(options.rounds):
        with children(OUT / "logs") as family:
            watched = [sys.executable, "-m", "bench.gaps", str(noted)]
            engine = ours(watched)(family, "us-watched", start_stub(family, ports=1), OUT)
            calm = time.monotonic()
            time.sleep(options.seconds)
            busy = time.monotonic()
            with _uploads(engine) as uploads:
                time.sleep(options.seconds)
            ended = time.monotonic()
            for what, began, until in (("calm", calm, busy), ("uploads", busy, ended)):
                gaps = sorted(between(noted, began, until), reverse=True) or [0.0]
                count = len(uploads) if what == "uploads" else 0
                longest = ", ".join(f"{gap * 1e3:.1f}" for gap in gaps[:5])
                rows.append([str(turn + 1), what, str(count), str(len(gaps)), longest])
    print(render(["round", "", "uploads", "gaps > 1 ms", "longest ms"], rows), end="\n\n")
    keep(options.command, {"rounds": options.rounds, "rows": rows}, options.json)
    return 0


MEASURES: dict[str, Callable[[Engine, float], Figures]] = {
    "slow-reader": slow_reader,
    "connects": connects,
    "aborts": aborts,
    "pipelined": pipelined,
    "big-body": big_body,
}
KINDS = {name: (measure.__doc__ or name).splitlines()[0] for name, measure in MEASURES.items()}


def pressure(options: argparse.Namespace) -> int:
    """One kind of pressure on each engine in turn; every round on a fresh process."""
    measure = MEASURES[options.command]
    chosen = starters(options.engines.split(","), options.variant)
    raw: dict[str, list[Figures]] = {}
    for _ in range(options.rounds):
        for name, start in chosen.items():
            with children(OUT / "logs") as family:
                replicas = start_stub(family, ports=1, reply=BIG_REPLY if measure is slow_reader else 1024)
                try:
                    engine = start(family, name, replicas, OUT)
                except Unavailable as problem:
                    print(f"without {name}: {problem}")
                    continue
                raw.setdefault(name, []).append(measure(engine, options.seconds))
    names = list(dict.fromkeys(key for results in raw.values() for key in results[0]))
    rows = [
        [name, *(f"{max(result.get(key, 0.0) for result in results):.1f}" for key in names)]
        for name, results in raw.items()
    ]
    print(f"{KINDS[options.command]} Largest of {options.rounds} rounds.")
    print(render(["engine", *names], rows), end="\n\n")
    keep(options.command, {"rounds": options.rounds, "raw": raw}, options.json)
    return 0
