"""Tests for ``twisted_router.config.locate``."""

from __future__ import annotations

import json
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.config.locate import Marks, Path, Place, locate_json, show_path
from twisted_router.config.plain_yaml import locate_yaml

NESTED = """{
  "hosts": [
    {"name": "a\\"]}", "devices": [0, 1,
\t\t\t12]},
    {"devices": [[], {}, [7]] , "env" : {"A": "x"}}
  ]
}
"""


class ShowPathTests(SynchronousTestCase):
    """``show_path`` writes a path so that a person finds it."""

    def test_plain(self) -> None:
        """Keys are joined by dots, indices stand in brackets."""
        self.assertEqual(show_path(("hosts", 1, "port_base")), "$.hosts[1].port_base")

    def test_awkward_key(self) -> None:
        """A key that is no plain word is quoted, escaped and shortened."""
        self.assertEqual(show_path(("a b\n",)), '$["a b\\n"]')
        self.assertEqual(show_path(("é" * 100,)), '$["' + "\\u00e9" * 57 + '..."]')


class JsonTests(SynchronousTestCase):
    """``locate_json`` knows where every value and key of valid JSON begins."""

    def places(self, *paths: Path) -> list[tuple[int, int]]:
        marks = locate_json(NESTED)
        return [(place.line, place.column) for place in map(marks.find, paths)]

    def test_nested_lists(self) -> None:
        """Values in lists inside objects inside lists have their own places; a tab is one column."""
        self.assertEqual(
            self.places(
                (),
                ("hosts",),
                ("hosts", 0),
                ("hosts", 0, "devices", 1),
                ("hosts", 0, "devices", 2),
                ("hosts", 1, "devices", 1),
                ("hosts", 1, "devices", 2, 0),
                ("hosts", 1, "env", "A"),
            ),
            [(1, 1), (2, 12), (3, 5), (3, 38), (4, 4), (5, 22), (5, 27), (5, 47)],
        )

    def test_key(self) -> None:
        """The place of a key is where its quote is; an index has that of the value."""
        self.assertEqual(locate_json(NESTED).find(("hosts", 1, "env"), key=True), Place(5, 33))
        self.assertEqual(locate_json(NESTED).find(("hosts", 0, "devices", 0), key=True), Place(3, 35))

    def test_absent(self) -> None:
        """What is absent is looked for in the nearest object that would hold it."""
        self.assertEqual(self.places(("hosts", 1, "port"), ("hosts", 1, "port", 3, "x")), [(5, 5), (5, 5)])
        self.assertEqual(self.places(("hosts", 1, "env", "B")), [(5, 41)])

    def test_repeated(self) -> None:
        """A key that comes again is reported with both places; the last value is the one located."""
        marks = locate_json('{"a": {"b": 1,\n "c": 2, "b": 3}}')
        self.assertEqual(
            [(r.path, r.place, r.first) for r in marks.repeated], [(("a", "b"), Place(2, 10), Place(1, 8))]
        )
        self.assertEqual(marks.find(("a", "b")), Place(2, 15))

    @settings(max_examples=200, deadline=None)
    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=12,
        ),
        st.sampled_from([None, 0, "\t"]),
        st.booleans(),
    )
    def test_every_value(self, value: Any, indent: Any, ascii_only: bool) -> None:
        """Whatever JSON is written, reading from the place found gives the value at that path."""
        text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
        marks = locate_json(text)
        lines = text.split("\n")
        for path, expected in _walk(value, ()):
            place = marks.find(path)
            rest = "\n".join([lines[place.line - 1][place.column - 1 :], *lines[place.line :]])
            found, _ = json.JSONDecoder().raw_decode(rest)
            self.assertEqual(repr(found), repr(expected))


def _walk(value: Any, path: Path) -> Any:
    yield path, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, (*path, index))


class YamlTests(SynchronousTestCase):
    """``locate_yaml`` does the same for a composed YAML document."""

    def marks(self, text: str) -> Marks:
        document = yaml.compose(text, yaml.SafeLoader)
        assert document is not None
        return locate_yaml(document)

    def test_block_and_flow(self) -> None:
        """Both styles have places for keys and values."""
        marks = self.marks("hosts:\n- name: a\n  devices: [0,\n    1]\n")
        self.assertEqual(marks.find(("hosts", 0, "devices", 1)), Place(4, 5))
        self.assertEqual(marks.find(("hosts", 0, "devices"), key=True), Place(3, 3))

    def test_repeated(self) -> None:
        """A key that comes again is reported, one that overrides a merged key is not."""
        marks = self.marks("- &x {a: 1}\n- {<<: *x, a: 2}\n- {b: 1, b: 2}\n")
        self.assertEqual([r.path for r in marks.repeated], [(2, "b")])

    def test_loop(self) -> None:
        """A document that contains itself is located without end."""
        self.assertEqual(self.marks("&a [x, *a]").find((1, 1, 1, 0)), Place(1, 5))

    def test_bomb(self) -> None:
        """Aliases that multiply cost no more than their text."""
        lines = ["- &a0 [x]"] + [f"- &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40)]
        self.assertEqual(self.marks("\n".join(lines)).find((39, 8, 8)), Place(38, 3))
