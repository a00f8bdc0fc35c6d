"""Following replicas' cache events, against a real publisher's sockets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgpack
import zmq
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.fuzz.profile import effort, spoilt
from twisted_router.core.kvevents import News, Removed, UnknownEvents
from twisted_router.core.policies.informed import Informed
from twisted_router.core.policies.vocabulary import Ask, Outcome, Reason, Trace
from twisted_router.core.policies.work import Work
from twisted_router.core.prefix import CHUNK, Prompt
from twisted_router.services import kvevents
from twisted_router.services.kvevents import END, KvEventsReader, Source, decode
from twisted_router.zeromq import ReactorSocket

PROMPT = Prompt(2 * CHUNK, (10, 20), 1)


def stored(*hashes: int, parent: int | None = None) -> list[object]:
    return ["BlockStored", list(hashes), parent, [0] * 128 * len(hashes), 128, None, "GPU", None]


def removed(*hashes: int) -> list[object]:
    return ["BlockRemoved", list(hashes), "GPU"]


def packed(*events: object) -> bytes:
    return bytes(msgpack.packb([1.5, list(events), 0]))  # type: ignore[arg-type]


class Place:
    """The replica ``a``, as a policy sees it."""

    instance = "a"
    outstanding = 0


class Publisher:
    """A publisher whose every message the test sends itself.

    :ivar asked: identity and first number of each request to repeat.
    """

    def __init__(self, changed: Callable[[], None], endpoint: str) -> None:
        self._changed = changed
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.setsockopt(zmq.LINGER, 0)
        self.subscribed = 0
        self.asked: list[tuple[bytes, int]] = []
        self.events, self._live = self._bind(zmq.XPUB, endpoint, self._heard)
        self.replay, self._replay = self._bind(zmq.ROUTER, "tcp://127.0.0.1:*", self._was_asked)

    def _bind(
        self, kind: int, endpoint: str, heard: Callable[[list[bytes]], None]
    ) -> tuple[str, ReactorSocket]:
        socket = self._context.socket(kind)
        socket.bind(endpoint)
        name = socket.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode()  # type: ignore[union-attr]
        return name, ReactorSocket(reactor, socket, heard)  # type: ignore[arg-type]

    def close(self) -> None:
        self._live.close()
        self._replay.close()
        self._context.destroy(linger=0)

    def _heard(self, frames: list[bytes]) -> None:
        self.subscribed += 1 if frames[0][:1] == b"\1" else -1
        self._changed()

    def _was_asked(self, frames: list[bytes]) -> None:
        self.asked.append((frames[0], int.from_bytes(frames[2], "big")))
        self._changed()

    def publish(self, number: int, *events: object) -> None:
        self.send(b"kv", number.to_bytes(8, "big"), packed(*events))

    def send(self, *frames: bytes) -> None:
        self._live.send(frames)

    def repeat(self, number: int, *events: object) -> None:
        self._replay.send([self.asked[-1][0], b"", number.to_bytes(8, "big"), packed(*events)])

    def repeated(self) -> None:
        self._replay.send([self.asked[-1][0], b"", END, b""])


class ReaderTestCase(TestCase):
    timeout = 60

    async def begin(self, repeats: bool = True) -> None:
        """Start a reader over one publisher; go on once it has subscribed."""
        self.counted: Counter[News] = Counter()
        self.shown: list[bool] = []
        self._waiting: list[tuple[Callable[[], bool], Deferred[None]]] = []
        self.publisher = self.publish()
        self.policy = Work()
        self.informed = Informed(self.policy)
        source = Source("a", self.publisher.events, self.publisher.replay if repeats else None)
        self.now = 0.0
        self.reader = KvEventsReader(
            {"node0": source},
            self.informed,
            reactor,  # type: ignore[arg-type]
            lambda: self.now,
            self.count,
            self.show,
        )
        self.reader.startService()
        self.addCleanup(self.reader.stopService)
        await self.until(lambda: self.publisher.subscribed == 1 and self.shown[-1])

    def publish(self, endpoint: str = "tcp://127.0.0.1:*") -> Publisher:
        publisher = Publisher(self.changed, endpoint)
        self.addCleanup(publisher.close)
        return publisher

    def count(self, name: str, news: News, amount: int) -> None:
        self.assertEqual(name, "node0")
        self.counted[news] += amount
        self.changed()

    def show(self, name: str, is_followed: bool) -> None:
        self.shown.append(is_followed)
        self.changed()

    def changed(self) -> None:
        for waiting in tuple(self._waiting):
            if waiting[0]():
                self._waiting.remove(waiting)
                waiting[1].callback(None)

    def until(self, is_so: Callable[[], bool]) -> Deferred[None]:
        """Fires once something is so; looked at whenever anything was counted, shown, asked."""
        waiting: Deferred[None] = Deferred()
        self._waiting.append((is_so, waiting))
        self.changed()
        return waiting

    def counts(self, news: News, amount: int) -> Deferred[None]:
        return self.until(lambda: self.counted[news] >= amount)

    def send(self) -> Trace:
        """The policy sends a request of two chunks, eight blocks, to the replica."""
        ask = Ask(None, None, self.now, PROMPT)
        self.informed.choose(ask, (Place(),))
        return self.informed.observe(ask, Place(), Reason.COLD_PREFIX)

    def serve(self, trace: Trace) -> None:
        trace.first_byte(self.now)
        trace.ended(self.now, Outcome(True, 1024, 0, 1))

    def warm(self) -> int:
        return self.policy.index.look(PROMPT.chain).on(self.policy.seat("a").bit)


class FollowingTests(ReaderTestCase):
    """A publisher that does nothing odd."""

    async def test_evicted(self) -> None:
        """What the replica stores and drops reaches the policy's fingerprints."""
        await self.begin()
        trace = self.send()
        self.publisher.publish(0, stored(1, 2, 3, 4, 5, 6, 7, 8))
        await self.counts(News.STORED, 8)
        self.serve(trace)
        self.assertEqual(self.warm(), 2)
        self.publisher.publish(1, removed(8))
        await self.counts(News.FORGOTTEN, 1)
        self.assertEqual((self.warm(), self.counted[News.REMOVED]), (1, 1))

    async def test_matched_late(self) -> None:
        """What is stored after the answer is matched when it comes."""
        await self.begin()
        self.serve(self.send())
        self.publisher.publish(0, stored(1, 2, 3, 4, 5, 6, 7, 8))
        await self.counts(News.MATCHED, 1)
        self.assertEqual(self.warm(), 2)

    async def test_objects(self) -> None:
        """The other layout is understood as well."""
        await self.begin()
        self.send()
        batch = msgpack.packb({"ts": 1.5, "events": [{"type": "AllBlocksCleared"}]})
        self.publisher.send(b"", bytes(8), bytes(batch))  # type: ignore[arg-type]
        await self.counts(News.CLEARED, 1)
        self.assertEqual(self.warm(), 0)

    async def test_restarted(self) -> None:
        """A publisher that counts from the beginning is another process, with nothing cached."""
        await self.begin()
        self.publisher.publish(0, stored(1))
        self.publisher.publish(1, stored(2))
        await self.counts(News.STORED, 2)
        self.send()
        self.publisher.publish(0, stored(3))
        await self.counts(News.STORED, 3)
        self.assertEqual((self.counted[News.RESTARTED], self.warm()), (1, 0))


class RepeatingTests(ReaderTestCase):
    """Messages that were lost."""

    async def test_repeated(self) -> None:
        """What is missing is asked for, and applied before what came after it."""
        await self.begin()
        trace = self.send()
        self.publisher.publish(0, stored(1, 2, 3))
        self.publisher.publish(2, stored(7, 8, parent=6))
        await self.until(lambda: bool(self.publisher.asked))
        self.assertEqual(self.publisher.asked[0][1], 1)
        self.publisher.repeat(1, stored(4, 5, 6, parent=3))
        self.publisher.repeat(2, stored(7, 8, parent=6))
        self.publisher.repeated()
        await self.counts(News.STORED, 8)
        self.serve(trace)
        self.informed.told("a", (Removed((8,)),), 1.0)
        self.assertEqual((self.warm(), self.counted[News.MISSED]), (1, 0))

    async def test_silence(self) -> None:
        """Who does not repeat in time is not waited for."""
        self.patch(kvevents, "REPLAY_TIMEOUT", 0.05)
        await self.begin()
        self.publisher.publish(3, stored(1))
        await self.counts(News.STORED, 1)
        self.assertEqual((self.counted[News.REPLAY], self.counted[News.MISSED]), (1, 3))

    async def test_not_offered(self) -> None:
        """Where there is nobody to ask, what is missing is lost."""
        await self.begin(repeats=False)
        self.publisher.publish(3, stored(1))
        await self.counts(News.STORED, 1)
        self.assertEqual((self.publisher.asked, self.counted[News.MISSED]), ([], 3))

    async def test_restarted_meanwhile(self) -> None:
        """A restart ends the wait for what the old process should repeat."""
        await self.begin()
        self.publisher.publish(0, stored(1))
        self.publisher.publish(5, stored(2))
        await self.until(lambda: bool(self.publisher.asked))
        self.publisher.publish(0, stored(3))
        await self.counts(News.RESTARTED, 1)
        self.publisher.publish(1, stored(4))
        await self.counts(News.STORED, 3)

    async def test_broken_answer(self) -> None:
        """An answer that is none ends the wait, and the trust."""
        await self.begin()
        self.publisher.publish(3, stored(1))
        await self.until(lambda: bool(self.publisher.asked))
        self.publisher._replay.send([self.publisher.asked[0][0], b"", b"short"])
        await self.counts(News.UNTRUSTED, 1)
        self.assertEqual(self.counted[News.STORED], 0)


class TrustTests(ReaderTestCase):
    """Messages that are not understood."""

    async def test_untrusted(self) -> None:
        """An unknown event ends the trust: told once, and nothing changes from then on."""
        await self.begin()
        self.send()
        with capturedLogs() as logged:
            for number in range(3):
                self.publisher.publish(number, ["BlockMoved", [1]])
            self.publisher.send(b"kv", b"odd")
            self.publisher.publish(3, ["AllBlocksCleared"])
            self.publisher.publish(0, stored(1))
            await self.counts(News.STORED, 1)
        told = [event for event in logged if "not understood" in str(event.get("log_format"))]
        self.assertEqual(
            [(event["name"], event["why"]) for event in told], [("node0", "no event is called 'BlockMoved'")]
        )
        self.assertEqual((self.counted[News.UNTRUSTED], self.counted[News.CLEARED]), (1, 0))
        # The last message was a new process's, which is believed again.
        self.assertEqual(self.shown, [False, True, False, True])

    async def test_frames(self) -> None:
        """So do frames that are no message, and bytes that are no MessagePack."""
        for frames, told in (
            ((b"kv",), "got 1 frames"),
            ((b"kv", b"1234567", b""), "got 3 frames"),
            ((b"kv", bytes(8), b"\xc1"), "not MessagePack"),
        ):
            await self.begin()
            with capturedLogs() as logged:
                self.publisher.send(*frames)
                await self.counts(News.UNTRUSTED, 1)
            self.assertIn(told, "".join(str(event.get("why")) for event in logged))
            await self.reader.stopService()


class SizeTests(ReaderTestCase):
    """Messages that would keep the router from everything else."""

    async def test_too_large(self) -> None:
        """A message that takes too long to read is not read, and what comes after it is not believed."""
        self.patch(kvevents, "READ_MOST", 1000)
        await self.begin()
        self.publisher.publish(0, removed(*range(900)))
        await self.counts(News.UNTRUSTED, 1)
        await self.until(lambda: not self.shown[-1])
        self.assertEqual(self.counted[News.REMOVED], 0)


class ConnectionTests(ReaderTestCase):
    """Publishers that go and come."""

    async def test_reconnects(self) -> None:
        """A connection that is cut is shown, what was known is dropped, and it is made again."""
        self.patch(kvevents, "RECONNECT", 20)
        await self.begin()
        self.serve(self.send())
        self.publisher.publish(0, stored(1, 2, 3, 4, 5, 6, 7, 8))
        await self.counts(News.MATCHED, 1)
        endpoint = self.publisher.events
        self.publisher.close()
        await self.until(lambda: not self.shown[-1])
        self.informed.told("a", (Removed((8,)),), 1.0)
        self.assertEqual(self.warm(), 2)
        self.publisher = self.publish(endpoint)
        await self.until(lambda: self.publisher.subscribed == 1 and self.shown[-1])
        self.publisher.publish(0, stored(1))
        await self.counts(News.RESTARTED, 1)
        self.assertEqual(self.warm(), 0)

    async def test_nobody_there(self) -> None:
        """A replica that does not publish is waited for, and the rest goes on."""
        await self.begin()
        source, shown = Source("b", "tcp://127.0.0.1:1"), list[bool]()
        other = KvEventsReader(
            {"node1": source},
            self.informed,
            reactor,  # type: ignore[arg-type]
            lambda: 0.0,
            self.count,
            lambda name, is_followed: shown.append(is_followed),
        )
        other.startService()
        self.publisher.publish(0, stored(1))
        await self.counts(News.STORED, 1)
        await other.stopService()
        self.assertEqual(shown, [False])

    async def test_stops(self) -> None:
        """Once stopped nothing is heard, nothing is left on the reactor, and it can start again."""
        await self.begin()
        self.publisher.publish(2, stored(1))
        await self.until(lambda: bool(self.publisher.asked))
        await self.reader.stopService()
        ours = {self.publisher._live, self.publisher._replay}
        left = [reader for reader in reactor.getReaders() if isinstance(reader, ReactorSocket)]
        self.assertEqual(set(left), ours)
        await self.until(lambda: self.publisher.subscribed == 0)
        self.reader.startService()
        await self.until(lambda: self.publisher.subscribed == 1)
        self.publisher.publish(0, stored(1))
        await self.counts(News.STORED, 1)


class DecodeTests(SynchronousTestCase):
    @effort(500)
    @given(
        st.binary(max_size=60)
        | spoilt(
            st.builds(
                packed,
                st.lists(
                    st.integers(0, 2**64 - 1) | st.text(max_size=3) | st.none() | st.binary(max_size=3),
                    max_size=4,
                ).map(lambda given: ["BlockRemoved", given])
                | st.integers(0, 9).map(stored),
            )
        )
    )
    def test_anything(self, payload: bytes) -> None:
        """Whatever the bytes, they are events or raise the one error there is for that."""
        try:
            events = decode(payload)
        except UnknownEvents as problem:
            self.assertLess(len(str(problem)), 100)
            return
        self.assertIsInstance(events, tuple)

    def test_nested(self) -> None:
        """Nesting without end is an error like any other."""
        self.assertRaises(UnknownEvents, decode, b"\x91" * 100_000)
        self.assertRaises(UnknownEvents, decode, b"\x81\x90\x90")
