"""Publishes what a simulated cache does over ZeroMQ, as vLLM does. Imported only for ``--kv-events``."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Hashable, Iterator
from typing import Any, cast

import msgpack
import zmq
from attrs import define

from twisted_router.zeromq import IReactor, ReactorSocket

#: Messages that can be repeated, and those that may wait for a slow subscriber; vLLM's own figures.
REPEATED, WAITING = 10_000, 100_000

#: The number that ends a repetition.
END = b"\xff" * 8

_FIELDS = {
    "BlockStored": (
        "block_hashes",
        "parent_block_hash",
        "token_ids",
        "block_size",
        "lora_id",
        "medium",
        "lora_name",
    ),
    "BlockRemoved": ("block_hashes", "medium"),
}


@define
class _Stored:
    parent: int | None
    hashes: list[int]


@define
class _Removed:
    hashes: list[int]


class Publisher:
    """One PUB and one ROUTER socket; a batch for each step of the engine that changes the cache.

    :param port: of the PUB socket, with the ROUTER on the next one; 0 takes two free ones.
    :param layout: ``array`` or ``map``.
    :ivar events: the PUB socket's endpoint.
    :ivar replay: the ROUTER socket's.
    :raises OSError: a port is taken.
    """

    def __init__(self, reactor: IReactor, host: str, port: int, block_size: int, layout: str) -> None:
        self._block_size = block_size
        self._is_map = layout == "map"
        self._pending: list[_Stored | _Removed] = []
        self._sent: deque[tuple[bytes, bytes]] = deque(maxlen=REPEATED)
        self._count = 0
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        # Else the end of the process would wait for whoever does not read.
        self._context.setsockopt(zmq.LINGER, 0)
        live, self.events = self._bind(zmq.PUB, host, port, WAITING)
        replay, self.replay = self._bind(zmq.ROUTER, host, port + 1 if port else 0, 0)
        self._live = ReactorSocket(reactor, live, lambda frames: None)
        self._replay = ReactorSocket(reactor, replay, self._asked)

    def close(self) -> None:
        """Publish nothing more."""
        self._live.close()
        self._replay.close()
        self._context.destroy(linger=0)

    def stored(self, key: Hashable, parent: Hashable | None) -> None:
        """A block came into the cache."""
        before = None if parent is None else _name(parent)
        last = self._pending[-1] if self._pending else None
        if isinstance(last, _Stored) and last.hashes[-1] == before:
            last.hashes.append(_name(key))
        else:
            self._pending.append(_Stored(before, [_name(key)]))

    def removed(self, key: Hashable) -> None:
        """A block left the cache."""
        last = self._pending[-1] if self._pending else None
        if isinstance(last, _Removed):
            last.hashes.append(_name(key))
        else:
            self._pending.append(_Removed([_name(key)]))

    def flush(self) -> None:
        """Publish what has happened since the last call."""
        if not self._pending:
            return
        events, self._pending = [self._event(event) for event in self._pending], []
        batch: object = [time.time(), events, 0]
        if self._is_map:
            batch = {"ts": time.time(), "events": events, "data_parallel_rank": 0}
        message = (self._count.to_bytes(8, "big"), cast(bytes, msgpack.packb(batch)))
        self._count += 1
        self._sent.append(message)
        self._live.send([b"kv", *message])

    def _event(self, event: _Stored | _Removed) -> object:
        values: tuple[object, ...]
        if isinstance(event, _Stored):
            kind = "BlockStored"
            # There is no tokenizer here: the ids are made up, their number is right.
            ids = [name % 100_003 for name in event.hashes for _ in range(self._block_size)]
            values = (event.hashes, event.parent, ids, self._block_size, None, "GPU", None)
        else:
            kind = "BlockRemoved"
            values = (event.hashes, "GPU")
        if self._is_map:
            return {"type": kind, **dict(zip(_FIELDS[kind], values, strict=True))}
        return [kind, *values]

    def _asked(self, frames: list[bytes]) -> None:
        """Repeat everything from a number on."""
        if len(frames) != 3:
            return
        who, _, start = frames
        for message in self._from(int.from_bytes(start, "big")):
            self._replay.send([who, b"", *message])
        self._replay.send([who, b"", END, b""])

    def _from(self, start: int) -> Iterator[tuple[bytes, bytes]]:
        return (message for message in tuple(self._sent) if int.from_bytes(message[0], "big") >= start)

    def _bind(self, kind: int, host: str, port: int, waiting: int) -> tuple[zmq.Socket[bytes], str]:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.IPV6, ":" in host)
        socket.setsockopt(zmq.SNDHWM, waiting)
        try:
            socket.bind(f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}")
        except zmq.ZMQError as problem:
            self._context.destroy(linger=0)
            raise OSError(problem.errno, str(problem)) from None
        return socket, cast(Any, socket.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()


def _name(key: Hashable) -> int:
    """A block's hash as vLLM publishes it: a number of 64 bits."""
    return int.from_bytes(cast(bytes, key)[-8:], "big")
