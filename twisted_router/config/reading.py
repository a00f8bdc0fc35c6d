"""From a file's text to a fleet, or to all that is wrong with it at once.

JSON is read by ``json``; a name that ends in ``.yaml`` or ``.yml`` is read by PyYAML, by the same schema
and with nothing but plain values. The structuring is our own (``config.shape`` says why).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import yaml

from ..errors import ConfigError
from .locate import Marks, Place, locate_json, locate_yaml, quote
from .model import FleetConfig
from .rules import check_fleet
from .shape import MAX_DIGITS, LongNumber, Report, read_document

#: Bytes a configuration file may have; reading a larger one would hold up whoever waits for it.
MAX_FILE = 1 << 20


def read_fleet(path: str) -> FleetConfig:
    """Read a configuration file. Raises ConfigError with every problem in it, also when it is unreadable."""
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_FILE + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError((f"{path}: cannot be read: {reason}",)) from error
    if len(content) > MAX_FILE:
        raise ConfigError((f"{path}: expected a configuration of at most {MAX_FILE} bytes, got more",))
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8")
        found = f"got byte 0x{content[error.start]:02x}"
        raise _at(path, _place(before, len(before)), f"expected UTF-8 text, {found}") from error
    return parse_fleet(text, path)


def parse_fleet(text: str, filename: str) -> FleetConfig:
    """Read a configuration from its text; the name decides between JSON and YAML and goes into messages.

    Raises ConfigError with every problem.
    """
    if text.startswith("\ufeff"):
        raise _at(filename, Place(1, 1), "expected UTF-8 without a byte order mark")
    if "\0" in text:
        raise _at(filename, _place(text, text.index("\0")), "expected text, got a NUL byte")
    if not text.strip():
        raise _at(filename, Place(1, 1), 'expected an object with "replicas" or "hosts", got an empty file')
    load = _load_yaml if filename.lower().endswith((".yaml", ".yml")) else _load_json
    value, marks = load(text, filename)
    report = Report()
    fleet = read_document(value, report)
    check_fleet(fleet, report)
    lines = report.lines(filename, marks)
    if lines:
        raise ConfigError(lines)
    return fleet


def _load_json(text: str, filename: str) -> tuple[object, Marks]:
    try:
        value = json.loads(text, parse_int=_whole)
    except json.JSONDecodeError as error:
        hint = " (YAML is read when the name ends in .yaml or .yml)" if not error.pos else ""
        problem = f"not valid JSON: {error.msg[0].lower()}{error.msg[1:]}{hint}"
        raise _at(filename, Place(error.lineno, error.colno), problem) from error
    except RecursionError as error:
        raise _at(filename, Place(1, 1), "nested too deeply for a configuration") from error
    return value, locate_json(text)


def _load_yaml(text: str, filename: str) -> tuple[object, Marks]:
    try:
        loader = _PlainLoader(text)
        document = loader.get_single_node()
        if document is None:
            raise _at(filename, Place(1, 1), 'expected an object with "replicas" or "hosts", got no value')
        marks = locate_yaml(document)  # first, because constructing folds merged keys into the nodes
        return loader.construct_document(document), marks
    except RecursionError as error:
        raise _at(filename, Place(1, 1), "nested too deeply for a configuration") from error
    except yaml.reader.ReaderError as error:
        problem = f"not valid YAML: character U+{ord(text[error.position]):04X} is not allowed"
        raise _at(filename, _place(text, error.position), problem) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
        raise _at(filename, place, f"not valid YAML: {' '.join(str(error.problem).split())}") from error


def _whole(digits: str) -> int | LongNumber:
    length = len(digits.lstrip("+-"))
    return int(digits) if length <= MAX_DIGITS else LongNumber(length)


def _place(text: str, offset: int) -> Place:
    before = text[:offset]
    return Place(before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)


def _at(filename: str, place: Place, problem: str) -> ConfigError:
    return ConfigError((f"{filename}:{place.line}:{place.column}: {problem}",))


class _PlainLoader(yaml.SafeLoader):
    """Safe loading narrowed to the values JSON has.

    PyYAML follows YAML 1.1, where ``no`` is false, ``22:22`` is 1342 and ``010`` is 8. Here all of these are
    strings, and dates, sets and binaries are refused.
    """

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    yaml_constructors = {
        tag: yaml.SafeLoader.yaml_constructors[tag]
        for tag in (None, *(f"tag:yaml.org,2002:{kind}" for kind in ("null", "str", "seq", "map")))
    }


def _plain(kind: str, pattern: str, first: str, read: Callable[[str], object]) -> None:
    """Teach the loader one kind of scalar, written plainly or with an explicit tag."""
    tag, form = f"tag:yaml.org,2002:{kind}", re.compile(rf"(?:{pattern})\Z")

    def construct(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> object:
        text = loader.construct_scalar(node)
        if not isinstance(text, str) or not form.match(text):
            raise yaml.constructor.ConstructorError(
                None, None, f"{quote(str(text))} is no {kind}", node.start_mark
            )
        return read(text)

    _PlainLoader.add_implicit_resolver(tag, form, list(first))
    _PlainLoader.add_constructor(tag, construct)


_plain("bool", "true|True|TRUE|false|False|FALSE", "tTfF", lambda text: text.lower() == "true")
_plain("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789", _whole)
_plain(
    "float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", "-+.0123456789", float
)
_PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:null", re.compile(r"(?:~|null|Null|NULL|)\Z"), ["~", "n", "N", ""]
)
_PlainLoader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"<<\Z"), ["<"])
