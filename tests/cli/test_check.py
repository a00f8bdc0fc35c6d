"""Tests for ``twisted_router.cli.check``."""

from __future__ import annotations

import io
import sys

from twisted.python import usage
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.cli.check import CheckOptions, check, summary
from twisted_router.config.model import FleetConfig, HostConfig, ReplicaConfig


class SummaryTests(SynchronousTestCase):
    """``summary`` shows what a fleet means."""

    def test_replicas(self) -> None:
        """Each static replica has a line with its URL and what TLS uses."""
        fleet = FleetConfig(
            (
                ReplicaConfig("a", "h", 1),
                ReplicaConfig("long", "::1", 2, "https", ca_file="/ca", client_cert="/cert"),
            )
        )
        self.assertEqual(
            list(summary(fleet)),
            [
                "replicas that run already (routed to, never stopped):",
                "  a     http://h:1",
                "  long  https://[::1]:2  trusts /ca  shows /cert",
                "capacity: 2 replicas listed, 0 slots to launch on",
            ],
        )

    def test_hosts(self) -> None:
        """Each host has its slots with devices and address; the own machine comes first."""
        fleet = FleetConfig(
            (),
            (
                HostConfig("far", (0, 1), "/m", ssh="u@fd00::1", launch_wrapper=("run", "a b", "{device}")),
                HostConfig("near", (4, 5), "/m", devices_per_replica=2, served_model_name="qwen"),
                HostConfig("other", (1,), command=("vllm", "serve", "x y"), port_base=9000),
            ),
        )
        self.assertEqual(
            list(summary(fleet)),
            [
                "hosts to launch on (filled in this order):",
                "  near: this machine, 1 slot, pypto-serving with /m as qwen",
                "    near-d4  devices 4,5  http://127.0.0.1:8005",
                "  other: this machine, 1 slot, command: vllm serve 'x y'",
                "    other-d1  device 1  http://127.0.0.1:9001",
                "  far: over ssh to u@fd00::1, 2 slots, pypto-serving with /m",
                "    handed to: run 'a b' '{device}'",
                "    far-d0  device 0  http://[fd00::1]:8001",
                "    far-d1  device 1  http://[fd00::1]:8002",
                "capacity: 0 replicas listed, 4 slots to launch on",
            ],
        )


class CheckTests(SynchronousTestCase):
    """``check`` judges files: good ones on ``out``, all problems on ``err``."""

    def file(self, text: str) -> str:
        path = self.mktemp()
        with open(path, "w") as file:
            file.write(text)
        return str(path)

    def check(self, *files: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        return check(files, out, err), out.getvalue(), err.getvalue()

    def test_good(self) -> None:
        """A good file gives a summary and 0."""
        path = self.file('{"replicas": [{"host": "h", "port": 1}]}')
        self.assertEqual(
            self.check(path),
            (
                0,
                f"{path}: good\n  replicas that run already (routed to, never stopped):\n    h:1  http://h:1\n"
                "  capacity: 1 replica listed, 0 slots to launch on\n",
                "",
            ),
        )

    def test_bad(self) -> None:
        """A bad file gives all its problems and 1, and no summary."""
        path = self.file('{"replicas": [{"host": "h"}], "x": 1}')
        self.assertEqual(
            self.check(path),
            (
                1,
                "",
                f"{path}:1:15: $.replicas[0].port: expected a port from 1 to 65535, got nothing\n"
                f'{path}:1:31: $.x: expected a known key, got "x"\n',
            ),
        )

    def test_policy(self) -> None:
        """A policy in the file is shown, or refused as the router would refuse it."""
        text = '{"replicas": [{"host": "h", "port": 1}], "policy": "%s"}'
        code, out, _ = self.check(self.file(text % "session:slack=3"))
        self.assertEqual((code, out.count("  policy: session:slack=3\n")), (0, 1))
        for policy, why in (("sesion", "no policy 'sesion'; there are "), ("session:slak=3", "no parameter")):
            path = self.file(text % policy)
            code, out, err = self.check(path)
            self.assertEqual((code, out), (1, ""))
            self.assertTrue(err.startswith(f"{path}: $.policy: "), err)
            self.assertIn(why, err)

    def test_several(self) -> None:
        """One bad file among good ones decides the exit code; the others are still shown."""
        good = self.file('{"replicas": [{"host": "h", "port": 1}]}')
        code, out, err = self.check(good, "absent", good)
        self.assertEqual(
            (code, out.count("good"), err), (1, 2, "absent: cannot be read: No such file or directory\n")
        )

    def test_warning(self) -> None:
        """A warning is told and does not make a file bad."""
        path = self.file('{"replicas": [{"host": "h", "port": 1, "scheme": "https", "ca_file": "/no/ca"}]}')
        code, _, err = self.check(path)
        self.assertEqual(
            (code, err),
            (0, f"{path}: warning: replica h:1: ca_file /no/ca is not a file; it cannot be reached\n"),
        )

    def test_narrow_terminal(self) -> None:
        """What the terminal cannot show is escaped, not a traceback."""
        path = self.file('{"replicas": [{"name": "tür", "host": "h", "port": 1}]}')
        raw = io.BytesIO()
        with io.TextIOWrapper(raw, encoding="ascii", write_through=True) as out:
            self.assertEqual(check([path], out, io.StringIO()), 0)
            self.assertIn(b"t\\xfcr  http://h:1", raw.getvalue())


class OptionsTests(SynchronousTestCase):
    """The subcommand's command line."""

    def test_files(self) -> None:
        """Any number of files is taken, and ``run`` gives the exit code."""
        options = CheckOptions()
        options.parseOptions(["absent", "absent.yaml"])
        err = io.StringIO()
        self.patch(sys, "stderr", err)
        self.assertEqual(options.run(), 1)
        self.assertEqual(err.getvalue().count("cannot be read"), 2)

    def test_none(self) -> None:
        """Without a file there is nothing to check."""
        error = self.assertRaises(usage.UsageError, CheckOptions().parseOptions, [])
        self.assertEqual(str(error), "check-config needs a file: check-config FILE [FILE...]")

    def test_help(self) -> None:
        """The help says how it is called and what comes out."""
        text = str(CheckOptions())
        self.assertTrue(text.startswith("FILE [FILE...]"), text)
        self.assertIn("Exit code 1", text)
