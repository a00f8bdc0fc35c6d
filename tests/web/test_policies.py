"""What the data path tells a routing policy, and what it tells the client of the decision."""

from __future__ import annotations

from collections.abc import Sequence

from tests.web.scene import OK, STREAM, RouterTestCase, chunk, post
from twisted_router.core.effects import Ending
from twisted_router.core.policies.vocabulary import Ask, Candidate, Forgetful, Outcome, Reason

TOLD = b'{"usage":{"prompt_tokens":41,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":32}}}'


class Notebook(Forgetful):
    """A policy that takes the first candidate and writes down what it is told."""

    wants_prompt = True

    def __init__(self) -> None:
        self.asks: list[Ask] = []
        self.told: list[object] = []

    def choose(self, ask: Ask, candidates: Sequence[Candidate]) -> tuple[int, Reason]:
        self.asks.append(ask)
        return 0, Reason.WARM_PREFIX

    def observe(self, ask: Ask, chosen: Candidate, reason: Reason) -> Notebook:
        self.told.append((chosen.instance, reason))
        return self

    def first_byte(self, now: float) -> None:
        self.told.append(("first byte", now))

    def ended(self, now: float, outcome: Outcome) -> None:
        self.told.append(outcome)

    def session_ended(self, session: str) -> None:
        self.told.append(session)


class Told(RouterTestCase):
    """A policy hears of each step of a request, once."""

    def begin(self, body: bytes = b"{}", session: str | None = None, *fields: bytes) -> Notebook:
        policy = Notebook()
        self.make("a", "b", policy=policy)
        self.caller = self.router.call(post(body, session, *fields))
        return policy

    def test_prompt(self) -> None:
        """A policy that wants it gets the fingerprints of the body."""
        policy = self.begin(b'{"messages":[{"role":"user","content":"' + b"x" * 5000 + b'"}]}')
        self.router.reply("a", OK)
        prompt = policy.asks[0].prompt
        assert prompt is not None
        self.assertEqual((len(prompt.chain), prompt.messages), (2, 1))

    def test_served(self) -> None:
        """Dispatch, first byte with its time, and the end with what the answer says of its tokens."""
        policy = self.begin()
        self.router.reply("a", STREAM)
        self.router.clock.advance(2)
        self.router.reply("a", chunk(b"data: x\n\n"), chunk(TOLD), b"0\r\n\r\n", line=0)
        self.assert_over(Ending.DONE, 200)
        self.assertEqual(
            policy.told, [("a", Reason.WARM_PREFIX), ("first byte", 2.0), Outcome(True, 41, 32, 7)]
        )

    def test_refused(self) -> None:
        """An answer that is no 2xx teaches nothing about speed, and is not served."""
        policy = self.begin()
        self.router.reply("a", b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\n{}")
        self.assertEqual(policy.told[1:], [Outcome(False)])

    def test_client_gone(self) -> None:
        """A request whose client leaves has ended too."""
        policy = self.begin()
        self.caller.leave()
        self.assertEqual(policy.told[1:], [Outcome(False)])

    def test_session_ended(self) -> None:
        """A conversation that its client calls finished is over for the policy as well."""
        policy = self.begin(b"{}", "s", b"X-Dynamo-Session-Final: true")
        self.router.reply("a", OK)
        self.assertIn("s", policy.told)


class Receipts(RouterTestCase):
    """Answers say which replica was chosen, and by which rule."""

    def test_hit(self) -> None:
        """The second turn says hit, with the rule."""
        self.make("a", receipts=True)
        answers = []
        for _ in range(2):
            caller = self.router.call(post(b"{}", "s"))
            self.router.reply("a", OK)
            answers.append(caller.answer())
        self.assertEqual(
            [dict(answer.fields)["X-Router-Affinity"] for answer in answers],
            ["miss; reason=unknown-session", "hit; reason=pinned"],
        )
        self.assertEqual(dict(answers[1].fields)["X-Router-Replica"], "a")

    def test_off(self) -> None:
        """They can be left out."""
        caller = self.router.call(post())
        self.router.reply(self.router.chosen(), OK)
        self.assertNotIn("X-Router-Replica", dict(caller.answer().fields))
