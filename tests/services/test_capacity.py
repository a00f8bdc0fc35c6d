"""How the router learns what caches hold."""

from __future__ import annotations

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.core.effects import ProbeAnswered
from twisted_router.core.fleet import Fleet
from twisted_router.core.members import Member
from twisted_router.core.policies.gate import Gate
from twisted_router.core.policies.work import Work
from twisted_router.core.sessions import Pins
from twisted_router.services.capacity import INTERVAL, TIMEOUT, CapacityReader, read_capacity

TOLD = b'# TYPE x gauge\nvllm:cache_config_info{block_size="16",gpu_memory="0.9",num_gpu_blocks="1000"} 1.0\n'


class ReadCapacityTests(SynchronousTestCase):
    """What of an exposition counts."""

    def test_told(self) -> None:
        """Blocks times their size."""
        self.assertEqual(read_capacity(TOLD), 16_000)

    def test_not_told(self) -> None:
        """Other engines, half a statement, nothing, and a cache of nothing are no capacity."""
        for exposition in (
            b"",
            b"up 1\n",
            b'vllm:cache_config_info{block_size="16"} 1\n',
            b'vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1\n',
            b'vllm:cache_config_info{block_size="16",num_gpu_blocks="0"} 1\n',
            b'# vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1\n',
        ):
            self.assertIsNone(read_capacity(exposition), exposition)


class CapacityReaderTests(SynchronousTestCase):
    """Asked until told."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.gate = Gate(Work())
        self.fleet = Fleet(self.gate, Pins(600.0), veto=0)
        self.fleet.add_static("a", "http://a:1")
        self.asked: list[str] = []
        self.answer: Deferred[bytes] = succeed(TOLD)
        reader = CapacityReader(self.fleet, self.fetch, self.clock)
        self.addCleanup(reader.stopService)
        self.start = reader.startService

    def fetch(self, member: Member) -> Deferred[bytes]:
        self.asked.append(member.name)
        return self.answer

    def test_told(self) -> None:
        """What a replica tells reaches the gate, and it is not asked again."""
        self.start()
        self.clock.advance(INTERVAL)
        self.assertEqual((self.gate.capacity("a"), self.asked), (16_000, ["a"]))

    def test_again(self) -> None:
        """One that fails to tell is asked again."""
        self.answer = fail(OSError("gone"))
        self.start()
        self.answer = succeed(TOLD)
        self.clock.advance(INTERVAL)
        self.assertEqual((self.gate.capacity("a"), self.asked), (16_000, ["a", "a"]))

    def test_hanging(self) -> None:
        """One that hangs is given up, and asked again only then."""
        self.answer = Deferred()
        self.start()
        self.clock.advance(TIMEOUT + 1)
        self.answer = succeed(TOLD)
        self.clock.advance(INTERVAL)
        self.assertEqual(self.gate.capacity("a"), 16_000)

    def test_not_ready(self) -> None:
        """One that is out of rotation is left alone."""
        for _ in range(2):
            self.fleet.apply(ProbeAnswered("a", 503), 0.0)
        self.start()
        self.assertEqual(self.asked, [])
