"""Cache events, as values: both layouts, what is passed over, what is not understood."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.fuzz.profile import effort
from twisted_router.core.kvevents import Cleared, Removed, Stored, UnknownEvents, read_batch

STORED = Stored((1, 2), 7, 16)


def stored(**changes: object) -> dict[str, object]:
    return {
        "type": "BlockStored",
        "block_hashes": [1, 2],
        "parent_block_hash": 7,
        "token_ids": [5] * 32,
        "block_size": 16,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        **changes,
    }


def array(event: dict[str, object]) -> list[object]:
    return list(event.values())


class LayoutTests(SynchronousTestCase):
    """The shapes in which one thing is said."""

    def test_arrays(self) -> None:
        """Everything is an array, kind first; what is left out at the end is its default."""
        events = [array(stored()), ["BlockRemoved", [1], "GPU"], ["AllBlocksCleared"]]
        self.assertEqual(read_batch([1.5, events, 0]), (STORED, Removed((1,)), Cleared()))

    def test_objects(self) -> None:
        """Everything is an object."""
        removed = {"type": "BlockRemoved", "block_hashes": [1], "medium": None}
        batch = {"ts": 1.5, "events": [stored(), removed, {"type": "AllBlocksCleared"}]}
        self.assertEqual(read_batch(batch), (STORED, Removed((1,)), Cleared()))

    def test_mixed(self) -> None:
        """The batch in one layout, its events in the other."""
        self.assertEqual(read_batch([1, [stored()]]), (STORED,))
        self.assertEqual(read_batch({"events": [array(stored())]}), (STORED,))

    def test_old(self) -> None:
        """An older publisher says nothing of the medium."""
        self.assertEqual(read_batch([1, [array(stored())[:6]]]), (STORED,))

    def test_newer(self) -> None:
        """What a newer one adds is passed over."""
        self.assertEqual(read_batch({"events": [stored(session_id="x")], "more": 1}), (STORED,))
        longer = [*array(stored()), None, None, "full_attention", None, "LOCAL", {}]
        self.assertEqual(read_batch([1, [longer], 0, "more"]), (STORED,))

    def test_bytes(self) -> None:
        """A name of many bytes is as good as its last eight."""
        event = stored(block_hashes=[b"x" * 24 + b"\0" * 7 + b"\1", 2], parent_block_hash=b"\7")
        self.assertEqual(read_batch([1, [event]]), (STORED,))

    def test_beginning(self) -> None:
        """Without a parent it begins a text."""
        self.assertEqual(read_batch([1, [stored(parent_block_hash=None)]]), (Stored((1, 2), None, 16),))

    def test_group(self) -> None:
        """The group of layers is kept, for removals name no more than that."""
        removed = {"type": "BlockRemoved", "block_hashes": [1], "group_idx": 1}
        self.assertEqual(
            read_batch([1, [stored(group_idx=0), removed]]),
            (Stored((1, 2), 7, 16, 0), Removed((1,), 1)),
        )


class OtherMemoryTests(SynchronousTestCase):
    """What does not count."""

    def test_medium(self) -> None:
        """Copies in other memory come and go by other rules."""
        batch = [1, [stored(medium="CPU"), ["BlockRemoved", [1], "CPU"]]]
        self.assertEqual([event.counts for event in read_batch(batch)], [False, False])

    def test_windows(self) -> None:
        """Layers that keep a window or a state do not reuse a prefix from its beginning."""
        kinds = ("full_attention", "mla_attention", "sliding_window", "mamba")
        events = [stored(kv_cache_spec_kind=kind) for kind in kinds]
        self.assertEqual([event.counts for event in read_batch([1, events])], [True, True, False, False])


class UnknownTests(SynchronousTestCase):
    """Whatever is not known is told by one error, and nothing of it is shown."""

    def test_unknown(self) -> None:
        """Unknown kinds and shapes."""
        for value, told in (
            (None, "expected a batch of events, got null"),
            ([1.5], "expected a batch of events, got a list of 1"),
            ([1.5, None], "expected a batch"),
            ({"ts": 1}, "expected a batch of events, got an object"),
            ([1, ["BlockStored"]], "expected an event, got a text"),
            ([1, [["BlockMoved", [1]]]], "no event is called 'BlockMoved'"),
            ([1, [{"type": "BlockMoved"}]], "no event is called 'BlockMoved'"),
            ([1, [{"kind": "BlockStored"}]], "expected an event, got an object"),
            ([1, [[]]], "expected an event, got a list of 0"),
            ([1, [["BlockStored", [1]]]], "block_size: expected a whole number of at least 1, got null"),
            ([1, [stored(block_size=0)]], "block_size"),
            ([1, [stored(block_size=True)]], "block_size"),
            ([1, [stored(token_ids="secret")]], "token_ids: expected a list, got a text"),
            ([1, [stored(block_hashes=None)]], "block_hashes: expected a list, got null"),
            ([1, [stored(block_hashes=[None])]], "block hash: expected a number or bytes, got null"),
            ([1, [stored(block_hashes=[b""])]], "block hash: expected a number, got bytes"),
            ([1, [stored(parent_block_hash=1.5)]], "block hash: expected a number, got a float"),
            ([1, [stored(medium=3)]], "medium: expected a name, got a int"),
            ([1, [stored(group_idx="0")]], "group_idx: expected a number, got a text"),
            ([1, [["BlockRemoved"]]], "block_hashes: expected a list, got null"),
        ):
            problem = self.assertRaises(UnknownEvents, read_batch, value)
            self.assertIn(told, str(problem), repr(value))
            self.assertNotIn("secret", str(problem))

    @effort(300)
    @given(
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats()
            | st.binary(max_size=9)
            | st.sampled_from(
                ["BlockStored", "BlockRemoved", "AllBlocksCleared", "type", "events", "GPU", ""]
            ),
            lambda inner: (
                st.lists(inner, max_size=9)
                | st.dictionaries(
                    st.sampled_from(["type", "events", "block_hashes", "token_ids", "block_size", "medium"]),
                    inner,
                )
            ),
        )
    )
    def test_anything(self, value: object) -> None:
        """Whatever was unpacked is events, or raises that error and no other."""
        try:
            events = read_batch(value)
        except UnknownEvents:
            return
        self.assertTrue(all(isinstance(event, Stored | Removed | Cleared) for event in events))
