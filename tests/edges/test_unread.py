"""Clients that do not read, in memory and on a clock."""

from __future__ import annotations

from tests.web.scene import OK, RouterTestCase, post


class Unread(RouterTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.caller = self.router.call(post())
        self.name = self.router.chosen()
        self.caller.line.loseConnection = lambda: None  # type: ignore[method-assign]  # waits for its buffer

    def answer_unread(self) -> None:
        """The answer comes while the client has not even read what came before."""
        self.caller.channel.pauseProducing()
        self.router.reply(self.name, OK)

    def test_cut_off_in_the_end(self) -> None:
        """One that never reads its answer loses its connection after the idle time."""
        self.answer_unread()
        self.router.clock.advance(120)
        self.router.clock.advance(4.9)
        self.assertFalse(self.caller.line.aborted)
        self.router.clock.advance(0.1)
        self.assertTrue(self.caller.line.aborted)

    def test_ahead_in_pieces(self) -> None:
        """What is sent ahead meanwhile, in whatever pieces, is served in order once the client reads."""
        self.answer_unread()
        whole = post(b'{"n": 1}') + post(b'{"n": 2}')
        self.caller.line.resumeProducing()  # what had been on its way
        for at in range(0, len(whole), 7):
            self.caller.say(whole[at : at + 7])
        self.assertEqual(sum(self.router.load().values()), 0)
        self.caller.channel.resumeProducing()
        for body in (b'{"n": 1}', b'{"n": 2}'):
            self.router.clock.advance(0)
            name = self.router.chosen()
            self.assertTrue(self.router.replicas[name].line.value().endswith(body))
            self.router.reply(name, OK)
        self.assertEqual([told.status for told in self.caller.answers("POST", "POST", "POST")], [200] * 3)

    def test_leaves(self) -> None:
        """One that leaves with requests still ahead: they are forgotten."""
        self.caller.say(post(b"x" * 100))
        self.answer_unread()
        self.caller.line.resumeProducing()
        self.caller.leave()
        self.assertTrue(self.caller.line.gone)
        self.assertEqual((len(self.router.notes.outcomes), self.router.site.held), (1, 0))
        self.assertEqual(self.flushLoggedErrors(), [])
