"""YAML narrowed to the values JSON has, and where each of them stands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import yaml

from .locate import Mark, Marks, Path, Place, Repeated, place_at, problem_at, quote
from .shape import whole_number


def load_yaml(text: str, filename: str) -> tuple[object, Marks]:
    """Read a document and the places in it.

    :raises ConfigError: it is not YAML.
    """
    try:
        loader = _PlainLoader(text)
        document = loader.get_single_node()
        if document is None:
            raise problem_at(
                filename, Place(1, 1), 'expected an object with "replicas" or "hosts", got no value'
            )
        marks = locate_yaml(document)  # first, because constructing folds merged keys into the nodes
        return loader.construct_document(document), marks
    except RecursionError as error:
        raise problem_at(filename, Place(1, 1), "nested too deeply for a configuration") from error
    except yaml.reader.ReaderError as error:
        problem = f"not valid YAML: character U+{ord(text[error.position]):04X} is not allowed"
        raise problem_at(filename, place_at(text, error.position), problem) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
        raise problem_at(
            filename, place, f"not valid YAML: {' '.join(str(error.problem).split())}"
        ) from error


def locate_yaml(document: yaml.Node) -> Marks:
    """Locate every value of a composed YAML document; aliases share one mark, so loops and bombs end."""
    repeated: list[Repeated] = []
    marks = {id(document): Mark(_yaml_place(document))}
    waiting: list[tuple[yaml.Node, Path]] = [(document, ())]
    while waiting:
        node, path = waiting.pop()
        mark = marks[id(node)]
        for key_node, step, child in _yaml_children(node):
            if id(child) not in marks:
                marks[id(child)] = Mark(_yaml_place(child))
                waiting.append((child, (*path, step)))
            place = _yaml_place(key_node)
            before = mark.inside.get(step)
            if before is not None:
                repeated.append(Repeated((*path, step), place, before[0]))
            mark.inside[step] = (place, marks[id(child)])
    return Marks(marks[id(document)], tuple(repeated))


def _yaml_children(node: yaml.Node) -> Iterator[tuple[yaml.Node, str | int, yaml.Node]]:
    if isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            yield child, index, child
    elif isinstance(node, yaml.MappingNode):
        for key, child in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                yield key, key.value, child


def _yaml_place(node: yaml.Node) -> Place:
    return Place(node.start_mark.line + 1, node.start_mark.column + 1)


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
_plain("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789", whole_number)
_plain(
    "float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", "-+.0123456789", float
)
_PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:null", re.compile(r"(?:~|null|Null|NULL|)\Z"), ["~", "n", "N", ""]
)
_PlainLoader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"<<\Z"), ["<"])
