"""From a file's text to a fleet, or to all that is wrong with it at once.

JSON is read by ``json``; a name that ends in ``.yaml`` or ``.yml`` is read by PyYAML, by the same schema
and with nothing but plain values. The structuring is our own (``config.shape`` says why).
"""

from __future__ import annotations

import json

from ..errors import ConfigError
from .locate import Marks, Place, locate_json, place_at, problem_at
from .model import FleetConfig
from .rules import check_fleet
from .shape import Report, read_document, whole_number

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
        raise problem_at(path, place_at(before, len(before)), f"expected UTF-8 text, {found}") from error
    return parse_fleet(text, path)


def parse_fleet(text: str, filename: str) -> FleetConfig:
    """Read a configuration from its text; the name decides between JSON and YAML and goes into messages.

    Raises ConfigError with every problem.
    """
    if text.startswith("\ufeff"):
        raise problem_at(filename, Place(1, 1), "expected UTF-8 without a byte order mark")
    if "\0" in text:
        raise problem_at(filename, place_at(text, text.index("\0")), "expected text, got a NUL byte")
    if not text.strip():
        raise problem_at(
            filename, Place(1, 1), 'expected an object with "replicas" or "hosts", got an empty file'
        )
    if filename.lower().endswith((".yaml", ".yml")):
        from .plain_yaml import load_yaml  # not before it is needed: PyYAML takes a tenth of the start

        value, marks = load_yaml(text, filename)
    else:
        value, marks = _load_json(text, filename)
    report = Report()
    fleet = read_document(value, report)
    check_fleet(fleet, report)
    lines = report.lines(filename, marks)
    if lines:
        raise ConfigError(lines)
    return fleet


def _load_json(text: str, filename: str) -> tuple[object, Marks]:
    try:
        value = json.loads(text, parse_int=whole_number)
    except json.JSONDecodeError as error:
        hint = " (YAML is read when the name ends in .yaml or .yml)" if not error.pos else ""
        problem = f"not valid JSON: {error.msg[0].lower()}{error.msg[1:]}{hint}"
        raise problem_at(filename, Place(error.lineno, error.colno), problem) from error
    except RecursionError as error:
        raise problem_at(filename, Place(1, 1), "nested too deeply for a configuration") from error
    return value, locate_json(text)
