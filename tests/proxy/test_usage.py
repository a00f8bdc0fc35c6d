"""What is read from the end of an answer."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.fuzz.profile import effort
from twisted_router.core.effects import Usage
from twisted_router.proxy.usage import TAIL, UsageReader

_LAST = (
    b'data: {"choices":[],"usage":{"prompt_tokens": 41, "completion_tokens":7,'
    b'"prompt_tokens_details":{"cached_tokens":32}}}\n\ndata: [DONE]\n\n'
)


def read(*pieces: bytes) -> Usage:
    """Read an answer that came in pieces."""
    reader = UsageReader()
    for piece in pieces:
        reader.add(piece)
    return reader.read()


class UsageReaderTests(SynchronousTestCase):
    """``usage`` comes last, in a stream as in a document."""

    @given(st.binary(max_size=2 * TAIL), st.lists(st.integers(0, len(_LAST)), max_size=5))
    @effort(100)
    def test_anywhere_in_the_reads(self, before: bytes, cuts: list[int]) -> None:
        """However the end is cut into reads, and whatever came before, the numbers are found."""
        edges = [0, *sorted(cuts), len(_LAST)]
        pieces = [_LAST[start:end] for start, end in pairwise(edges)]
        self.assertEqual(read(before, *pieces), Usage(41, 32, 7))

    def test_nothing_said(self) -> None:
        """An engine that tells nothing gives nothing."""
        self.assertEqual(read(b'{"choices":[]}'), Usage())

    def test_too_far_from_the_end(self) -> None:
        """What stands before the tail is not looked at, so a long answer costs no memory."""
        self.assertEqual(read(_LAST, b"x" * TAIL), Usage())
