"""Tests for ``twisted_router.config.shape``: what each key may hold."""

from __future__ import annotations

import json
import os
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.config.reading import parse_fleet
from twisted_router.errors import ConfigError

from .refusals import refusals


def replica(**keys: Any) -> str:
    """Write a file of one replica, good but for ``keys``; None leaves a key out."""
    found = {"host": "h", "port": 8001} | keys
    return json.dumps({"replicas": [{k: v for k, v in found.items() if v is not None}]})


def host(**keys: Any) -> str:
    """Write a file of one ssh host, good but for ``keys``; None leaves a key out."""
    found = {"ssh": "u@n", "devices": [0], "model": "m"} | keys
    return json.dumps({"hosts": [{k: v for k, v in found.items() if v is not None}]})


class Refusals(SynchronousTestCase):
    """Compares what is said about single values, place and path cut off."""

    def check(self, write: Any, key: str, table: list[tuple[Any, str]]) -> None:
        found = []
        for value, _ in table:
            lines = refusals(write(**{key: value}))
            found.append((value, " | ".join(line.split(": ", 1)[1] for line in lines)))
        self.assertEqual(found, table)


class ReplicaTests(Refusals):
    """The keys of a replica."""

    def test_required(self) -> None:
        """Host and port are needed; both are missed at once, at the replica."""
        self.assertEqual(
            refusals('{"replicas": [{}, {"name": "x"}]}'),
            [
                f"1:{column}: $.replicas[{i}].{key}: expected {what}, got nothing"
                for i, column in ((0, 15), (1, 19))
                for key, what in (("host", "a host name or IP address"), ("port", "a port from 1 to 65535"))
            ],
        )

    def test_port(self) -> None:
        """A port is a whole number from 1 to 65535 and nothing that merely looks like one."""
        table: list[tuple[Any, str]] = [
            (value, f"expected a port from 1 to 65535, got {shown}")
            for value, shown in (
                ("8001", '"8001"'),
                (True, "true"),
                (8001.0, "8001.0"),
                (float("nan"), "a number that is not finite"),
                (0, "0"),
                (-1, "-1"),
                (65536, "65536"),
                (10**17, "1" + "0" * 17),
                (10**18, "a number of 19 digits"),
                (10**4999 * -1, "a number of 5000 digits"),
                ([], "an empty list"),
                ({"a": 1}, "an object"),
            )
        ]
        # The numbers of thousands of digits are written as text: Python itself refuses to print them.
        found = [
            (value, refusals(replica(port="@").replace('"@"', _digits(value)))[0].split(": ", 2)[2])
            for value, _ in table
        ]
        self.assertEqual(found, table)

    def test_null(self) -> None:
        """A null is not the same as leaving the key out."""
        self.assertEqual(
            refusals('{"replicas": [{"host": "h", "port": 1, "scheme": "https", "ca_file": null}]}')[0],
            "1:70: $.replicas[0].ca_file: expected a path, got null",
        )

    def test_host(self) -> None:
        """A host is a bare name or address that a URL can carry."""
        what = "$.replicas[0].host: expected a host name or IP address, got "
        bare = "$.replicas[0].host: expected a bare host name or IP address, got "
        self.check(
            replica,
            "host",
            [
                (7, what + "7; put it in quotes"),
                ("a\0", what.replace(", got", " without NUL or lone surrogates, got") + '"a\\u0000"'),
                ("", bare + '""'),
                ("a b", bare + '"a b"'),
                ("a\n", bare + '"a\\n"'),
                ("-a", bare + '"-a"'),
                ("u@a", bare + '"u@a"'),
                ("a/b", bare + '"a/b"'),
                ("münchen", bare + '"m\\u00fcnchen"'),
                ("a" * 254, bare + '"' + "a" * 57 + '..."'),
                ("a:80", bare + '"a:80"; the port has its own key, "port"'),
                ("http://a", bare + '"http://a"; the scheme has its own key, "scheme"'),
                ("[::1]", bare + '"[::1]"; write IPv6 addresses without brackets'),
                ("fe80::1%eth0", bare + '"fe80::1%eth0"'),
                ("::12345", bare + '"::12345"'),
                ("a", ""),
                ("A_b.c-d.", ""),
                ("10.0.0.2", ""),
                ("fd00::3", ""),
            ],
        )

    def test_name(self) -> None:
        """A name has no blanks, control characters or slashes."""
        what = '$.replicas[0].name: expected a name without blanks, control characters or "/", got '
        self.check(
            replica,
            "name",
            [
                (1, "$.replicas[0].name: expected a name, got 1; put it in quotes"),
                (" ", what + '" "'),
                ("a b", what + '"a b"'),
                ("a\r\nX: 1", what + '"a\\r\\nX: 1"'),
                ("a\u2028", what + '"a\\u2028"'),
                ("../a", what + '"../a"'),
                ("tür-1", ""),
            ],
        )

    def test_default_name(self) -> None:
        """A replica without a name, or with an empty one, is called host:port; IPv6 stands in brackets."""
        text = '{"replicas": [{"host": "h", "port": 1}, {"host": "::1", "port": 2, "name": ""}]}'
        self.assertEqual([r.name for r in parse_fleet(text, "f.json").replicas], ["h:1", "[::1]:2"])

    def test_scheme(self) -> None:
        """Only http and https, in lower case."""
        what = '$.replicas[0].scheme: expected "http" or "https", got '
        self.check(
            replica,
            "scheme",
            [("ftp", what + '"ftp"'), ("HTTP", what + '"HTTP"'), ([], what + "an empty list"), ("https", "")],
        )

    def test_health_path(self) -> None:
        """A health path goes into a request line."""
        what = "$.replicas[0].health_path: expected a path that begins with / and has no blanks, got "
        self.check(
            replica,
            "health_path",
            [
                ("health", what + '"health"'),
                ("/a b", what + '"/a b"'),
                ("/\r\n", what + '"/\\r\\n"'),
                ("/", ""),
            ],
        )

    def test_kv_events(self) -> None:
        """An endpoint is one to connect to: a host, and a port there can be."""
        what = "$.replicas[0].kv_events: expected an endpoint such as tcp://node02:5557, got "
        self.check(
            replica,
            "kv_events",
            [
                ("tcp://*:5557", what + '"tcp://*:5557"'),
                ("node02:5557", what + '"node02:5557"'),
                ("tcp://node02", what + '"tcp://node02"'),
                ("tcp://node02:65536", what + '"tcp://node02:65536"'),
                ("tcp://node02:0", what + '"tcp://node02:0"'),
                (5557, what + "5557; put it in quotes"),
                ("tcp://node02:65535", ""),
                ("tcp://[fd00::1]:1", ""),
            ],
        )

    def test_unknown(self) -> None:
        """An unknown key is pointed at, and what was meant is guessed."""
        self.assertEqual(
            refusals('{"replicas": [{"host": "h", "port": 1,\n "shceme": "https", "zzz": 1, "": 2}]}'),
            [
                '2:2: $.replicas[0].shceme: expected a known key, got "shceme"; did you mean "scheme"?',
                '2:21: $.replicas[0].zzz: expected a known key, got "zzz"',
                '2:31: $.replicas[0][""]: expected a known key, got ""',
            ],
        )

    def test_many_unknown(self) -> None:
        """A hundred thousand unknown keys are told about without a search for what each could mean."""
        text = '{"replicas": [{' + ",".join(f'"hots{n}":1' for n in range(1000)) + "}]}"
        lines = refusals(text)
        self.assertEqual(len(lines), 1002)
        self.assertNotIn("did you mean", "".join(lines))

    def test_entry(self) -> None:
        """An entry that is no object."""
        self.assertEqual(
            refusals('{"replicas": ["h:1", null]}'),
            [
                '1:15: $.replicas[0]: expected an object, got "h:1"',
                "1:22: $.replicas[1]: expected an object, got null",
            ],
        )


def _digits(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**18:
        return "1000000000000000000" if value > 0 else "-1" + "0" * 4999
    return json.dumps(value)


class HostTests(Refusals):
    """The keys of a host."""

    def test_required(self) -> None:
        """Devices and a model are needed."""
        self.assertEqual(
            refusals('{"hosts": [{}]}'),
            [
                "1:12: $.hosts[0].devices: expected a non-empty list of device numbers, got nothing",
                '1:12: $.hosts[0].model: expected the path of a model (only "command" can do without), '
                "got nothing",
            ],
        )

    def test_no_model(self) -> None:
        """With a command no model is needed; with an empty one it is."""
        self.assertEqual(refusals(host(model=None, command=["serve"])), [])
        self.assertEqual(len(refusals(host(model=None, command=[]))), 1)

    def test_devices(self) -> None:
        """Devices are a list of distinct whole numbers; each wrong one is pointed at."""
        what = "$.hosts[0].devices: expected a non-empty list of device numbers, got "
        self.check(
            host,
            "devices",
            [
                ([], what + "an empty list"),
                (4, what + "4"),
                ("0,1", what + '"0,1"'),
                ([0, 1, 0], "$.hosts[0].devices[2]: expected each device once, got 0 again"),
            ],
        )
        wrong = "expected a device number from 0 to 65535, got"
        self.assertEqual(
            refusals('{"hosts": [{"model": "m",\n  "devices": [0, true, -1, "2",\n  3.0, 65536, [4]]}]}'),
            [
                f"2:18: $.hosts[0].devices[1]: {wrong} true",
                f"2:24: $.hosts[0].devices[2]: {wrong} -1",
                f'2:28: $.hosts[0].devices[3]: {wrong} "2"',
                f"3:3: $.hosts[0].devices[4]: {wrong} 3.0",
                f"3:8: $.hosts[0].devices[5]: {wrong} 65536",
                f"3:15: $.hosts[0].devices[6]: {wrong} a list",
            ],
        )

    def test_numbers(self) -> None:
        """devices_per_replica and port_base are whole numbers."""
        width = "$.hosts[0].devices_per_replica: expected a whole number of at least 1, got "
        self.check(
            host,
            "devices_per_replica",
            [(0, width + "0"), ("1", width + '"1"'), (True, width + "true"), (1.0, width + "1.0"), (1, "")],
        )
        base = "$.hosts[0].port_base: expected a port from 0 to 65535, got "
        self.check(
            host,
            "port_base",
            [("80x1", base + '"80x1"'), (-1, base + "-1"), (False, base + "false"), (8001, "")],
        )

    def test_texts(self) -> None:
        """Model, names and paths are strings with something in them."""
        for key in ("model", "served_model_name", "python", "workdir", "log_dir"):
            what = f"$.hosts[0].{key}: expected a non-empty string"
            self.check(
                host,
                key,
                [
                    ("", what + ', got ""'),
                    (True, what + ", got true; put it in quotes"),
                    (["a"], what + ", got a list"),
                    (" a", what + ' without control characters or blanks around it, got " a"'),
                    ("a\nb", what + ' without control characters or blanks around it, got "a\\nb"'),
                    ("\ud800", what + ' without NUL or lone surrogates, got "\\ud800"'),
                    ("/a b/ü", ""),
                ],
            )

    def test_lists(self) -> None:
        """Argument lists hold strings only; any string will do, an empty one too."""
        for key in ("serve_args", "launch_wrapper", "stop_command", "command"):
            path = f"$.hosts[0].{key}"
            self.check(
                host,
                key,
                [
                    ("--a", f'{path}: expected a list of strings, got "--a"'),
                    ({}, f"{path}: expected a list of strings, got an empty object"),
                    (["a", 16], f"{path}[1]: expected a string, got 16; put it in quotes"),
                    (["a", None], f"{path}[1]: expected a string, got null"),
                    (
                        ["a", "\0"],
                        f'{path}[1]: expected a string without NUL or lone surrogates, got "\\u0000"',
                    ),
                    (["a", "", "b c\n"], ""),
                    ([], ""),
                ],
            )

    def test_programs(self) -> None:
        """A command begins with a program; serve_args do not."""
        for key in ("launch_wrapper", "stop_command", "command"):
            self.check(host, key, [([""], f'$.hosts[0].{key}[0]: expected a program, got ""')])
        self.check(host, "serve_args", [([""], "")])

    def test_env(self) -> None:
        """The environment maps variable names to strings."""
        path = "$.hosts[0].env"
        self.check(
            host,
            "env",
            [
                (["A=1"], f"{path}: expected an object of environment variables, got a list"),
                ({"A": 1}, f"{path}.A: expected a string, got 1; put it in quotes"),
                ({"A": None}, f"{path}.A: expected a string, got null"),
                ({"1A": "x"}, f'{path}["1A"]: expected a variable name, got "1A"'),
                ({"A=B": "x"}, f'{path}["A=B"]: expected a variable name, got "A=B"'),
                ({"": "x"}, f'{path}[""]: expected a variable name, got ""'),
                ({"A": "\0"}, f'{path}.A: expected a string without NUL or lone surrogates, got "\\u0000"'),
                ({"A": '{"json": {"b": 1}}', "_b2": ""}, ""),
            ],
        )

    def test_ssh(self) -> None:
        """An ssh destination names a host and cannot be taken for an option."""
        what = "$.hosts[0].ssh: expected an ssh destination such as user@node02 or ssh://user@node02:2222"
        refused = [
            (value, f"{what}, got {json.dumps(value)}")
            for value in (
                "-oProxyCommand=x",
                "-l@node",
                "u@",
                "@node",
                "u@-node",
                "u@a b",
                "u@node:22",
                "ssh://u@node:0",
                "ssh://u@node:x",
                "ssh://u@node:65536",
                "ssh://u@[::1",
                "ssh://u@[::1]22",
                "http://node",
            )
        ]
        self.check(
            host,
            "ssh",
            [
                ("", f'{what}, got ""; leave the key out for this machine'),
                (True, f"{what}, got true; put it in quotes"),
                *refused,
                ("node02", ""),
                ("u@10.0.0.2", ""),
                ("u@fd00::1", ""),
                ("ssh://node:22/", ""),
                ("ssh://u@[::1]:22", ""),
            ],
        )

    def test_ssh_client(self) -> None:
        """There are two ssh clients."""
        what = '$.hosts[0].ssh_client: expected "openssh" or "conch", got '
        self.check(
            host, "ssh_client", [("ssh", what + '"ssh"'), (1, what + "1"), ("openssh", ""), ("conch", "")]
        )

    def test_unknown(self) -> None:
        """An unknown key is pointed at, and what was meant is guessed."""
        self.assertEqual(
            refusals('{"hosts": [{"devices": [0], "modle": "m", "model": "m"}]}'),
            ['1:29: $.hosts[0].modle: expected a known key, got "modle"; did you mean "model"?'],
        )

    def test_default_name(self) -> None:
        """A host without a name is called after its place in the list."""
        text = '{"hosts": [{"name":"a","devices":[0],"model":"m"}, {"devices":[1],"model":"m"}]}'
        self.assertEqual([h.name for h in parse_fleet(text, "f.json").hosts], ["a", "host1"])


class HomeTests(SynchronousTestCase):
    """A leading ``~`` in the paths of our own files is the home directory."""

    def test_expands(self) -> None:
        """All five keys expand; paths on the other machine do not."""
        self.patch(os, "environ", os.environ | {"HOME": "/home/me"})
        fleet = parse_fleet(
            json.dumps(
                {
                    "replicas": [
                        {"host": "h", "port": 1, "scheme": "https", "ca_file": "~/ca", "client_cert": "~/c"}
                    ],
                    "hosts": [
                        {
                            "ssh": "n",
                            "devices": [0],
                            "model": "~/m",
                            "identity_file": "~/i",
                            "known_hosts": "~/k",
                            "ssh_config": "~/s",
                        }
                    ],
                }
            ),
            "f.json",
        )
        (replica,), (host,) = fleet.replicas, fleet.hosts
        self.assertEqual(
            [replica.ca_file, replica.client_cert, host.identity_file, host.known_hosts, host.ssh_config],
            [f"/home/me/{name}" for name in ("ca", "c", "i", "k", "s")],
        )
        self.assertEqual(host.model, "~/m")

    def test_unknown_user(self) -> None:
        """The home of a user nobody knows is refused."""
        self.assertEqual(
            refusals(host(identity_file="~no-such-user-here/id")),
            [
                "1:74: $.hosts[0].identity_file: expected a path, or ~ of a user known here, "
                'got "~no-such-user-here/id"'
            ],
        )


class PolicyTests(SynchronousTestCase):
    """``policy`` beside the replicas."""

    def read(self, policy: str) -> str | None:
        return parse_fleet(
            f'{{"replicas": [{{"host": "h", "port": 1}}], "policy": {policy}}}', "f.json"
        ).policy

    def test_accepted(self) -> None:
        """A name, or a name with parameters, becomes what ``--policy`` takes."""
        self.assertEqual(self.read('"work"'), "work")
        self.assertEqual(
            self.read('{"name": "prefix", "basis": "relative", "alpha": 2}'), "prefix:basis=relative,alpha=2"
        )
        self.assertEqual(self.read('{"name": "kv"}'), "kv")

    def test_refused(self) -> None:
        """Anything else is a problem with its place."""
        for policy in (
            "3",
            "null",
            "[]",
            '""',
            "{}",
            '{"name": 3}',
            '{"name": "kv", "x": []}',
            '{"name": "kv", "x": true}',
        ):
            with self.assertRaises(ConfigError) as caught:
                self.read(policy)
            self.assertIn("f.json:1:", caught.exception.problems[0])
            self.assertIn("$.policy", caught.exception.problems[0])
