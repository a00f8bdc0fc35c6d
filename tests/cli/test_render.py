"""What the demo tells a person to type."""

from __future__ import annotations

import json
import shlex

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.cli.render import curl, welcome


class CurlTests(SynchronousTestCase):
    """Command lines that a shell understands."""

    def test_quoting(self) -> None:
        """The body survives the shell, quotes included."""
        words = shlex.split(curl("http://h/", {"a": 'it\'s "so" $HOME'}, "-i"))
        self.assertEqual(words[:3], ["curl", "-i", "http://h/"])
        self.assertEqual(json.loads(words[-1]), {"a": 'it\'s "so" $HOME'})

    def test_second_turn_extends_the_first(self) -> None:
        """The second command repeats the first one's messages and adds the id."""
        text = welcome("http://h:1", "m", {"sim0": ("http://h:2", 7)}, "/f")
        turns = [shlex.split(line) for line in text.splitlines() if line.startswith("  curl")]
        first, second = (json.loads(words[-1])["messages"] for words in turns[:2])
        self.assertEqual(second[: len(first)], first)
        self.assertIn("X-Session-Id: $ID", turns[1])
        self.assertTrue(json.loads(turns[2][-1])["stream"])
