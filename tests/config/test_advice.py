"""Tests for ``twisted_router.config.advice``."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_router.config.advice import warnings
from twisted_router.config.model import FleetConfig, HostConfig, ReplicaConfig


class WarningTests(SynchronousTestCase):
    """``warnings`` names what will surprise an operator."""

    def test_none(self) -> None:
        """An ordinary fleet needs no advice."""
        self.assertEqual(
            warnings(FleetConfig((ReplicaConfig("a", "a", 1),), (HostConfig("h", (0,), "m", ssh="n"),))), ()
        )

    def test_files(self) -> None:
        """Each named file that is missing is told with what it breaks."""
        fleet = FleetConfig(
            (ReplicaConfig("a", "a", 1, "https", ca_file="/no/ca", client_cert="/no/cert"),),
            (
                HostConfig(
                    "h",
                    (0,),
                    "m",
                    ssh="n",
                    identity_file="/no/id",
                    known_hosts="/no/known",
                    ssh_config="/no/config",
                ),
            ),
        )
        self.assertEqual(
            warnings(fleet),
            (
                "host h: identity_file /no/id cannot be used: No such file or directory; "
                "launches there will fail",
                "host h: known_hosts /no/known is not a file; launches there will fail",
                "host h: ssh_config /no/config is not a file; launches there will fail",
                "replica a: ca_file /no/ca is not a file; it cannot be reached",
                "replica a: client_cert /no/cert is not a file; it cannot be reached",
            ),
        )

    def test_placeholders(self) -> None:
        """A word in braces that nothing is put in for is named, with the nearest that there is."""
        host = HostConfig(
            "h",
            (0,),
            "m",
            command=("serve", "{modl}", "{modl}", "{model}", "{slot}", "--port={port}"),
            env=(("A", "{device} {host}"), ("B", "${home} {{x}} {'a': 1} {}")),
            stop_command=("stop", "{quux}"),
            log_dir="/l/{devcies}",
            serve_args=("{modl}",),
        )
        stays = "it stays as it is"
        self.assertEqual(
            warnings(FleetConfig(hosts=(host,))),
            (
                f"host h: command has no placeholder {{modl}}, {stays}; did you mean {{model}}?",
                f"host h: env has no placeholder {{host}}, {stays}; there are device, devices, port",
                f"host h: log_dir has no placeholder {{devcies}}, {stays}; did you mean {{devices}}?",
                f"host h: stop_command has no placeholder {{quux}}, {stays}; there are device, devices, port",
            ),
        )

    def test_wrapper(self) -> None:
        """A broker without a stop command may start what cannot be stopped."""
        bare = HostConfig("h", (0,), "m", launch_wrapper=("task-submit", "--run"))
        full = HostConfig("i", (1,), "m", launch_wrapper=("task-submit",), stop_command=("task-cancel",))
        (line,) = warnings(FleetConfig((), (bare, full)))
        self.assertTrue(line.startswith("host h: what task-submit starts can be stopped only where"), line)

    def test_one_address(self) -> None:
        """Two replicas at one address are one replica whose load counts twice."""
        replicas = (ReplicaConfig("a", "localhost", 1), ReplicaConfig("b", "127.0.0.1", 1))
        self.assertEqual(
            warnings(FleetConfig(replicas)),
            ("replicas a and b are one address, http://127.0.0.1:1: its load counts twice",),
        )

    def test_shared_devices(self) -> None:
        """Two entries for one machine must not share cards; different machines may."""
        hosts = (
            HostConfig("a", (0, 1, 2), "m", ssh="me@node"),
            HostConfig("b", (2, 1), "m", ssh="you@NODE", port_base=9000),
            HostConfig("c", (1,), "m"),
        )
        self.assertEqual(
            warnings(FleetConfig((), hosts)),
            (
                "hosts a and b are one machine, NODE, and both list device 1, 2: "
                "two replicas may end up on one card",
            ),
        )
