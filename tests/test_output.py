"""Lines that wait for nobody."""

from __future__ import annotations

import os

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.output import LINE_BYTES, LossyLines


class LossyLinesTests(SynchronousTestCase):
    """``LossyLines`` over a real pipe."""

    def setUp(self) -> None:
        self.reading, self.writing = os.pipe()
        self.addCleanup(os.close, self.writing)

    def close_reader(self) -> None:
        os.close(self.reading)

    def test_lines(self) -> None:
        """Each line arrives, with its end, whatever its characters."""
        self.addCleanup(self.close_reader)
        LossyLines(self.writing).write("one\nzwölf \ud800\n")
        self.assertEqual(os.read(self.reading, 100), "one\nzwölf \\ud800\n".encode())

    def test_reader_asleep(self) -> None:
        """A full pipe drops lines at once; when it is read again, later lines arrive."""
        self.addCleanup(self.close_reader)
        lines = LossyLines(self.writing)
        for _ in range(100):
            lines.write("x" * LINE_BYTES + "\n")
        held = b""
        while b"last\n" not in held:
            held += os.read(self.reading, 1 << 20)
            lines.write("last\n")
        self.assertLess(len(held), 100 * LINE_BYTES)

    def test_reader_gone(self) -> None:
        """A closed reader raises nothing."""
        self.close_reader()
        self.assertEqual(LossyLines(self.writing).write("x\n"), 2)

    def test_long_line(self) -> None:
        """A line is cut to what a pipe takes in one piece."""
        self.addCleanup(self.close_reader)
        LossyLines(self.writing).write("x" * 10_000)
        self.assertEqual(os.read(self.reading, 1 << 20), b"x" * (LINE_BYTES - 1) + b"\n")

    def test_full_disk(self) -> None:
        """A device without room raises nothing."""
        self.close_reader()
        full = os.open("/dev/full", os.O_WRONLY)
        self.addCleanup(os.close, full)
        self.assertEqual(LossyLines(full).write("x\n"), 2)
