from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any, cast

from twisted.trial.unittest import SynchronousTestCase

from bench.soak import Scene, Tally, Wrong, _check, late

_EVENT = b'data: {"choices": [{"delta": {"content": "x"}}]}\n\n'
_END = b"data: [DONE]\n\n"


class JudgementTests(SynchronousTestCase):
    """What the soak takes for a whole answer, a lost and a doubled request."""

    def test_streams(self) -> None:
        """A stream has each of its tokens, and its end."""
        _check("stream", _EVENT * 3 + _END, 3)
        for body in (_EVENT * 3, _EVENT * 2 + _END, _EVENT * 4 + _END, b""):
            with self.assertRaises(Wrong):
                _check("stream", body, 3)

    def test_others(self) -> None:
        """Other answers are JSON with what was asked for."""
        _check("chat", b'{"usage": {"completion_tokens": 3}}', 3)
        with self.assertRaises(Wrong):
            _check("chat", b'{"usage": {"completion_tokens": 2}}', 3)
        with self.assertRaises(ValueError):
            _check("embeddings", b'{"data": [', 0)

    def test_killed(self) -> None:
        """Only a kill during a request, or just before it, explains that it failed."""
        tally, now = Tally(), time.monotonic()
        self.assertFalse(tally.killed_since(now))
        tally.kills.append(now - 10)
        self.assertFalse(tally.killed_since(now))
        tally.kills.append(now + 1)
        self.assertTrue(tally.killed_since(now))

    def test_ledgers(self) -> None:
        """An id that two replicas saw, or one saw twice, counts twice."""
        work = Path(self.mktemp())
        work.mkdir()
        (work / "ledger-0").write_text("1-1\n1-2\n1-2\n")
        (work / "ledger-1").write_text("1-1\n2-1\n")
        scene = Scene(0, cast(Any, None), work)
        self.assertEqual(scene.seen(), Counter({"1-1": 2, "1-2": 2, "2-1": 1}))

    def test_lag(self) -> None:
        """A share of the looks since the last record is within the bound that is told."""
        before = [(1.0, 100.0), (10.0, 110.0), (float("inf"), 110.0)]
        now = [(1.0, 190.0), (10.0, 209.0), (float("inf"), 210.0)]
        self.assertEqual(late(before, now, 0.5), "<=1")
        self.assertEqual(late(before, now, 0.99), "<=10")
        self.assertEqual(late(before, now, 1.0), ">5000")
