"""Cache events of a simulated replica, over real sockets."""

from __future__ import annotations

import json

import msgpack
import treq
import zmq
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.trial.unittest import SynchronousTestCase, TestCase
from twisted.web.client import HTTPConnectionPool

from tests.programs import Watched, start
from twisted_router.sim.engine import Engine, Limits, Work
from twisted_router.sim.publishing import Publisher
from twisted_router.zeromq import ReactorSocket

END = b"\xff" * 8


class WatchingTests(SynchronousTestCase):
    """What the engine tells whoever watches its cache."""

    def setUp(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.engine = Engine(Limits(block_size=16, kv_tokens=64))
        self.engine.cache.watcher = self

    def stored(self, key: object, parent: object) -> None:
        self.told.append(("stored", key, parent))

    def removed(self, key: object) -> None:
        self.told.append(("removed", key))

    def run_one(self, *chain: str) -> None:
        self.engine.submit(Work(chain, 16 * len(chain) + 1, 1), 0.0)
        now: float | None = 0.0
        while now is not None:
            now = self.engine.step(now).wake

    def test_stored(self) -> None:
        """Each new block of a prompt, with the one before it."""
        self.run_one("a", "ab")
        self.assertEqual(self.told, [("stored", "a", None), ("stored", "ab", "a")])

    def test_known(self) -> None:
        """A block found in the cache is no news; what follows it names it."""
        self.run_one("a", "ab")
        self.told.clear()
        self.run_one("a", "ac")
        self.assertEqual(self.told, [("stored", "ac", "a")])

    def test_removed(self) -> None:
        """A block that makes room, before those it makes room for; the deepest goes first."""
        self.run_one("a", "ab", "abc")
        self.told.clear()
        self.run_one("x", "xy")
        self.assertEqual(
            self.told,
            [("removed", "abc"), ("removed", "ab"), ("stored", "x", None), ("stored", "xy", "x")],
        )

    def test_forgotten(self) -> None:
        """A cache that is emptied tells every block of it, the deepest first."""
        self.run_one("a", "ab")
        self.told.clear()
        self.engine.cache.forget()
        self.assertEqual(self.told, [("removed", "ab"), ("removed", "a")])


class SocketTestCase(TestCase):
    timeout = 60

    def setUp(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.context.setsockopt(zmq.LINGER, 0)
        self.addCleanup(self.context.destroy, linger=0)
        self.messages: list[list[bytes]] = []
        self.waiting: Deferred[None] | None = None

    def connect(self, kind: int, endpoint: str) -> ReactorSocket:
        socket = self.context.socket(kind)
        if kind == zmq.SUB:
            socket.setsockopt(zmq.SUBSCRIBE, b"")
        socket.connect(endpoint)
        connected = ReactorSocket(reactor, socket, self.heard)  # type: ignore[arg-type]
        self.addCleanup(connected.close)
        return connected

    def heard(self, frames: list[bytes]) -> None:
        self.messages.append(frames)
        if self.waiting is not None:
            self.waiting, waiting = None, self.waiting
            waiting.callback(None)

    def more(self) -> Deferred[None]:
        """Fires when another message has come in."""
        self.waiting = Deferred()
        return self.waiting


class PublisherTests(SocketTestCase):
    """The publisher by itself."""

    def publish(self, layout: str) -> Publisher:
        publisher = Publisher(reactor, "127.0.0.1", 0, 2, layout)  # type: ignore[arg-type]
        self.addCleanup(publisher.close)
        return publisher

    async def repeated(self, publisher: Publisher, start: int = 0) -> list[list[bytes]]:
        self.connect(zmq.DEALER, publisher.replay).send([b"", start.to_bytes(8, "big")])
        while not self.messages or self.messages[-1][1] != END:
            await self.more()
        return self.messages[:-1]

    def change(self, publisher: Publisher) -> None:
        publisher.removed(b"\0" * 7 + b"\7")
        publisher.stored(b"\0" * 7 + b"\1", b"\0" * 7 + b"\7")
        publisher.stored(b"\0" * 7 + b"\2", b"\0" * 7 + b"\1")
        publisher.flush()

    async def test_array(self) -> None:
        """Arrays: removals and stores in their order, blocks that follow each other in one event."""
        publisher = self.publish("array")
        self.change(publisher)
        ((empty, number, payload),) = await self.repeated(publisher)
        self.assertEqual((empty, number), (b"", bytes(8)))
        _, events, rank = msgpack.unpackb(payload)
        self.assertEqual(rank, 0)
        self.assertEqual(events[0], ["BlockRemoved", [7], "GPU"])
        self.assertEqual(events[1], ["BlockStored", [1, 2], 7, [1, 1, 2, 2], 2, None, "GPU", None])

    async def test_map(self) -> None:
        """Objects, with the same fields by name."""
        publisher = self.publish("map")
        self.change(publisher)
        ((_, _, payload),) = await self.repeated(publisher)
        batch = msgpack.unpackb(payload)
        self.assertEqual(set(batch), {"ts", "events", "data_parallel_rank"})
        self.assertEqual(batch["events"][0], {"type": "BlockRemoved", "block_hashes": [7], "medium": "GPU"})
        self.assertEqual(batch["events"][1]["parent_block_hash"], 7)

    async def test_from(self) -> None:
        """Only what was asked for is repeated."""
        publisher = self.publish("array")
        for _ in range(3):
            self.change(publisher)
        messages = await self.repeated(publisher, 2)
        self.assertEqual([int.from_bytes(number, "big") for _, number, _ in messages], [2])

    async def test_live(self) -> None:
        """Who has subscribed hears topic, number and payload."""
        publisher = self.publish("array")
        self.connect(zmq.SUB, publisher.events)
        # A subscription takes effect some time after connecting.
        publishing = LoopingCall(self.change, publisher)
        ended = publishing.start(0.01)
        await self.more()
        publishing.stop()
        await ended
        topic, number, payload = self.messages[0]
        self.assertEqual((topic, len(number)), (b"kv", 8))
        self.assertEqual(len(msgpack.unpackb(payload)[1]), 2)

    async def test_nothing_new(self) -> None:
        """A step that changes nothing is no message."""
        publisher = self.publish("array")
        self.change(publisher)
        publisher.flush()
        self.assertEqual(len(await self.repeated(publisher)), 1)

    def test_taken(self) -> None:
        """A port that is taken is an OSError, and nothing stays open."""
        port = int(self.publish("array").events.rpartition(":")[2])
        self.assertRaises(OSError, Publisher, reactor, "127.0.0.1", port, 2, "array")


class ProcessTests(SocketTestCase):
    """The program."""

    def start(self, *flags: str) -> Watched:
        return start(self, "-m", "twisted_router.sim", "--port", "0", *flags)

    async def test_serves(self) -> None:
        """What a served prompt puts into the cache is published; SIGTERM ends the process orderly."""
        watched = self.start("--kv-events", "0", "--time-scale", "50", "--block-size", "4")
        await watched.wrote(b"ready on")
        replay = watched.out.split(b"repeated on ")[1].split()[0].decode()
        url = watched.out.split(b"ready on ")[1].split(b" ")[0].decode()
        pool = HTTPConnectionPool(reactor, persistent=False)
        body = json.dumps({"prompt": "x" * 160, "max_tokens": 1}).encode()
        response = await treq.post(url + "/v1/completions", data=body, pool=pool)
        usage = (await response.json())["usage"]
        self.connect(zmq.DEALER, replay).send([b"", bytes(8)])
        while not self.messages or self.messages[-1][1] != END:
            await self.more()
        (event,) = msgpack.unpackb(self.messages[0][2])[1]
        self.assertEqual((event[0], len(event[3]), usage["prompt_tokens"]), ("BlockStored", 40, 40))
        watched.signal("TERM")
        self.assertEqual(await watched.ended, 0)

    async def test_refused(self) -> None:
        """A port that leaves none for the repetitions, and a layout that is none, are refused."""
        for flag, value, told in (
            ("--kv-events", "65535", b"expected at most 65534"),
            ("--kv-events-layout", "xml", b"expected array or map, got 'xml'"),
        ):
            watched = self.start(flag, value)
            self.assertEqual(await watched.ended, 2)
            self.assertIn(told, watched.err)

    async def test_taken(self) -> None:
        """A taken port is one line and exit code 69."""
        socket = self.context.socket(zmq.PUB)
        self.addCleanup(socket.close)
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        watched = self.start("--kv-events", str(port))
        self.assertEqual(await watched.ended, 69)
        self.assertEqual(watched.err.count(b"\n"), 1)
        self.assertIn(b"--kv-events", watched.err)
