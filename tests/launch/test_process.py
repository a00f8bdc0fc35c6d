"""Running a program to its end."""

from __future__ import annotations

import os
import sys

from twisted.internet import reactor
from twisted.internet.defer import CancelledError
from twisted.trial.unittest import SynchronousTestCase, TestCase

from twisted_router.launch.process import KEPT, Ended, Tail, how_ended, run

SH = "/bin/sh"


class RunTests(TestCase):
    """Bounded in time and in what is kept."""

    timeout = 30

    async def test_output_errors_and_code(self) -> None:
        """All three are given, and standard input arrives."""
        ended = await run(reactor, (SH, "-c", "cat; echo oops >&2; exit 3"), 20, stdin=b"in")
        self.assertEqual(ended, Ended(3, None, b"in", b"oops\n"))
        self.assertEqual(ended.how, "exited with code 3")

    async def test_a_signal(self) -> None:
        """An end by signal has no exit code."""
        ended = await run(reactor, (SH, "-c", "kill -9 $$"), 20)
        self.assertEqual((ended.code, ended.signal, ended.how), (None, 9, "was killed by SIGKILL"))

    async def test_time_that_is_up(self) -> None:
        """It is killed, and what it had said is given."""
        ended = await run(reactor, (SH, "-c", "echo begun; exec sleep 60"), 1)
        self.assertEqual((ended.timed_out, ended.output, ended.how), (True, b"begun\n", "took too long"))

    async def test_cancelled(self) -> None:
        """Giving up kills it."""
        read, write = os.pipe()
        self.addCleanup(os.close, read)
        running = run(reactor, (SH, "-c", "exec sleep 60"), 60)
        os.close(write)
        running.cancel()
        await self.assertFailure(running, CancelledError)

    async def test_a_child_that_keeps_the_output_open(self) -> None:
        """The end of the program itself is the end."""
        ended = await run(reactor, (SH, "-c", "sleep 30 & echo $!"), 20)
        self.addCleanup(os.kill, int(ended.output), 9)
        self.assertEqual((ended.code, ended.timed_out), (0, False))

    async def test_the_last_word(self) -> None:
        """A program that has said it and does not end is killed soon, long before its time is up."""
        script = "printf 'the '; printf 'end\\n'; exec sleep 60"
        ended = await run(reactor, (SH, "-c", script), 60, last_word=b"the end")
        self.assertEqual((ended.output, ended.timed_out, ended.signal), (b"the end\n", False, 9))

    async def test_much_output(self) -> None:
        """Only the end of it is kept."""
        script = f"import sys; sys.stdout.write('x' * {KEPT * 4} + 'the end')"
        ended = await run(reactor, (sys.executable, "-c", script), 20)
        self.assertEqual(len(ended.output), KEPT)
        self.assertTrue(ended.output.endswith(b"xthe end"))

    async def test_a_program_that_does_not_exist(self) -> None:
        """It fails, or ends with a code, but never hangs."""
        try:
            ended = await run(reactor, ("/no/such/program",), 20)
        except OSError:
            return
        self.assertNotEqual(ended.code, 0)


class TailTests(SynchronousTestCase):
    """The last bytes of a stream."""

    def test_bounds(self) -> None:
        """Whatever the pieces, the last ``limit`` bytes are kept and little more is held."""
        for size in (1, 3, 7, 50):
            tail = Tail(10)
            whole = bytes(range(100))
            for start in range(0, len(whole), size):
                tail.add(whole[start : start + size])
            self.assertEqual(tail.value(), whole[-10:])


class WordsTests(SynchronousTestCase):
    """How an end is said."""

    def test_signals(self) -> None:
        """Known signals by name, others by number."""
        self.assertEqual(how_ended(None, 15), "was killed by SIGTERM")
        self.assertEqual(how_ended(None, 60), "was killed by signal 60")
        self.assertEqual(how_ended(0, None), "exited with code 0")
