"""Tests for ``twisted_router.config.reading``."""

from __future__ import annotations

import json
import os
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.config.model import FleetConfig, HostConfig, ReplicaConfig
from twisted_router.config.reading import MAX_FILE, parse_fleet, read_fleet
from twisted_router.config.shape import HOST, REPLICA
from twisted_router.errors import ConfigError

from .refusals import refusals

EMPTY = 'expected an object with "replicas" or "hosts"'
DEEP = "nested too deeply for a configuration"


class FileTests(SynchronousTestCase):
    """``read_fleet`` answers every unusable file with one clear line."""

    def refusal(self, content: bytes, suffix: str = ".json") -> str:
        path = self.mktemp() + suffix
        with open(path, "wb") as file:
            file.write(content)
        (line,) = self.assertRaises(ConfigError, read_fleet, path).problems
        return str(line).replace(path, "F")

    def test_good(self) -> None:
        """A good file gives its fleet."""
        path = self.mktemp()
        with open(path, "w") as file:
            file.write('{"replicas": [{"host": "h", "port": 1}]}')
        self.assertEqual(read_fleet(path), FleetConfig((ReplicaConfig("h:1", "h", 1),)))

    def test_absent(self) -> None:
        """A file that is not there."""
        error = self.assertRaises(ConfigError, read_fleet, "absent.json")
        self.assertEqual(error.problems, ("absent.json: cannot be read: No such file or directory",))

    def test_directory(self) -> None:
        """A directory."""
        os.mkdir("fleet.d")
        error = self.assertRaises(ConfigError, read_fleet, "fleet.d")
        self.assertEqual(error.problems, ("fleet.d: cannot be read: Is a directory",))

    def test_impossible_name(self) -> None:
        """A name no file can have."""
        error = self.assertRaises(ConfigError, read_fleet, "a\0b")
        self.assertEqual(error.problems, ("a\0b: cannot be read: embedded null byte",))

    def test_not_utf8(self) -> None:
        """Bytes that are not UTF-8, at their line and column in characters."""
        self.assertEqual(
            self.refusal('{\n"é": "'.encode() + b"\xff"), "F:2:7: expected UTF-8 text, got byte 0xff"
        )

    def test_utf16(self) -> None:
        """UTF-16, as some editors write."""
        self.assertEqual(self.refusal("{}".encode("utf-16-le")), "F:1:2: expected text, got a NUL byte")
        self.assertEqual(self.refusal("{}".encode("utf-16")), "F:1:1: expected UTF-8 text, got byte 0xff")

    def test_byte_order_mark(self) -> None:
        """UTF-8 with a byte order mark."""
        self.assertEqual(self.refusal(b"\xef\xbb\xbf{}"), "F:1:1: expected UTF-8 without a byte order mark")

    def test_empty(self) -> None:
        """A file with nothing, or nothing but blanks, in it."""
        for content, suffix in ((b"", ".json"), (b" \n\t", ".json"), (b"", ".yaml")):
            self.assertEqual(self.refusal(content, suffix), f"F:1:1: {EMPTY}, got an empty file")

    def test_too_large(self) -> None:
        """A file that is no configuration by its size is not even parsed."""
        self.assertEqual(
            self.refusal(b" " * (MAX_FILE + 1)),
            f"F: expected a configuration of at most {MAX_FILE} bytes, got more",
        )


class SyntaxTests(SynchronousTestCase):
    """What is not JSON or YAML is answered by one line at the place where it stops being that."""

    def test_json(self) -> None:
        """Everything ``json`` cannot read."""
        table: dict[str, list[str]] = {
            "replicas: []": [
                "1:1: not valid JSON: expecting value (YAML is read when the name ends in .yaml or .yml)"
            ],
            '{"replicas": [': ["1:15: not valid JSON: expecting value"],
            '{"replicas": []} x': ["1:18: not valid JSON: extra data"],
            '{"replicas":\n  [1 2]}': ["2:6: not valid JSON: expecting ',' delimiter"],
            "[" * 100_000: [f"1:1: {DEEP}"],
            '{"a":' * 100_000: [f"1:1: {DEEP}"],
            "\0\0\0": ["1:1: expected text, got a NUL byte"],
        }
        self.assertEqual({text: refusals(text) for text in table}, table)

    def test_yaml(self) -> None:
        """Everything PyYAML cannot read, and every tag that is not a plain value."""
        constructor = "could not determine a constructor for the tag"
        table: dict[str, list[str]] = {
            "a: b: c": ["1:5: not valid YAML: mapping values are not allowed here"],
            "\tx: 1": ["1:1: not valid YAML: found character '\\t' that cannot start any token"],
            "a\n---\nb": ["2:1: not valid YAML: but found another document"],
            "a: \x01": ["1:4: not valid YAML: character U+0001 is not allowed"],
            "a: *b": ["1:4: not valid YAML: found undefined alias 'b'"],
            "? [1]\n: 2": ["1:3: not valid YAML: found unhashable key"],
            "a: !!int b": ['1:4: not valid YAML: "b" is no int'],
            "a: !!bool {=: maybe}": ["1:4: not valid YAML: expected a scalar node, but found mapping"],
            "a: !!float ''": ['1:4: not valid YAML: "" is no float'],
            "a: !!set {b}": [f"1:4: not valid YAML: {constructor} 'tag:yaml.org,2002:set'"],
            "a: !!timestamp x": [f"1:4: not valid YAML: {constructor} 'tag:yaml.org,2002:timestamp'"],
            "!!python/object/apply:os.system [x]": [
                f"1:1: not valid YAML: {constructor} 'tag:yaml.org,2002:python/object/apply:os.system'"
            ],
            "[" * 5_000: [f"1:1: {DEEP}"],
            "# nothing": [f"1:1: {EMPTY}, got no value"],
        }
        self.assertEqual({text: refusals(text, "f.yaml") for text in table}, table)

    def test_top_level(self) -> None:
        """A document that is no object, or an object without a replica or host."""
        none = "1:1: $: expected at least one replica or host, got none"
        table: dict[str, list[str]] = {
            "[]": [f"1:1: $: {EMPTY}, got an empty list"],
            "[1]": [f"1:1: $: {EMPTY}, got a list"],
            "null": [f"1:1: $: {EMPTY}, got null"],
            '"x"': [f'1:1: $: {EMPTY}, got "x"'],
            "{}": [none],
            '{"replicas": [], "hosts": []}': [none],
            '{"replicas": {}, "hosts": 3}': [
                "1:14: $.replicas: expected a list, got an empty object",
                "1:27: $.hosts: expected a list, got 3",
            ],
            '{"replica": []}': [
                '1:2: $.replica: expected a known key, got "replica"; did you mean "replicas"?'
            ],
        }
        for name in ("f.json", "f.yaml"):
            self.assertEqual({text: refusals(text, name) for text in table}, table)


class RepeatedKeyTests(SynchronousTestCase):
    """A key that comes twice is a problem of its own: loading would silently take the last."""

    def test_repeated(self) -> None:
        """Each later occurrence is pointed at, beside all other problems."""
        text = (
            '{"replicas": [{"host": "h",\n "port": 0, "port": 1, "port": 2}],\n'
            ' "replicas": [{"host": "", "port": 1}]}'
        )
        once = "expected each key once, got it again (first at line"
        for name in ("f.json", "f.yaml"):
            self.assertEqual(
                refusals(text, name),
                [
                    f"2:13: $.replicas[0].port: {once} 2, column 2)",
                    f"2:24: $.replicas[0].port: {once} 2, column 13)",
                    f"3:2: $.replicas: {once} 1, column 2)",
                    '3:24: $.replicas[0].host: expected a bare host name or IP address, got ""',
                ],
            )


class YamlValueTests(SynchronousTestCase):
    """YAML means what it says: none of YAML 1.1's surprises."""

    def test_names(self) -> None:
        """A file is YAML by the end of its name, in any case; everything else is JSON."""
        text = "replicas:\n- {host: h, port: 1}\n"
        for name in ("f.yaml", "f.yml", "F.YAML"):
            self.assertEqual(refusals(text, name), [])
        for name in ("f.json", "yaml", "f.yaml.bak"):
            self.assertEqual(len(refusals(text, name)), 1)

    def test_words_are_strings(self) -> None:
        """``no``, ``on``, dates and clock times are strings."""
        fleet = parse_fleet(
            "hosts: [{devices: [0], model: no, env: {A: on, B: 2026-01-01, C: 22:22, D: '1', E: 0x1f}}]",
            "f.yml",
        )
        self.assertEqual(fleet.hosts[0].model, "no")
        self.assertEqual([v for _, v in fleet.hosts[0].env], ["on", "2026-01-01", "22:22", "1", "0x1f"])

    def test_numbers_are_decimal(self) -> None:
        """A number with a leading zero or in another base is no port."""
        for text in ("010", "0x1f", "22:22", "1_000"):
            self.assertEqual(
                refusals(f"replicas: [{{host: h, port: {text}}}]", "f.yaml"),
                [f'1:28: $.replicas[0].port: expected a port from 1 to 65535, got "{text}"'],
            )

    def test_floats_are_no_integers(self) -> None:
        """A number with a point or exponent is no port."""
        for text, shown in (("8001.0", "8001.0"), ("1e3", "1000.0"), (".5", "0.5"), ("1.e+2", "100.0")):
            self.assertEqual(
                refusals(f"replicas: [{{host: h, port: {text}}}]", "f.yaml"),
                [f"1:28: $.replicas[0].port: expected a port from 1 to 65535, got {shown}"],
            )

    def test_merge(self) -> None:
        """A host may take over the keys of another."""
        first, second = parse_fleet(
            "hosts:\n- &a {devices: [0], model: m, port_base: 9}\n- {<<: *a, port_base: 10}", "f.yaml"
        ).hosts
        self.assertEqual((first.port_base, second.port_base, second.model), (9, 10, "m"))

    def test_loop(self) -> None:
        """A document that contains itself is refused like any other wrong value."""
        self.assertEqual(
            refusals("replicas: &a [*a]", "f.yaml"), ["1:11: $.replicas[0]: expected an object, got a list"]
        )


class SameSchemaTests(SynchronousTestCase):
    """JSON and YAML give equal values."""

    def test_equal(self) -> None:
        """A document with every key is the same fleet in both."""
        document: dict[str, list[dict[str, Any]]] = {
            "replicas": [
                {
                    "name": "n",
                    "host": "::1",
                    "port": 443,
                    "scheme": "https",
                    "ca_file": "/c",
                    "client_cert": "/d",
                    "health_path": "/up?x=1",
                    "kv_events": "tcp://[::1]:5557",
                    "kv_events_replay": "tcp://b:1",
                }
            ],
            "hosts": [
                {
                    "name": "h",
                    "ssh": "u@node",
                    "identity_file": "/i",
                    "known_hosts": "/k",
                    "ssh_config": "/s",
                    "ssh_client": "openssh",
                    "devices": [4, 2],
                    "devices_per_replica": 2,
                    "port_base": 9000,
                    "model": "m",
                    "served_model_name": "s",
                    "env": {"B": "{port}", "A": ""},
                    "launch_wrapper": ["w"],
                    "stop_command": ["x"],
                    "command": ["c", "{model}"],
                    "workdir": "/w",
                    "log_dir": "/l/{device}",
                    "health_path": "/h",
                },
                {"devices": [0], "model": "m", "serve_args": ["{device}", ""], "python": "python3.11"},
            ],
        }
        self.assertEqual(set(document["replicas"][0]), set(REPLICA))
        self.assertEqual({key for host in document["hosts"] for key in host}, set(HOST))
        expected = FleetConfig(
            (
                ReplicaConfig(
                    "n", "::1", 443, "https", "/c", "/d", "/up?x=1", "tcp://[::1]:5557", "tcp://b:1"
                ),
            ),
            (
                HostConfig(
                    name="h",
                    ssh="u@node",
                    identity_file="/i",
                    known_hosts="/k",
                    ssh_config="/s",
                    ssh_client="openssh",
                    devices=(4, 2),
                    devices_per_replica=2,
                    port_base=9000,
                    model="m",
                    served_model_name="s",
                    env=(("B", "{port}"), ("A", "")),
                    launch_wrapper=("w",),
                    stop_command=("x",),
                    command=("c", "{model}"),
                    workdir="/w",
                    log_dir="/l/{device}",
                    health_path="/h",
                ),
                HostConfig("host1", (0,), "m", serve_args=("{device}", ""), python="python3.11"),
            ),
        )
        self.assertEqual(parse_fleet(json.dumps(document, indent="\t"), "f.json"), expected)
        self.assertEqual(parse_fleet(yaml.safe_dump(document, sort_keys=False), "f.yaml"), expected)

    def test_same_problems(self) -> None:
        """A wrong document is refused in the same words at the same places."""
        text = (
            '{"replicas": [{"host": "h", "prot": 1}],\n "hosts": [{"devices": [1, true], "env": {"A": 1}}]}'
        )
        self.assertEqual(refusals(text), refusals(text, "f.YAML"))
        self.assertEqual(len(refusals(text)), 5)


def _values() -> st.SearchStrategy[Any]:
    """Values like those a fleet has, right and wrong."""
    scalars = st.sampled_from(
        [
            None,
            True,
            0,
            1,
            8,
            -1,
            1.5,
            70000,
            10**30,
            "",
            "a",
            "a b",
            "::1",
            "u@h",
            "https",
            "conch",
            "~x/y",
            "\0",
            "\ud800",
        ]
    )
    return scalars | st.lists(scalars, max_size=4) | st.dictionaries(st.sampled_from(["A", "1", ""]), scalars)


def _records(table: Any) -> st.SearchStrategy[Any]:
    good = {"host": "h", "port": 1, "devices": [0], "model": "m"}
    keys = st.dictionaries(st.sampled_from([*table, "nmae", ""]), _values(), max_size=5)
    return _values() | keys.map(lambda some: {k: v for k, v in good.items() if k in table} | some)


class FuzzTests(SynchronousTestCase):
    """Whatever the text, the answer is a fleet or a ConfigError with printable lines."""

    def judge(self, text: str, name: str) -> None:
        try:
            fleet = parse_fleet(text, name)
        except ConfigError as error:
            self.assertTrue(error.problems)
            for line in error.problems:
                self.assertRegex(line, rf"^{name}:\d+:\d+: \S")
                self.assertTrue(line.isprintable(), line)
        else:
            self.assertIsInstance(fleet, FleetConfig)
            self.assertTrue(fleet.replicas or fleet.hosts)

    @settings(max_examples=200, deadline=None)
    @given(st.text() | st.text('{}[]",:\\ \n0e-&*<!|>?#a'), st.sampled_from(["f.json", "f.yaml"]))
    def test_any_text(self, text: str, name: str) -> None:
        """Any text at all."""
        self.judge(text, name)

    @settings(max_examples=300, deadline=None)
    @given(
        st.fixed_dictionaries(
            {},
            optional={
                "replicas": st.lists(_records(REPLICA)),
                "hosts": st.lists(_records(HOST)),
                "x": _values(),
            },
        ),
        st.sampled_from(["f.json", "f.yaml"]),
    )
    def test_almost_right(self, document: Any, name: str) -> None:
        """Documents that have a fleet's shape with anything in it."""
        self.judge(json.dumps(document), name)
