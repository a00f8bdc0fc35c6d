"""Subscribes to replicas' cache events over ZeroMQ. Imported only where ``--kv-events`` asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import msgpack
import zmq
from attrs import frozen
from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from zmq.utils.monitor import parse_monitor_message

from ..core.kvevents import Cleared, KvEvent, News, Removed, Stored, UnknownEvents, read_batch
from ..core.kvsequence import Apply, Ask, Following, Missed, Restarted, Step
from ..core.policies.informed import Informed
from ..zeromq import IReactor, ReactorSocket

#: Seconds in which a publisher has to repeat what was asked for.
REPLAY_TIMEOUT = 5.0

#: Bytes one message may have; a step of the largest engine is some hundred kilobytes.
MESSAGE_MOST = 64 << 20

#: Bytes of one that are read: a quarter of a second in which nothing is relayed.
READ_MOST = 8 << 20

#: Milliseconds: between attempts to connect, at most, and between signs of life on a silent connection.
RECONNECT, RECONNECT_MOST, HEARTBEAT = 500, 10_000, 10_000

#: The number that ends a replay.
END = b"\xff" * 8

#: Counts ``amount`` of something that a replica told.
Count = Callable[[str, News, int], None]

#: Shows whether a replica's events are followed and believed.
Show = Callable[[str, bool], None]


def decode(payload: bytes) -> tuple[KvEvent, ...]:
    """Read the payload of one message.

    :raises UnknownEvents: it is not MessagePack, or not events.
    """
    try:
        value = msgpack.unpackb(payload, strict_map_key=False)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as problem:
        # The text of these exceptions may hold parts of the payload.
        raise UnknownEvents(f"not MessagePack ({type(problem).__name__})") from None
    return read_batch(value)


@frozen
class Source:
    """Where one replica publishes.

    :ivar instance: names the replica's life, as the fleet does.
    :ivar events: its PUB socket, as ``tcp://host:port``.
    :ivar replay: its ROUTER socket, or None where it repeats nothing.
    """

    instance: str
    events: str
    replay: str | None = None


class KvEventsReader(Service):
    """Follows every source from start to stop; ZeroMQ connects, and connects again, by itself."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        informed: Informed,
        reactor: IReactor,
        now: Callable[[], float],
        count: Count,
        show: Show,
    ) -> None:
        self._follow = [
            partial(
                _Subscription,
                name,
                source,
                informed,
                reactor,
                now,
                partial(count, name),
                partial(show, name),
            )
            for name, source in sources.items()
        ]
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._subscriptions: list[_Subscription] = []

    def startService(self) -> None:
        """Subscribe. Threads begin here, so not before the process has become a daemon."""
        super().startService()
        self._context = zmq.Context()
        # Else the end of the process would wait for whoever does not read.
        self._context.setsockopt(zmq.LINGER, 0)
        self._subscriptions = [follow(self._context) for follow in self._follow]

    def stopService(self) -> Deferred[None]:
        """Close every socket at once."""
        super().stopService()
        for subscription in self._subscriptions:
            subscription.close()
        self._subscriptions = []
        if self._context is not None:
            self._context.destroy(linger=0)
            self._context = None
        return succeed(None)


class _Subscription:
    """One replica: its live messages, whether it is connected, and what it repeats."""

    _log = Logger()

    def __init__(
        self,
        name: str,
        source: Source,
        informed: Informed,
        reactor: IReactor,
        now: Callable[[], float],
        count: Callable[[News, int], None],
        show: Callable[[bool], None],
        context: zmq.Context[zmq.Socket[bytes]],
    ) -> None:
        self._name = name
        self._source = source
        self._informed = informed
        self._reactor = reactor
        self._now = now
        self._count = count
        self._show = show
        self._context = context
        self._following = Following(source.replay is not None)
        self._trusted = True
        self._replay: ReactorSocket | None = None
        self._patience: IDelayedCall | None = None
        socket = context.socket(zmq.SUB)
        socket.setsockopt(zmq.SUBSCRIBE, b"")
        self._tune(socket)
        monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        self._monitor = ReactorSocket(reactor, monitor, self._noticed)
        informed.listen(source.instance)
        socket.connect(source.events)
        self._live = ReactorSocket(reactor, socket, self._heard)
        show(False)

    def close(self) -> None:
        """Hear nothing more."""
        self._stop_replay()
        self._monitor.close()
        self._live.close()

    def _tune(self, socket: zmq.Socket[bytes]) -> None:
        socket.setsockopt(zmq.IPV6, 1)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_MOST)
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MOST)
        socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT)

    # The connection

    def _noticed(self, frames: list[bytes]) -> None:
        """What was known is stale once a connection is cut; the first message tells what was missed."""
        if parse_monitor_message(frames)["event"] == zmq.EVENT_DISCONNECTED:
            self._log.info("cache events of replica {name} are cut off", name=self._name)
            self._informed.missed(self._source.instance)
            self._show(False)
        else:
            self._log.info("follows the cache events of replica {name}", name=self._name)
            self._show(self._trusted)

    # Messages

    def _heard(self, frames: list[bytes]) -> None:
        if len(frames) != 3 or len(frames[1]) != 8:
            self._distrust(f"expected topic, number and payload, got {len(frames)} frames")
            return
        if len(frames[2]) > READ_MOST:
            self._distrust(f"a message of {len(frames[2])} bytes")
            return
        self._do(self._following.heard(int.from_bytes(frames[1], "big"), frames[2], self._now()))

    def _do(self, steps: tuple[Step, ...]) -> None:
        instance = self._source.instance
        for step in steps:
            match step:
                case Apply(payload):
                    self._apply(payload)
                case Ask(start):
                    self._ask(start)
                case Missed(count):
                    self._informed.missed(instance)
                    self._count(News.MISSED, count)
                case Restarted():
                    self._log.info("replica {name} began anew; nothing is cached there", name=self._name)
                    self._stop_replay()
                    self._trusted = True
                    self._informed.listen(instance)
                    self._informed.emptied(instance)
                    self._count(News.RESTARTED, 1)
                    self._show(True)

    def _apply(self, payload: bytes) -> None:
        if not self._trusted:
            return
        try:
            events = decode(payload)
        except UnknownEvents as problem:
            self._distrust(str(problem))
            return
        forgotten, matched = self._informed.told(self._source.instance, events, self._now())
        for event in events:
            match event:
                case Stored():
                    self._count(News.STORED, len(event.hashes))
                case Removed():
                    self._count(News.REMOVED, len(event.hashes))
                case Cleared():
                    self._count(News.CLEARED, 1)
        self._count(News.MATCHED, matched)
        self._count(News.FORGOTTEN, forgotten)

    def _distrust(self, why: str) -> None:
        if not self._trusted:
            return
        self._trusted = False
        self._informed.distrust(self._source.instance)
        self._log.warn(
            "cache events of replica {name} are not understood and left aside until it begins anew: {why}",
            name=self._name,
            why=why,
        )
        self._count(News.UNTRUSTED, 1)
        self._show(False)

    # What is repeated

    def _ask(self, start: int) -> None:
        # A new socket each time: what an earlier one still gets is not mistaken for the answer.
        self._count(News.REPLAY, 1)
        replay = self._source.replay
        assert replay is not None, "Following asks only where it can"
        socket = self._context.socket(zmq.DEALER)
        self._tune(socket)
        socket.connect(replay)
        self._stop_replay()
        self._replay = ReactorSocket(self._reactor, socket, self._repeated)
        self._replay.send([b"", start.to_bytes(8, "big")])
        self._patience = self._reactor.callLater(REPLAY_TIMEOUT, self._unanswered)

    def _repeated(self, frames: list[bytes]) -> None:
        if len(frames) != 3 or len(frames[1]) != 8:
            self._distrust(f"expected number and payload in a replay, got {len(frames)} frames")
        elif frames[1] != END:
            self._do(self._following.replayed(int.from_bytes(frames[1], "big"), frames[2]))
            return
        self._replay_over()

    def _unanswered(self) -> None:
        self._patience = None
        self._log.info("replica {name} does not repeat its cache events", name=self._name)
        self._replay_over()

    def _replay_over(self) -> None:
        self._stop_replay()
        self._do(self._following.replay_over())

    def _stop_replay(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if self._replay is not None:
            self._replay.close()
            self._replay = None
