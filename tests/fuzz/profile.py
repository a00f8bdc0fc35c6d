"""How much is tried: the same cases in every run, few enough for all of them to take seconds.

``FUZZ_EXAMPLES=20000 python -m twisted.trial tests.fuzz`` tries that many, new ones each time.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

_MORE = int(os.environ.get("FUZZ_EXAMPLES", "0"))


def effort(examples: int) -> settings:
    """Settings of one fuzzer that tries ``examples`` cases by default."""
    return settings(
        max_examples=_MORE or examples,
        derandomize=not _MORE,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )


@st.composite
def spoilt(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Bytes of ``whole`` with up to three places changed."""
    data = bytearray(draw(whole))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        gone = draw(st.sampled_from((0, 0, 1, 2, 5)))
        data[at : at + gone] = draw(
            st.sampled_from(
                (b"", b"\r", b"\n", b"\r\n", b" ", b"\t", b"\0", b":", b";", b"0", b"\x0b", b"\xff")
            )
        )
    return bytes(data)


@st.composite
def cut(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> list[bytes]:
    """Bytes of ``whole`` as they might arrive: in up to five reads."""
    data = draw(whole)
    places = sorted(draw(st.lists(st.integers(0, len(data)), max_size=4)))
    pieces = [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]
    return [piece for piece in pieces if piece]
