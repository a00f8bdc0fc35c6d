"""``pypto-router check-config``: what a configuration file means, or all that is wrong with it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import TextIO, cast

from twisted.python import usage
from twisted.python.reflect import namedModule

from ..config.advice import warnings
from ..config.model import FleetConfig, HostConfig, authority, in_filling_order
from .command import CommandOptions


class CheckOptions(CommandOptions):
    """The command line of ``check-config``."""

    synopsis = "FILE [FILE...]"
    longdesc = """Read configuration files exactly as the router would and show what they mean: every replica
it would route to, every slot it could launch on, with devices, port and command. Nothing is started and no
machine is contacted.
A file that cannot be used is answered with everything that is wrong in it, a line each, as
file:line:column: path: what was expected, what was found. Exit code 1 when any file has a problem, else 0.
Warnings, about key files that are missing for instance, do not change the exit code.
Files are JSON; names that end in .yaml or .yml are YAML. Samples lie in the directory etc/ of the source."""

    def parseArgs(self, *files: str) -> None:
        """Take the files to check."""
        if not files:
            raise usage.UsageError("check-config needs a file: check-config FILE [FILE...]")
        self.files = files

    def run(self) -> int:
        """Check the files against the process's own output; give the exit code."""
        return check(self.files, sys.stdout, sys.stderr)


def check(files: Sequence[str], out: TextIO, err: TextIO) -> int:
    """Summarise each usable file on ``out``, problems and warnings on ``err``; give the exit code."""
    code = 0
    for file in files:
        try:
            fleet = _read(file)
        except usage.UsageError as error:
            code = 1
            for problem in str(error).splitlines():
                _write(err, problem)
            continue
        _write(out, f"{file}: good")
        for line in summary(fleet):
            _write(out, f"  {line}")
        for warning in warnings(fleet):
            _write(err, f"{file}: warning: {warning}")
    return code


def _read(file: str) -> FleetConfig:
    """Read a file by the router's own command line, which alone knows the policies. Raises ``UsageError``."""
    options = namedModule("twisted_router.tap").Options()
    options.parseOptions(["--replicas", file])
    return cast(FleetConfig, options.fleet)


def _write(stream: TextIO, line: str) -> None:
    """Write one line, escaping what the stream's encoding lacks: a file may hold any name."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    print(line.encode(encoding, "backslashreplace").decode(encoding), file=stream)


def summary(fleet: FleetConfig) -> Iterator[str]:
    """Describe a fleet for a person, a line each."""
    width = max((len(r.name) for r in fleet.replicas), default=0)
    if fleet.replicas:
        yield "replicas that run already (routed to, never stopped):"
    for replica in fleet.replicas:
        extras = [f"{key} {value}" for key, value in _trust(replica.ca_file, replica.client_cert)]
        yield "  ".join(["", replica.name.ljust(width), replica.url, *extras])
    if fleet.hosts:
        yield "hosts to launch on (filled in this order):"
    for host in in_filling_order(fleet.hosts):
        yield from _host(host)
    if fleet.policy is not None:
        yield f"policy: {fleet.policy}"
    slots = sum(host.capacity for host in fleet.hosts)
    yield f"capacity: {_count(len(fleet.replicas), 'replica')} listed, {_count(slots, 'slot')} to launch on"


def _trust(ca_file: str | None, client_cert: str | None) -> Iterator[tuple[str, str]]:
    if ca_file is not None:
        yield "trusts", ca_file
    if client_cert is not None:
        yield "shows", client_cert


def _host(host: HostConfig) -> Iterator[str]:
    place = "this machine" if host.ssh is None else f"over ssh to {host.ssh}"
    yield f"  {host.name}: {place}, {_count(host.capacity, 'slot')}, {_what(host)}"
    if host.launch_wrapper:
        yield f"    handed to: {shlex.join(host.launch_wrapper)}"
    for group in host.groups:
        devices = f"device{'s'[: len(group) != 1]} {','.join(map(str, group))}"
        url = f"http://{authority(host.address, host.slot_port(group))}"
        yield f"    {host.slot_name(group)}  {devices}  {url}"


def _what(host: HostConfig) -> str:
    """Name the engine and the model of a host."""
    if host.command:
        return f"command: {shlex.join(host.command)}"
    served = f" as {host.served_model_name}" if host.served_model_name else ""
    return f"pypto-serving with {host.model}{served}"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s'[: number != 1]}"
