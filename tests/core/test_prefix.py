"""Fingerprints of request bodies, and the index over them."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.core.prefix import CHUNK, PrefixIndex, read_prompt


def body(*contents, tools=None, **before):
    """A chat body as OpenAI's client writes it."""
    messages = [{"role": "user", "content": content} for content in contents]
    whole = {**before, "messages": messages, "model": "m"}
    if tools is not None:
        whole["tools"] = tools
    return json.dumps(whole).encode()


def common(one, other):
    """How many leading fingerprints two prompts share."""
    depth = 0
    for left, right in zip(one.chain, other.chain, strict=False):
        if left != right:
            break
        depth += 1
    return depth


class ReadPromptTests(SynchronousTestCase):
    def test_whole_chunks(self):
        """There is a fingerprint for each whole chunk from the messages on."""
        prompt = read_prompt(body("x" * 3 * CHUNK))
        self.assertEqual(len(prompt.chain), 3)
        self.assertEqual(len(set(prompt.chain)), 3)

    def test_continued(self):
        """The next turn of a conversation begins with the fingerprints of the one before."""
        first = read_prompt(body("a" * 9000))
        second = read_prompt(body("a" * 9000, "b" * 9000))
        self.assertGreaterEqual(common(first, second), len(first.chain) - 1)
        self.assertEqual((first.messages, second.messages), (1, 2))

    def test_chained(self):
        """A fingerprint stands for everything before it: equal chunks after a difference are not equal."""
        one = read_prompt(body("a" + "x" * 4 * CHUNK))
        other = read_prompt(body("b" + "x" * 4 * CHUNK))
        self.assertEqual(set(one.chain) & set(other.chain), set())

    def test_fields_before(self):
        """What stands before the messages does not matter."""
        one = read_prompt(body("x" * 9000, request="1"))
        other = read_prompt(body("x" * 9000, request="a longer one"))
        self.assertEqual(one.chain, other.chain)

    def test_tools_after(self):
        """Tools that follow the messages do not hide that a conversation goes on."""
        tools = [{"name": "tool", "description": "d" * 30_000}]
        first = read_prompt(body("a" * 5000, tools=tools))
        second = read_prompt(body("a" * 5000, "b" * 5000, tools=tools))
        self.assertLess(first.size, 6000)
        self.assertGreaterEqual(common(first, second), len(first.chain) - 1)

    def test_quoted(self):
        """The words inside a message are not taken for keys."""
        prompt = read_prompt(body('say "messages", "tools" and "role"' + "x" * 2 * CHUNK))
        self.assertEqual(len(prompt.chain), 2)
        self.assertEqual(prompt.messages, 1)

    def test_bare_prompt(self):
        """A completion has a prompt and no messages."""
        prompt = read_prompt(json.dumps({"model": "m", "prompt": "x" * 3 * CHUNK}).encode())
        self.assertEqual((len(prompt.chain), prompt.messages), (3, 0))

    def test_anything(self):
        """Bodies that are no JSON, or empty, are read all the same."""
        self.assertEqual(read_prompt(b"").chain, ())
        self.assertEqual(len(read_prompt(b"\xff" * 5000).chain), 2)


class IndexTests(SynchronousTestCase):
    def setUp(self):
        self.index = PrefixIndex()

    def test_depth(self):
        """Each replica has as many leading chunks as it was sent."""
        self.index.write((1, 2, 3, 4), 0b01, "long")
        self.index.write((1, 2), 0b10, "short")
        match = self.index.look((1, 2, 3, 9))
        self.assertEqual((match.on(0b01), match.on(0b10), match.on(0b100)), (3, 2, 0))
        self.assertEqual(match.depth, 3)

    def test_leading_only(self):
        """A chunk counts only when all before it are there too."""
        self.index.write((1, 2, 3), 0b01, "a")
        self.index.write((2, 3), 0b10, "b")
        self.assertEqual(self.index.look((1, 2, 3)).on(0b10), 0)

    def test_owner(self):
        """The owner is who wrote the deepest known chunk first."""
        self.index.write((1, 2, 3), 0b01, "first")
        self.index.write((1, 2, 3, 4), 0b10, "second")
        self.assertEqual(self.index.look((1, 2, 3, 8)).owner, "first")
        self.assertEqual(self.index.look((1, 2, 3, 4, 5)).owner, "second")

    def test_no_owner(self):
        """What nobody owned goes to the first who owns anything."""
        self.index.write((1, 2), 0b01, None)
        self.assertIsNone(self.index.look((1, 2)).owner)
        self.index.write((1, 2), 0b01, "first")
        self.index.write((1, 2), 0b01, "second")
        self.assertEqual(self.index.look((1, 2)).owner, "first")

    def test_demand(self):
        """Demand counts requests in flight that begin so, shared by the replicas that have the beginning."""
        for _ in range(4):
            self.index.write((1, 2), 0b01, "a")
        self.index.write((1,), 0b10, "b")
        self.assertEqual(self.index.look((1, 2, 3)).demand, (2.5, 4.0))
        self.index.ended((1, 2))
        self.assertEqual(self.index.look((1, 2, 3)).demand, (2.0, 3.0))

    def test_unknown(self):
        """Nothing is known of a new prompt, and of one without chunks."""
        self.assertEqual(self.index.look((7,)).seats, ())
        self.assertEqual(self.index.look(()).depth, 0)

    def test_drop(self):
        """What a replica has lost it no longer has; others keep it."""
        self.index.write((1, 2, 3), 0b11, "a")
        self.index.drop((2, 3), 0b01)
        match = self.index.look((1, 2, 3))
        self.assertEqual((match.on(0b01), match.on(0b10)), (1, 3))

    def test_mark(self):
        """What a replica is known to have after all it has; what nobody was sent stays unknown."""
        self.index.write((1, 2, 3), 0b11, "a")
        self.index.drop((2, 3), 0b01)
        self.index.mark((2, 4), 0b01)
        match = self.index.look((1, 2, 3, 4))
        self.assertEqual((match.on(0b01), match.on(0b10), match.depth), (2, 3, 3))

    def test_forget(self):
        """A replica that is gone has nothing; its bit can be given to another."""
        self.index.write((1, 2, 3), 0b11, "a")
        self.index.forget(0b01)
        match = self.index.look((1, 2, 3))
        self.assertEqual((match.on(0b01), match.on(0b10)), (0, 3))

    def test_bounded(self):
        """The index keeps at most its cap, and of that the half used last."""
        index = PrefixIndex(cap=100)
        for number in range(1000):
            index.write((number,), 1, None)
            self.assertLessEqual(len(index), 100)
            index.write((0,), 1, None)
        self.assertEqual(index.look((0,)).on(1), 1)
        self.assertEqual(index.look((960,)).on(1), 1)
        self.assertEqual(index.look((500,)).on(1), 0)
