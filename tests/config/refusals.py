"""What the tests of this room share: a text's problems without the file's name."""

from __future__ import annotations

from twisted_router.config.reading import parse_fleet
from twisted_router.errors import ConfigError


def refusals(text: str, filename: str = "f.json") -> list[str]:
    """List the problems of a text as ``line:column: ...``; empty when it is a good configuration."""
    try:
        parse_fleet(text, filename)
    except ConfigError as error:
        return [line.removeprefix(filename + ":") for line in error.problems]
    return []
