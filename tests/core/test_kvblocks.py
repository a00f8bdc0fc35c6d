"""Whose blocks these are: told by what follows what, and by counting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.fuzz.profile import effort
from twisted_router.core import kvblocks
from twisted_router.core.kvblocks import PATIENCE, RETRY, Blocks, Sent
from twisted_router.core.kvevents import Removed, Stored
from twisted_router.core.prefix import CHUNK, Prompt

#: Tokens of a block, and of a chunk at four bytes a token.
BLOCK, TOKENS = 128, 512


def prompt(*chain: int) -> Prompt:
    return Prompt(len(chain) * CHUNK, chain)


class BlocksTestCase(SynchronousTestCase):
    """A prompt of one chunk is 512 tokens, four blocks."""

    def setUp(self) -> None:
        self.blocks = Blocks()

    def send(self, *chain: int, now: float = 0.0) -> Sent:
        return self.blocks.send(prompt(*chain), len(chain) * TOKENS, now)

    def store(self, first: int, count: int, parent: int | None = None, now: float = 1.0) -> None:
        self.blocks.store(Stored(tuple(range(first, first + count)), parent, BLOCK), now)

    def end(
        self,
        sent: Sent,
        tokens: int | None = None,
        answer: int | None = None,
        served: bool = True,
        now: float = 2.0,
    ) -> tuple[int, ...]:
        sent.end(now, served, tokens, answer)
        return self.blocks.end(sent)

    def lost(self, *names: int) -> set[int]:
        return self.blocks.remove(Removed(names))


class MatchingTests(BlocksTestCase):
    """A request finds its own run."""

    def test_alone(self) -> None:
        """One request, one run: each block lies in the chunk its tokens are in."""
        sent = self.send(10, 20, 30)
        self.store(1, 12)
        self.assertEqual(self.end(sent), (10, 20, 30))
        self.assertEqual([self.lost(name) for name in (12, 9, 5, 1)], [{30}, {30}, {20}, {10}])

    def test_in_steps(self) -> None:
        """A run grows by what follows its last block."""
        sent = self.send(10, 20)
        self.store(1, 3)
        self.store(4, 5, parent=3)
        self.assertEqual(self.end(sent), (10, 20))

    def test_counted(self) -> None:
        """Of two that came together each gets the run that ends where it ends, in exact tokens."""
        one, other = self.send(10, 20), self.send(30, 40)
        self.store(1, 8)
        self.store(101, 9)
        self.assertEqual(self.end(other, 1152, 1), (30, 40))
        self.assertEqual(self.end(one, 1024, 1), (10, 20))
        self.assertEqual((self.lost(8), self.lost(101)), ({20}, {30}))

    def test_answer_cached(self) -> None:
        """The blocks of the answer may follow; they are no part of the request's text."""
        sent = self.send(10, 20)
        self.store(1, 8)
        self.store(9, 4, parent=8)
        self.assertEqual(self.end(sent, 1024, 513), (10, 20))
        self.assertEqual((self.lost(12), self.lost(8)), (set(), {20}))

    def test_indistinct(self) -> None:
        """Two that could have one run get none of it."""
        one, _ = self.send(10, 20), self.send(30, 40)
        self.store(1, 8)
        self.assertEqual(self.end(one), ())
        self.assertEqual(self.lost(1), set())

    def test_two_runs(self) -> None:
        """One that could have either of two runs gets none."""
        sent = self.send(10, 20)
        self.store(1, 8)
        self.store(101, 8)
        self.assertEqual(self.end(sent, 1024, 1), ())

    def test_samples(self) -> None:
        """Samples of one prompt are no rivals: whose run it is makes no difference."""
        one, _ = self.send(10, 20), self.send(10, 20)
        self.store(1, 8)
        self.assertEqual(self.end(one), (10, 20))

    def test_next_turn(self) -> None:
        """A run that goes on from a text is only of a request that begins with that text."""
        self.store(1, 8)
        self.end(self.send(10, 20), 1024, 1)
        turn, stranger = self.send(10, 20, 30), self.send(40, 50, 60)
        self.store(9, 4, parent=8)
        self.assertEqual(self.end(stranger, 1536, 1), ())
        self.assertEqual(self.end(turn, 1536, 1), (10, 20, 30))
        self.assertEqual((self.lost(12), self.lost(8)), ({30}, {20}))

    def test_forked(self) -> None:
        """Where two texts part within a chunk, the block they share is no proof against the second."""
        self.store(1, 6)
        self.store(7, 2, parent=6)
        self.end(self.send(10, 20), 1024, 1)
        twin = self.send(10, 30)
        self.store(11, 2, parent=6)
        self.assertEqual(self.end(twin, 1024, 1), (10, 30))
        self.assertEqual(self.lost(12), {30})

    def test_answer_comes_back(self) -> None:
        """Blocks of an answer become text when the next turn brings it back."""
        first = self.send(10)
        self.store(1, 6)
        self.end(first, 512, 257)
        turn = self.send(10, 20, now=3.0)
        self.store(7, 2, parent=6, now=4.0)
        self.assertEqual(self.end(turn, 1024, 1, now=5.0), (10, 20))
        self.assertEqual(self.lost(5), {20})

    def test_before(self) -> None:
        """What came in before a request was sent is not the request's."""
        self.store(1, 8, now=1.0)
        self.assertEqual(self.end(self.send(10, 20, now=1.5), 1024, 1), ())

    def test_broken_off(self) -> None:
        """A run whose beginning is gone by now lies nowhere."""
        self.store(1, 4)
        sent = self.send(10, 20)
        self.store(5, 1, parent=4)
        self.store(6, 3, parent=5)
        self.store(101, 1, parent=8)
        self.store(102, 7, parent=4)
        self.lost(4)
        self.assertEqual(self.end(sent, 11 * 128, 1), ())

    def test_wrong_size(self) -> None:
        """A run of other length is somebody else's."""
        sent = self.send(10, 20)
        self.store(1, 30)
        self.assertEqual(self.end(sent, 1024, 1), ())

    def test_failed(self) -> None:
        """Of a request that failed, what was computed is known to be there."""
        sent = self.send(10, 20, 30)
        self.store(1, 9)
        self.assertEqual(self.end(sent, served=False), (10, 20))

    def test_nothing_sent(self) -> None:
        """A prompt too short for fingerprints takes nothing."""
        sent = self.send()
        self.store(1, 1)
        self.assertEqual(self.end(sent), ())


class LateTests(BlocksTestCase):
    """Events may come after the answer."""

    def test_late(self) -> None:
        """A run that comes a little later is found."""
        sent = self.send(10, 20)
        self.assertEqual(self.end(sent, 1024, 1), ())
        self.store(1, 8, now=2.1)
        self.assertEqual(self.blocks.match(2.1), [(10, 20)])

    def test_rests(self) -> None:
        """It is not looked for at every event."""
        sent = self.send(10, 20)
        self.end(sent, 1024, 1)
        self.blocks.match(2.0)
        self.store(1, 8, now=2.1)
        self.assertEqual(self.blocks.match(2.0 + RETRY / 2), [])
        self.assertEqual(self.blocks.match(2.0 + RETRY), [(10, 20)])

    def test_too_late(self) -> None:
        """What comes long after is somebody else's."""
        sent = self.send(10, 20)
        self.end(sent, 1024, 1)
        self.store(1, 8, now=2.1 + PATIENCE)
        self.assertEqual(self.blocks.match(2.1 + PATIENCE), [])
        self.assertEqual(self.blocks.match(2.1 + PATIENCE + RETRY), [])


class CacheTests(BlocksTestCase):
    """What is known of the cache itself."""

    def test_unknown_parent(self) -> None:
        """What follows an unknown block lies nowhere."""
        self.store(1, 4, parent=99)
        self.assertEqual(len(self.blocks), 0)

    def test_again(self) -> None:
        """A block that is stored once more stays what it is."""
        sent = self.send(10)
        self.store(1, 4)
        self.end(sent, 512, 1)
        self.store(1, 4)
        self.assertEqual(self.lost(1), {10})

    def test_came_back(self) -> None:
        """Text that was lost and computed again is known again."""
        self.store(1, 8)
        self.end(self.send(10, 20), 1024, 1)
        self.assertEqual(self.lost(7, 8), {20})
        sent = self.send(10, 20, now=3.0)
        self.store(7, 2, parent=6, now=4.0)
        self.assertEqual(self.end(sent, 1024, 1, now=5.0), (10, 20))
        self.assertEqual(self.lost(8), {20})

    def test_cleared(self) -> None:
        """Nothing is known after a loss of events."""
        self.store(1, 8)
        self.blocks.clear()
        self.assertEqual((len(self.blocks), self.lost(1)), (0, set()))

    def test_other_memory(self) -> None:
        """Other memory and other groups of layers do not matter."""
        sent = self.send(10)
        self.blocks.store(Stored((1, 2, 3, 4), None, BLOCK, group=0), 1.0)
        self.blocks.store(Stored((1,), None, BLOCK, group=1, counts=False), 1.0)
        self.end(sent, 512, 1)
        self.assertEqual(self.blocks.remove(Removed((1,), group=1)), set())
        self.assertEqual(self.blocks.remove(Removed((1,), group=0, counts=False)), set())
        self.assertEqual(self.blocks.remove(Removed((1,), group=0)), {10})

    def test_bounded(self) -> None:
        """A publisher that never removes anything is forgotten now and then."""
        self.patch(kvblocks, "BLOCKS_MOST", 10)
        self.store(1, 11)
        self.assertEqual(len(self.blocks), 0)

    @effort(200)
    @given(st.data())
    def test_anything(self, data: st.DataObject) -> None:
        """Whatever is stored, removed and answered in whatever order, the books are kept."""
        blocks, flying = Blocks(), []
        names = st.integers(0, 12)
        for now in range(data.draw(st.integers(1, 25))):
            match data.draw(st.sampled_from(("store", "remove", "send", "end", "match", "clear"))):
                case "store":
                    hashes = tuple(data.draw(st.lists(names, max_size=5)))
                    blocks.store(Stored(hashes, data.draw(st.none() | names), BLOCK), now)
                case "remove":
                    blocks.remove(Removed(tuple(data.draw(st.lists(names, max_size=5)))))
                case "send":
                    flying.append(blocks.send(prompt(*range(data.draw(st.integers(0, 3)))), 512.0, now))
                case "end" if flying:
                    sent = flying.pop()
                    tokens = data.draw(st.none() | st.integers(0, 2000))
                    sent.end(now, data.draw(st.booleans()), tokens, data.draw(st.none() | st.just(1)))
                    found = blocks.end(sent)
                    self.assertEqual(found, sent.prompt.chain[: len(found)])
                case "match":
                    blocks.match(now)
                case "clear":
                    blocks.clear()
