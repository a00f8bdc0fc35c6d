"""Tests for ``twisted_router.config.rules``: what keys and records must not do to one another."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from .refusals import refusals


class ReplicaRuleTests(SynchronousTestCase):
    """Rules for static replicas."""

    def test_tls_keys(self) -> None:
        """Certificates mean nothing without https, whether http is written or meant."""
        only = 'expected this key only with "scheme": "https"'
        self.assertEqual(
            refusals(
                '{"replicas": [{"host": "a", "port": 1, "ca_file": "x"},\n'
                '{"host": "b", "port": 1, "scheme": "http", "client_cert": "x"},\n'
                '{"host": "c", "port": 1, "scheme": "https", "client_cert": "x", "ca_file": "x"}]}'
            ),
            [f"1:40: $.replicas[0].ca_file: {only}", f"2:44: $.replicas[1].client_cert: {only}"],
        )

    def test_replay(self) -> None:
        """What is repeated means nothing where nothing is heard."""
        self.assertEqual(
            refusals('{"replicas": [{"host": "a", "port": 1, "kv_events_replay": "tcp://a:2"}]}'),
            ['1:40: $.replicas[0].kv_events_replay: expected this key only beside "kv_events"'],
        )

    def test_names(self) -> None:
        """Names are unique, given or made from host and port."""
        self.assertEqual(
            refusals(
                '{"replicas": [{"host": "a", "port": 1}, {"host": "b", "port": 1, "name": "a:1"},\n'
                '{"host": "a", "port": 1, "name": ""}]}'
            ),
            [
                '1:74: $.replicas[1].name: expected a name of its own, got "a:1" as $.replicas[0] has',
                '2:34: $.replicas[2].name: expected a name of its own, got "a:1" as $.replicas[0] has',
            ],
        )

    def test_unsound_names(self) -> None:
        """Two replicas whose ports are both wrong are not accused of having one name as well."""
        lines = refusals('{"replicas": [{"host": "a", "port": 0}, {"host": "a", "port": 0}]}')
        self.assertEqual(
            [line.split(" ")[1] for line in lines], ["$.replicas[0].port:", "$.replicas[1].port:"]
        )

    def test_names_of_unsound_replicas(self) -> None:
        """A name that is given twice is told even where other keys are wrong."""
        lines = refusals('{"replicas": [{"name": "a", "host": "a", "port": 0}, {"name": "a", "port": 1}]}')
        self.assertEqual(
            [line.split(" ")[1] for line in lines],
            ["$.replicas[0].port:", "$.replicas[1].host:", "$.replicas[1].name:"],
        )

    def test_unsound_scheme(self) -> None:
        """A misspelt https is told once, not again at each certificate."""
        lines = refusals('{"replicas": [{"host": "a", "port": 1, "scheme": "htps", "ca_file": "x"}]}')
        self.assertEqual([line.split(" ")[1] for line in lines], ["$.replicas[0].scheme:"])

    def test_one_address(self) -> None:
        """Two names for one address are odd, not wrong."""
        self.assertEqual(
            refusals('{"replicas": [{"host": "a", "port": 1, "name": "x"}, {"host": "a", "port": 1}]}'), []
        )


class HostRuleTests(SynchronousTestCase):
    """Rules inside one host."""

    def test_multiple(self) -> None:
        """A leftover card is a typo or a misread model (manual: How many replicas fit on a host)."""
        self.assertEqual(
            refusals('{"hosts": [{"model": "m", "devices": [0, 1, 2, 3, 4, 5], "devices_per_replica": 8}]}'),
            ["1:38: $.hosts[0].devices: expected a multiple of devices_per_replica=8, got 6 devices"],
        )

    def test_port_range(self) -> None:
        """Only the first device of a group makes a port; it has to be one."""
        self.assertEqual(
            refusals(
                '{"hosts": [{"model": "m", "devices": [1, 9, 2, 10], "devices_per_replica": 2,'
                ' "port_base": 65534},\n'
                '{"name": "b", "model": "m", "devices": [1, 0], "port_base": 0}]}'
            ),
            [
                "1:45: $.hosts[0].devices[2]: expected a device whose port is from 1 to 65535, "
                "got 2 (port_base 65534 + 2 = 65536)",
                "2:44: $.hosts[1].devices[1]: expected a device whose port is from 1 to 65535, "
                "got 0 (port_base 0 + 0 = 0)",
            ],
        )

    def test_ssh_only(self) -> None:
        """Keys about ssh mean nothing on the router's own machine."""
        only = 'expected this key only beside "ssh"'
        self.assertEqual(
            refusals(
                '{"hosts": [{"model": "m", "devices": [1],\n'
                '"identity_file": "a",\n"known_hosts": "b",\n"ssh_config": "c",\n"ssh_client": "openssh"}]}'
            ),
            [
                f"2:1: $.hosts[0].identity_file: {only}",
                f"3:1: $.hosts[0].known_hosts: {only}",
                f"4:1: $.hosts[0].ssh_config: {only}",
                f"5:1: $.hosts[0].ssh_client: {only}",
            ],
        )

    def test_command_only(self) -> None:
        """A command is the whole command: what would only shape the default one is not silently dropped."""
        only = 'expected this key only without "command"'
        self.assertEqual(
            refusals('{"hosts": [{"devices": [1], "command": ["x"],\n"serve_args": ["a"],\n"python": "p"}]}'),
            [f"2:1: $.hosts[0].serve_args: {only}", f"3:1: $.hosts[0].python: {only}"],
        )

    def test_openssh_only(self) -> None:
        """Conch reads no ssh_config."""
        self.assertEqual(
            refusals(
                '{"hosts": [{"ssh": "n", "model": "m", "devices": [1],\n'
                '"ssh_config": "a", "ssh_client": "conch"}]}'
            ),
            ['2:1: $.hosts[0].ssh_config: expected this key only with "ssh_client": "openssh"'],
        )

    def test_placeholders(self) -> None:
        """A command cannot use a model, or its name, that is not given."""
        self.assertEqual(
            refusals(
                '{"hosts": [{"devices": [1], "command": ["x", "{model}", "-n={served_model_name}",'
                ' "{port}"]}]}'
            ),
            [
                '1:46: $.hosts[0].command[1]: expected {model} only beside "model", got "{model}"',
                "1:57: $.hosts[0].command[2]: expected {served_model_name} only beside "
                '"served_model_name", got "-n={served_model_name}"',
            ],
        )

    def test_model_is_its_own_name(self) -> None:
        """A model without a name is served under its own; a name serves without a model."""
        for key in ("model", "served_model_name"):
            text = '{"hosts": [{"devices": [1], "command": ["x", "{served_model_name}"], "%s": "m"}]}'
            self.assertEqual(refusals(text % key), [])

    def test_other_braces(self) -> None:
        """Braces that are no placeholder are nobody's business."""
        self.assertEqual(
            refusals(
                '{"hosts": [{"devices": [1], "command": ["x", "{\\"a\\": {}}", "{0}"], "env": {"A": "{b}"}}]}'
            ),
            [],
        )


class FleetRuleTests(SynchronousTestCase):
    """Rules between hosts, and between hosts and replicas."""

    def test_names(self) -> None:
        """Host names are unique, also the ones made up."""
        self.assertEqual(
            refusals(
                '{"hosts": [{"name": "host1", "model": "m", "devices": [1]},\n'
                '{"model": "m", "devices": [2]}]}'
            ),
            ['2:1: $.hosts[1].name: expected a name of its own, got "host1" as $.hosts[0] has'],
        )

    def test_slots_collide(self) -> None:
        """Two slots at one address and port, whatever the spelling of the destination; told once a host."""
        self.assertEqual(
            refusals(
                '{"hosts": [{"name": "a", "ssh": "me@Node.", "model": "m", "devices": [4, 5]},\n'
                '{"name": "b", "ssh": "ssh://you@node:2222", "model": "m", "devices": [0, 1],'
                ' "port_base": 8005}]}'
            ),
            [
                "2:91: $.hosts[1].port_base: expected an address and port of its own for slot b-d0, "
                "got node:8005 as slot a-d4 of $.hosts[0] has"
            ],
        )

    def test_slots_of_different_machines(self) -> None:
        """The same port on another machine, or another port on the same one, is no collision."""
        self.assertEqual(
            refusals(
                '{"hosts": [{"name": "a", "model": "m", "devices": [0]}, {"name": "b", "ssh": "n", '
                '"model": "m", "devices": [0]},\n{"name": "c", "model": "m", "devices": [0],'
                ' "port_base": 9001}]}'
            ),
            [],
        )

    def test_slot_and_replica_collide(self) -> None:
        """A static replica where a slot will listen, under any name of this machine."""
        for host in ("127.0.0.1", "localhost", "LOCALHOST.", "0.0.0.0", "::ffff:127.0.0.1"):
            self.assertEqual(
                refusals(
                    '{"hosts": [{"model": "m", "devices": [0, 1]}],\n"replicas": [{"port": 8002, "host": "'
                    + host
                    + '"}]}'
                ),
                [
                    "1:12: $.hosts[0].port_base: expected an address and port of its own for slot host0-d1, "
                    "got 127.0.0.1:8002 as $.replicas[0] has"
                ],
            )

    def test_slot_and_replica_ipv6(self) -> None:
        """Two spellings of one IPv6 address are one address."""
        (line,) = refusals(
            '{"hosts": [{"ssh": "u@fd00::1", "model": "m", "devices": [0]}],\n'
            '"replicas": [{"port": 8001, "host": "FD00:0::0001"}]}'
        )
        self.assertIn("got [fd00::1]:8001 as $.replicas[0] has", line)

    def test_replica_named_like_a_slot(self) -> None:
        """A static replica cannot have a slot's name."""
        self.assertEqual(
            refusals(
                '{"replicas": [{"name": "a-d1", "host": "h", "port": 1}],\n'
                '"hosts": [{"name": "a", "model": "m", "devices": [0, 1]}]}'
            ),
            ['1:24: $.replicas[0].name: expected a name no slot has, got "a-d1" as a slot of $.hosts[0]'],
        )

    def test_second_device_is_no_slot(self) -> None:
        """A device inside a group gives no slot, so neither name nor port is taken."""
        self.assertEqual(
            refusals(
                '{"replicas": [{"name": "a-d1", "host": "localhost", "port": 8002}],\n'
                '"hosts": [{"name": "a", "model": "m", "devices": [0, 1], "devices_per_replica": 2}]}'
            ),
            [],
        )

    def test_unsound_slots(self) -> None:
        """A host whose numbers are wrong is not accused of collisions that rest on them."""
        lines = refusals(
            '{"hosts": [{"model": "m", "devices": [0], "port_base": "9000"},\n'
            '{"model": "m", "devices": [0], "port_base": 70000}]}'
        )
        wrong = "expected a port from 0 to 65535, got"
        self.assertEqual(
            lines,
            [f'1:56: $.hosts[0].port_base: {wrong} "9000"', f"2:45: $.hosts[1].port_base: {wrong} 70000"],
        )

    def test_unsound_names(self) -> None:
        """A host whose name is refused is not taken for one called by its place."""
        lines = refusals(
            '{"hosts": [{"name": "host1", "model": "m", "devices": [0]},\n'
            '{"name": "a/b", "model": "m", "devices": [1]}]}'
        )
        self.assertEqual([line.split(" ")[1] for line in lines], ["$.hosts[1].name:"])
