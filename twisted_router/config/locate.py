"""From a path inside a configuration file to the line and column a person has to look at.

Neither ``json`` nor PyYAML's safe loading keeps positions, so the text is walked a second time: JSON by a
token scan (PyYAML would refuse JSON indented by tabs), YAML over the node graph PyYAML composes.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right

from attrs import define, field, frozen

from ..errors import ConfigError

#: Keys and list indices from the top of the document down.
Path = tuple[str | int, ...]

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,60}")
#: A string (and the colon that makes it a key), a bracket, or any other scalar of valid JSON.
_TOKEN = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?|[{}\[\]]|[^\s{}\[\],:"]+', re.DOTALL)


def show_path(path: Path) -> str:
    """Write a path as ``$.hosts[1].port_base``; keys that are no plain words are quoted and shortened."""
    shown = "$"
    for step in path:
        if isinstance(step, int):
            shown += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            shown += f".{step}"
        else:
            shown += f"[{quote(step)}]"
    return shown


def quote(text: str) -> str:
    """Quote a text from the file so that it fits one line of a terminal: escaped, at most 60 characters."""
    return json.dumps(text if len(text) <= 60 else text[:57] + "...")


@frozen(order=True)
class Place:
    """Line and column, both counted from 1, in characters."""

    line: int
    column: int


@define(eq=False)
class Mark:
    """Where one value begins, where the key before it begins, and the marks of what is inside."""

    place: Place
    inside: dict[str | int, tuple[Place, Mark]] = field(factory=dict)


@frozen
class Repeated:
    """A key that an object holds more than once.

    :ivar path: the object's path and the key.
    :ivar place: the later occurrence.
    :ivar first: the earlier one.
    """

    path: Path
    place: Place
    first: Place


@frozen
class Marks:
    """The positions of one document.

    :ivar repeated: duplicate keys, which loading would silently resolve in favour of the last.
    """

    top: Mark
    repeated: tuple[Repeated, ...] = ()

    def find(self, path: Path, key: bool = False) -> Place:
        """Give the place of the value at ``path``, or of its key; of the nearest parent when it is absent."""
        mark, place = self.top, self.top.place
        for step in path:
            found = mark.inside.get(step)
            if found is None:
                return mark.place
            place, mark = found
        return place if key else mark.place


def locate_json(text: str) -> Marks:
    """Locate every value of a text that ``json.loads`` has accepted; no recursion, so depth is no matter."""
    starts = [0, *(m.end() for m in re.finditer("\n", text))]

    def place(offset: int) -> Place:
        line = bisect_right(starts, offset)
        return Place(line, offset - starts[line - 1] + 1)

    top: Mark | None = None
    repeated: list[Repeated] = []
    path: list[str | int] = []
    opened: list[Mark] = []
    key_place: Place | None = None
    for match in _TOKEN.finditer(text):
        lexeme, offset = match[1] or match[0], match.start()
        if lexeme in "}]":
            opened.pop()
            path.pop()
        elif match[2]:
            path[-1] = json.loads(lexeme)
            key_place = place(offset)
            before = opened[-1].inside.get(path[-1])
            if before is not None:
                repeated.append(Repeated(tuple(path), key_place, before[0]))
        else:
            mark = Mark(place(offset))
            if not opened:
                top = mark
            else:
                step = path[-1]
                if isinstance(step, int):
                    step = path[-1] = step + 1
                opened[-1].inside[step] = (key_place or mark.place, mark)
            key_place = None
            if lexeme in "{[":
                opened.append(mark)
                path.append("" if lexeme == "{" else -1)
    assert top is not None, "json.loads accepts no text without a value"
    return Marks(top, tuple(repeated))


def place_at(text: str, offset: int) -> Place:
    """Count lines and columns up to an offset."""
    before = text[:offset]
    return Place(before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)


def problem_at(filename: str, place: Place, problem: str) -> ConfigError:
    """Make the error that says what is wrong at one place."""
    return ConfigError((f"{filename}:{place.line}:{place.column}: {problem}",))
