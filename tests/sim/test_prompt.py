"""Bodies to tokens and block keys."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.sim import prompt


def user(text: object) -> dict[str, object]:
    return {"role": "user", "content": text}


class ChainTests(SynchronousTestCase):
    """Keys of blocks."""

    def test_grows_with_the_text(self) -> None:
        """More text keeps the keys of the text before it."""
        text = bytes(range(200))
        self.assertEqual(prompt.chain(text, 4)[:3], prompt.chain(text[:60], 4))

    def test_only_full_blocks(self) -> None:
        """Sixteen tokens of four bytes make a key, one byte less makes none."""
        self.assertEqual([len(prompt.chain(b"x" * n, 16)) for n in (63, 64, 127, 128)], [0, 1, 1, 2])

    def test_covers_what_came_before(self) -> None:
        """The same block after another beginning has another key."""
        self.assertNotEqual(prompt.chain(b"aaaabbbb", 1)[1], prompt.chain(b"ccccbbbb", 1)[1])

    def test_count(self) -> None:
        """A token is four bytes, the last may be shorter, and there is always one."""
        self.assertEqual([prompt.count(b"x" * n) for n in (0, 1, 4, 5)], [1, 1, 1, 2])


class RenderTests(SynchronousTestCase):
    """Prompts of the APIs."""

    def test_next_turn_extends_this_one(self) -> None:
        """A second turn with the answer begins with the whole prompt of the first."""
        first = prompt.chat({"messages": [user("Hello")]})
        second = prompt.chat(
            {"messages": [user("Hello"), {"role": "assistant", "content": "Hi."}, user("More")]}
        )
        self.assertTrue(second.startswith(first))

    def test_parts_equal_a_string(self) -> None:
        """Text in parts is the same prompt as text in one string."""
        parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
        self.assertEqual(prompt.chat({"messages": [user(parts)]}), prompt.chat({"messages": [user("Hello")]}))

    def test_tools_are_part_of_the_prompt(self) -> None:
        """Tools change the prompt from its beginning."""
        with_tools = prompt.chat({"messages": [user("Hello")], "tools": [{"type": "function"}]})
        self.assertTrue(with_tools.startswith(b"<|tools|>"))

    def test_token_ids(self) -> None:
        """A list of ids counts one token for each."""
        self.assertEqual(prompt.count(prompt.completion({"prompt": [1, 2, 3]})), 3)

    def test_responses_input(self) -> None:
        """A string input of the Responses API is one user message."""
        self.assertEqual(prompt.responses({"input": "Hello"}), prompt.chat({"messages": [user("Hello")]}))

    def test_embedding_inputs(self) -> None:
        """One text, several texts, one list of ids."""
        found = [prompt.inputs({"input": given}) for given in ("a", ["a", "b"], [1, 2])]
        self.assertEqual([len(texts) for texts in found], [1, 2, 1])

    def test_nonsense_is_refused(self) -> None:
        """What is no request raises the one exception, whatever it is."""
        for read, body in (
            (prompt.chat, {}),
            (prompt.chat, {"messages": []}),
            (prompt.chat, {"messages": ["x"]}),
            (prompt.chat, {"messages": [{"role": "user", "content": 7}]}),
            (prompt.completion, {"prompt": None}),
            (prompt.completion, {"prompt": ["a", "b"]}),
            (prompt.responses, {"input": 3}),
            (prompt.inputs, {"input": []}),
        ):
            self.assertRaises(prompt.NotUnderstood, read, body)

    def test_lone_surrogate(self) -> None:
        """Text that is not valid Unicode still has a prompt."""
        self.assertIn(b"\xed\xa0\x80", prompt.chat({"messages": [user("\ud800")]}))
