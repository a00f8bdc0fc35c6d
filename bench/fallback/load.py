"""A load generator in Python; see ``native/load.c`` for what it measures."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from collections import Counter

from bench.fallback.events import DONE, EVENT_BYTES, sent_at
from bench.processes import cpu_us, rss_kb

_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:\s*chunked", re.IGNORECASE)
KINDS = ("connect", "status", "cut", "length", "content", "unfinished")
MAX_ERRORS = 1000


class Wrong(Exception):
    """An answer is not what the stub sends; named by one of ``KINDS``."""


class Load:
    """One run; the counters are those of the JSON it prints."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.errors: Counter[str] = Counter()
        self.latency: list[int] = []
        self.ttfb: list[int] = []
        self.delay: list[int] = []
        self.requests = self.chunks = self.started = self.busy = self.firsts = self.reconnects = 0
        self.stopping = False
        self.body = self._body()

    def _body(self) -> bytes:
        options = self.options
        asked = {"model": "bench", "stream": bool(options.stream), "max_tokens": options.chunks}
        message = {"role": "user", "content": ""}
        text = json.dumps({**asked, "seed": options.rate, "messages": [message]}, separators=(",", ":"))
        return text.replace('""', '"' + "y" * max(0, options.body - len(text)) + '"').encode()

    def _head(self) -> bytes:
        session = self.started % self.options.sessions if self.options.sessions else None
        line = f"X-Session-Id: bench-{session:07d}\r\n" if session is not None else ""
        return (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{self.options.port}\r\n"
            "User-Agent: bench/1\r\nAccept: application/json\r\n"
            "Content-Type: application/json\r\nAuthorization: Bearer bench\r\n"
            f"X-Stainless-Lang: python\r\n{line}Content-Length: {len(self.body)}\r\n\r\n"
        ).encode()

    def over(self) -> bool:
        """Whether no further request may start."""
        limit = self.options.requests
        return self.stopping or bool(limit and self.started >= limit)

    async def client(self) -> None:
        """One connection, reopened after an error, until the run is over."""
        while not self.over():
            begun, kind = time.monotonic_ns(), "connect"
            self.busy += 1
            head, writer = self._head(), None
            self.started += 1
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.options.port)
                while True:
                    kind = "cut"
                    writer.write(head + self.body)
                    await writer.drain()
                    await self._answer(reader, begun)
                    self.busy -= 1
                    if self.over():
                        break
                    begun, head = time.monotonic_ns(), self._head()
                    self.started += 1
                    self.busy += 1
            except (OSError, EOFError, Wrong) as error:
                self.busy -= 1
                self.reconnects += 1
                self.errors[str(error) if isinstance(error, Wrong) else kind] += 1
                self.stopping = self.stopping or self.errors.total() > MAX_ERRORS
            finally:
                if writer is not None:
                    writer.close()

    async def _answer(self, reader: asyncio.StreamReader, begun: int) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise Wrong("status")
        answer = Answer(self, begun)
        if length := _LENGTH.search(head):
            left = int(length[1])
            while left:
                data = await reader.read(min(left, 1 << 18))
                if not data:
                    raise EOFError
                answer.take(data)
                left -= len(data)
        elif _CHUNKED.search(head):
            while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
                answer.take((await reader.readexactly(size + 2))[:-2])
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass
        else:
            raise Wrong("length")
        answer.end()

    async def run(self) -> dict[str, object]:
        """Warm up, measure one window, drain."""
        options, begin = self.options, time.monotonic()
        clients = [asyncio.create_task(self.client()) for _ in range(options.connections)]
        ready = begin
        while time.monotonic() - begin < options.warmup + 20 and not self._finished():
            if not self._is_warm():
                ready = time.monotonic()
            elif time.monotonic() - ready >= options.warmup:
                break
            await asyncio.sleep(0.002)
        if not self._is_warm() and not self._finished():
            self.errors["unfinished"] += options.connections - self.firsts
        if options.warmup > 0 and not options.stream:
            self.latency.clear()
            self.ttfb.clear()
        self.delay.clear()
        opened = time.monotonic() if options.warmup > 0 else begin
        requests, chunks = (self.requests, self.chunks) if options.warmup > 0 else (0, 0)
        cost = cpu_us(options.watch)
        while time.monotonic() - opened < options.seconds and not self._finished():
            await asyncio.sleep(0.002)
        result = {
            "requests": self.requests - requests,
            "chunks": self.chunks - chunks,
            "seconds": time.monotonic() - opened,
            "cpu_us": cpu_us(options.watch) - cost,
            "rss_kb": rss_kb(options.watch),
        }
        self.stopping = True
        if options.drain:
            _, late = await asyncio.wait(clients, timeout=options.drain)
            self.errors["unfinished"] += len(late)
        for client in clients:
            client.cancel()
        return {**result, **self._outcome()}

    def _is_warm(self) -> bool:
        return not self.options.stream or self.firsts >= self.options.connections

    def _finished(self) -> bool:
        return self.over() and (self.stopping or not self.busy)

    def _outcome(self) -> dict[str, object]:
        return {
            "latency_us": series(self.latency),
            "ttfb_us": series(self.ttfb),
            "delay_us": series(self.delay),
            "complete": self.requests,
            "reconnects": self.reconnects,
            "errors": self.errors.total(),
            "error_kinds": {kind: self.errors[kind] for kind in KINDS},
        }


class Answer:
    """Checks one answer's body as it comes."""

    def __init__(self, load: Load, begun: int) -> None:
        self._load = load
        self._begun = begun
        self._held = b""
        self._bytes = self._events = 0
        self._last = b""

    def take(self, data: bytes) -> None:
        """Some body bytes, framing removed; :raises Wrong: they are not the stub's."""
        load = self._load
        if not self._bytes:
            load.firsts += 1
            load.ttfb.append((time.monotonic_ns() - self._begun) // 1000)
            if not load.options.stream and data[:1] != b"{":
                raise Wrong("content")
        self._bytes += len(data)
        self._last = data[-1:]
        if not load.options.stream:
            return
        self._held += data
        while len(self._held) >= EVENT_BYTES and self._events < load.options.chunks:
            sent = sent_at(self._held[:EVENT_BYTES], self._events)
            if sent is None:
                raise Wrong("content")
            self._held = self._held[EVENT_BYTES:]
            self._events += 1
            load.chunks += 1
            load.delay.append((time.monotonic_ns() - sent) // 1000)

    def end(self) -> None:
        """The body is over; :raises Wrong: too early or too late."""
        load = self._load
        events = load.options.chunks * EVENT_BYTES + len(DONE)
        if self._bytes != (events if load.options.stream else load.options.reply):
            raise Wrong("length")
        if not load.options.stream and self._last != b"}":
            raise Wrong("content")
        load.requests += 1
        load.latency.append((time.monotonic_ns() - self._begun) // 1000)


def series(values: list[int]) -> dict[str, int] | None:
    """Median, 99th percentile and largest of *values*."""
    if not values:
        return None
    values.sort()
    return {"p50": values[len(values) // 2], "p99": values[len(values) * 99 // 100], "max": values[-1]}


def options(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line of ``load.c``."""
    parser = argparse.ArgumentParser()
    whole = {"port": 0, "connections": 1, "requests": 0, "body": 400, "sessions": 256, "stream": 0}
    for name, default in {**whole, "chunks": 200, "rate": 0, "reply": 1024}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, seconds in {"seconds": 2.0, "warmup": 0.3, "drain": 0.0}.items():
        parser.add_argument(f"--{name}", type=float, default=seconds)
    parser.add_argument("--watch", type=lambda text: [int(pid) for pid in text.split(",")], default=[])
    return parser.parse_args(argv)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(Load(options()).run())))
