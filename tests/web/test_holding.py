"""Requests that wait in the router for a replica."""

from __future__ import annotations

import json

from tests.web.scene import OK, Caller, Router, RouterTestCase, post
from twisted_router.core.effects import Ending, ProbeAnswered


class Cold(RouterTestCase):
    """Nothing is routable, and ``--queue-size`` lets requests wait."""

    def cool(self, size: int, **more: object) -> Router:
        router = self.make("a", queue_size=size, **more)
        self.probe(503)
        self.probe(503)
        return router

    def probe(self, status: int) -> None:
        """The replica answers a probe; whoever waits is told, as the keeper does."""
        self.router.apply(ProbeAnswered("a", status))
        self.router.holding.poke()

    def test_released(self) -> None:
        """Who waits goes on the moment a replica is ready, in the order of arrival."""
        router = self.cool(10)
        callers = [router.call(post(b"%d" % number)) for number in range(3)]
        self.assertEqual((len(router.holding), len(router.replicas["a"].lines)), (3, 0))
        self.probe(200)
        bodies = [line.value()[-1:] for line in router.replicas["a"].lines]
        self.assertEqual((len(router.holding), bodies), (0, [b"0", b"1", b"2"]))
        for number, caller in enumerate(callers):
            router.reply("a", OK, line=number)
            self.assertEqual(caller.answer().status, 200)
        self.assert_over(Ending.DONE, 200)

    def test_late(self) -> None:
        """After ``--queue-timeout`` it is a 503 with Retry-After, and the place is free."""
        router = self.cool(10)
        caller = router.call(post())
        router.clock.advance(29)
        self.assertEqual(caller.heard, b"")
        router.clock.advance(2)
        answer = caller.answer()
        self.assertEqual((answer.status, answer.field("Retry-After")), (503, "1"))
        self.assertEqual(json.loads(answer.body)["error"]["code"], "queue_timeout")
        self.assertEqual((len(router.holding), router.view().rejected), (0, 1))
        self.assert_over(Ending.REJECTED, 503)

    def test_full(self) -> None:
        """A full queue is a 429 with Retry-After."""
        router = self.cool(1)
        waiting = router.call(post())
        answer = router.call(post()).answer()
        self.assertEqual((answer.status, answer.field("Retry-After")), (429, "1"))
        self.assertEqual(json.loads(answer.body)["error"]["code"], "queue_full")
        self.assertEqual(router.view().rejected, 1)
        waiting.leave()
        self.assert_over(Ending.CLIENT_GONE)

    def test_client_gone(self) -> None:
        """A client that leaves frees its place."""
        router = self.cool(1)
        router.call(post()).leave()
        self.assertEqual(len(router.holding), 0)
        self.assert_over(Ending.CLIENT_GONE, 499)

    def test_no_queue(self) -> None:
        """Without a queue it is the manual's 503 at once."""
        router = self.cool(0)
        self.assertEqual(router.call(post()).answer().status, 503)

    def test_many(self) -> None:
        """Of 10,000 that wait half leave; the others are served, in order, when a replica is ready."""
        router = self.cool(10_000)
        callers = [router.call(post(b"%5d" % number)) for number in range(10_000)]
        for caller in callers[::2]:
            caller.leave()
        self.assertEqual(len(router.holding), 5_000)
        self.probe(200)
        bodies = [int(line.value()[-5:]) for line in router.replicas["a"].lines]
        self.assertEqual(bodies, list(range(1, 10_000, 2)))
        for number in range(len(bodies)):
            router.reply("a", OK, line=number)
        self.assertEqual({caller.answer().status for caller in callers[1::2]}, {200})
        self.assert_over(Ending.DONE, 200)


class AtTheLimit(RouterTestCase):
    """``--max-outstanding`` bounds what one replica is given."""

    def call(self) -> Caller:
        return self.router.call(post())

    def test_waits(self) -> None:
        """Who comes when every replica is at its limit waits until one has finished."""
        router = self.make("a", queue_size=5, max_outstanding=1)
        first, second = self.call(), self.call()
        self.assertEqual(len(router.holding), 1)
        router.reply("a", OK)
        self.assertEqual(len(router.holding), 0)
        router.reply("a", OK)
        self.assertEqual([first.answer().status, second.answer().status], [200, 200])
        self.assert_over(Ending.DONE, 200)

    def test_in_order(self) -> None:
        """Who comes later does not overtake who waits."""
        router = self.make("a", queue_size=5, max_outstanding=1)
        callers = [self.call() for _ in range(4)]
        for number, caller in enumerate(callers):
            router.reply("a", OK)
            self.assertEqual(caller.answer().status, 200)
            self.assertEqual(len(router.holding), max(0, 2 - number))
        self.assert_over(Ending.DONE, 200)

    def test_no_queue(self) -> None:
        """Without a queue it is a 429: the replicas are busy, not gone."""
        self.make("a", max_outstanding=1)
        first = self.call()
        self.assertEqual(self.call().answer().status, 429)
        self.router.reply("a", OK)
        self.assertEqual(first.answer().status, 200)
