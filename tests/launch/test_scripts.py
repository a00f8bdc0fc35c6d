"""How answers from another machine are read."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.launch.scripts import Reply, Script, read_reply

SCRIPT = Script(b"", "tag")


class ReplyTests(SynchronousTestCase):
    """Facts stand out from whatever else is printed."""

    def test_banners_and_forgeries_are_passed_over(self) -> None:
        """Only lines that begin with the tag count."""
        output = (
            b"Welcome\n@other pid 1 2\n pid 3 4\nno newline\n@tag begin\nnoise\n@tag pid 5 6.boot\n@tag end\n"
        )
        reply = read_reply(SCRIPT, output)
        self.assertEqual(reply.fact("pid"), "5 6.boot")
        self.assertTrue(reply.complete)
        self.assertEqual(reply.log, "")

    def test_a_log_goes_to_the_next_fact(self) -> None:
        """Its lines are kept as they are, bytes that are no text replaced."""
        reply = read_reply(SCRIPT, b"@tag begin\n@tag exited 3\n@tag log\none\n\n two\xff\n\n@tag end\n")
        self.assertEqual((reply.fact("exited"), reply.log), ("3", "one\n\n two\ufffd"))

    def test_an_answer_that_breaks_off_is_incomplete(self) -> None:
        """Begun is not ended, and nothing at all is not begun."""
        self.assertEqual(read_reply(SCRIPT, b"\n@tag begin\n"), Reply((("begin", ""),), "", True, False))
        self.assertEqual(read_reply(SCRIPT, b"banner\n"), Reply((), "", False, False))
