"""Rude clients and broken replicas, on real sockets."""

from __future__ import annotations

import os

from twisted.internet import reactor
from twisted.internet.task import deferLater

from tests.edges.rig import OK, STREAM, EdgeTestCase, Peer, answer_each, post


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


class Pipelining(EdgeTestCase):
    async def test_unread(self) -> None:
        """A client that sends requests ahead and reads nothing makes replicas work for what it can take."""
        body = b"x" * 4096
        self.begin(answer_each(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)))
        client = await self.connect()
        client.transport.pauseProducing()
        client.transport.write(post() * 1500)
        await self.settled()
        worked = self.replica.requests
        self.assertLess(worked, 300)
        client.transport.resumeProducing()
        await client.hears(b"HTTP/1.1 200", 1500)
        self.assertEqual(self.replica.requests, 1500)
        self.assertIsNone(client.over)

    async def settled(self) -> None:
        """Wait until the replica has had no request for some turns."""
        before = -1
        while before != self.replica.requests:
            before = self.replica.requests
            await deferLater(reactor, 0.1)

    async def test_own_pages(self) -> None:
        """The same holds for pages of the router's own, which are answered on the spot."""
        self.begin()
        client = await self.connect()
        client.transport.pauseProducing()
        client.transport.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 1500)
        channel = None
        while channel is None or not channel.paused:
            await deferLater(reactor, 0.01)
            channel = next(iter(reactor.getReaders() and self.channels()), None)
        self.assertLess(len(channel.transport.dataBuffer) + channel.transport._tempDataLen, 1 << 18)
        client.transport.resumeProducing()
        await client.hears(b"HTTP/1.1 200", 1500)

    def channels(self) -> list[object]:
        """The router's connections with clients."""
        return [
            reader.protocol
            for reader in (*reactor.getReaders(), *reactor.getWriters())
            if getattr(getattr(reader, "protocol", None), "site", None) is self.site
        ]


class Aborts(EdgeTestCase):
    async def test_hundreds(self) -> None:
        """Streams whose clients leave are dropped at the replica, and no descriptor is left behind."""
        self.begin(answer_each(STREAM + b"1\r\nx\r\n"))
        left: list[int] = []
        for _ in range(4):
            clients = [await self.connect(post()) for _ in range(50)]
            for client in clients:
                await client.hears(b"x")
                client.transport.abortConnection()
            for peer in (*clients, *self.replica.peers):
                await peer.ends()
            left.append(descriptors())
        self.assertEqual(len(self.replica.peers), 200)
        self.assertEqual(len(set(left)), 1, left)
        self.assertEqual((self.site.doors.inside, len(self.parts.traffic)), (0, 0))


class EarlyAnswers(EdgeTestCase):
    async def test_while_uploading(self) -> None:
        """A replica that answers before it has read the upload is heard; its connection is not used again."""

        def too_large(peer: Peer) -> None:
            peer.transport.pauseProducing()
            peer.transport.write(b"HTTP/1.1 413 Too Much\r\nContent-Length: 2\r\n\r\nno")

        self.begin(too_large)
        client = await self.connect(post(b"x" * (16 << 20)))
        await client.hears(b"no")
        self.assertTrue(client.heard.startswith(b"HTTP/1.1 413 "), client.heard)
        self.replica.told = answer_each()
        client.transport.write(post())
        await client.hears(b"HTTP/1.1 200 ")
        self.assertEqual(len(self.replica.peers), 2)

    async def test_and_close(self) -> None:
        """The same with a replica that closes at once."""

        def too_large(peer: Peer) -> None:
            peer.transport.write(b"HTTP/1.1 413 Too Much\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
            peer.transport.loseConnection()

        for size in (200_000, 1 << 20, 16 << 20):
            self.begin(too_large)
            client = await self.connect(post(b"x" * size))
            await client.hears(b"\r\n\r\n")
            self.assertTrue(client.heard.startswith(b"HTTP/1.1 413 "), client.heard)
            self.assertIsNone(client.over)
            await self.end()


class Surplus(EdgeTestCase):
    async def test_poisons_nothing(self) -> None:
        """Bytes behind an answer never become the next request's answer."""
        for surplus in (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", b"\r\n", b"x"):
            self.begin(answer_each(OK + surplus))
            client = await self.connect(post())
            await client.hears(b"ok")
            self.replica.told = answer_each()
            client.transport.write(post())
            await client.hears(b"HTTP/1.1 200", 2)
            self.assertNotIn(b"evil", client.heard)
            self.assertEqual(len(self.replica.peers), 2)
            await self.end()

    async def test_late(self) -> None:
        """Nor do bytes that come while the connection waits in the pool, with everything warm."""
        self.begin()
        client = await self.connect(post())
        await client.hears(b"ok")
        (pooled,) = self.replica.peers
        pooled.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        await pooled.ends()
        client.transport.write(post())
        await client.hears(b"ok", 2)
        self.assertNotIn(b"evil", client.heard)


class WarmPool(EdgeTestCase):
    async def test_all_closed(self) -> None:
        """When a replica closes all connections that wait, the next requests use new ones."""
        held: list[Peer] = []
        self.begin(held.append)
        clients = [await self.connect(post()) for _ in range(30)]
        for peer in self.replica.peers:
            await peer.hears(b"{}")
        for client in clients:
            self.assertEqual(client.heard, b"")
        for peer in held:
            peer.transport.write(OK)
        for client in clients:
            await client.hears(b"ok")
        self.replica.told = answer_each()
        for peer in held:
            peer.transport.loseConnection()
        for client in clients:
            client.transport.write(post())
        for client in clients:
            await client.hears(b"ok", 2)
            self.assertEqual(client.heard.count(b"HTTP/1.1 200"), 2, client.heard)

    async def test_reset_under_requests(self) -> None:
        """Requests that were under way when their replica's connections are reset are told, each once."""
        self.begin(lambda peer: None)
        clients = [await self.connect(post()) for _ in range(30)]
        while self.replica.requests < 30:
            await deferLater(reactor, 0.01)
        for peer in self.replica.peers:
            peer.transport.abortConnection()
        for client in clients:
            await client.hears(b"}\n")
            self.assertTrue(client.heard.startswith(b"HTTP/1.1 502 "), client.heard)
        self.assertEqual(self.replica.requests, 30)


class Interim(EdgeTestCase):
    async def test_skipped(self) -> None:
        """Interim answers of a replica, several and in pieces, are not taken for the answer."""
        self.begin(answer_each(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" + OK))
        client = await self.connect(post())
        await client.hears(b"ok")
        self.assertTrue(client.heard.startswith(b"HTTP/1.1 200 OK"), client.heard)
        self.assertNotIn(b"Link", client.heard)


class Doors(EdgeTestCase):
    async def test_real_descriptors(self) -> None:
        """A client whose descriptor is too high is told 503, and is served once others have left."""
        self.begin()
        self.site.doors.full = descriptors() + 8
        self.site.doors.shut = self.site.doors.full + 100
        clients = [await self.connect() for _ in range(20)]
        last = await self.connect()
        await last.ends()
        self.assertTrue(last.heard.startswith(b"HTTP/1.1 503 "), last.heard)
        for client in clients:
            client.transport.abortConnection()
            await client.ends()
        again = await self.connect(post())
        await again.hears(b"ok")
        self.assertTrue(again.heard.startswith(b"HTTP/1.1 200 "), again.heard)
