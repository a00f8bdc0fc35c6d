"""A replica in Python; see ``native/stub.c`` for what it answers."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time

from bench.fallback.events import DONE, event, reply

_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
#: How much late streams may catch up before others get their turn.
BURST = 16


class Stub:
    """Counts, and answers connections."""

    def __init__(self, reply_bytes: int) -> None:
        self._reply = reply(reply_bytes)
        self.requests = self.open = self.streams = self.aborted = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection until its peer leaves."""
        self.open += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                body = await reader.readexactly(int(length[1])) if length else b""
                self.requests += 1
                await self._answer(head, body, writer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _answer(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        status = b"200 OK"
        if head.startswith(b"POST /v1/"):
            asked = json.loads(body)
            if asked.get("stream"):
                count = int(asked.get("max_tokens", asked.get("max_completion_tokens", 16)))
                return await self._stream(writer, count, int(asked.get("seed", 0)))
            answer = self._reply
        elif head.startswith(b"GET /health"):
            answer = b'{"status":"ok"}'
        elif head.startswith(b"GET /v1/models"):
            answer = b'{"object":"list","data":[{"id":"bench","object":"model"}]}'
        elif head.startswith(b"GET /stats"):
            answer = json.dumps({**vars(self), "_reply": None}).encode()
        else:
            status, answer = b"404 Not Found", b'{"error":{"message":"not here"}}'
        line = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        writer.write(line % (status, len(answer)) + answer)
        await writer.drain()

    async def _stream(self, writer: asyncio.StreamWriter, count: int, rate: int) -> None:
        self.streams += 1
        complete = False
        try:
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            begin = time.monotonic()
            for index in range(count):
                if rate and (wait := begin + index / rate - time.monotonic()) > 0:
                    await asyncio.sleep(wait)
                elif index % BURST == 0:
                    await asyncio.sleep(0)
                text = event(index, time.monotonic_ns())
                writer.write(b"%x\r\n%b\r\n" % (len(text), text))
                await writer.drain()
            writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(DONE), DONE))
            await writer.drain()
            complete = True
        finally:
            self.streams -= 1
            self.aborted += not complete


async def run(options: argparse.Namespace) -> None:
    """Listen, say where, serve for ever."""
    stub = Stub(options.reply)
    servers = [
        await asyncio.start_server(
            stub.serve,
            "127.0.0.1",
            options.port + i if options.port else 0,
            backlog=4096,
            limit=1 << 26,
        )
        for i in range(options.ports)
    ]
    print(json.dumps({"ports": [server.sockets[0].getsockname()[1] for server in servers]}), flush=True)
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ports", type=int, default=1)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--reply", type=int, default=1024)
    asyncio.run(run(parser.parse_args()))
