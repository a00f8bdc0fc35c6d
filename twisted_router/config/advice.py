"""What is allowed in a configuration and yet worth telling an operator before it hurts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from difflib import get_close_matches

from ..disk import key_problem
from .model import COMMAND_PLACEHOLDERS, PLACEHOLDERS, FleetConfig, HostConfig
from .rules import canonical

#: A word in braces that are neither a shell's variable nor doubled.
_BRACED = re.compile(r"(?<![${])\{([a-z_]+)\}(?!\})").findall


def warnings(fleet: FleetConfig) -> tuple[str, ...]:
    """Name what will fail or surprise later, a sentence each; looks at the files the configuration names."""
    return (
        *_files(fleet),
        *_placeholders(fleet),
        *_wrappers(fleet),
        *_shared_addresses(fleet),
        *_shared_devices(fleet),
    )


def _files(fleet: FleetConfig) -> Iterator[str]:
    for host in fleet.hosts:
        problem = None if host.identity_file is None else key_problem(host.identity_file)
        if problem is not None:
            yield f"host {host.name}: identity_file {problem}; launches there will fail"
        for key, path in (("known_hosts", host.known_hosts), ("ssh_config", host.ssh_config)):
            if path is not None and not os.path.isfile(path):
                yield f"host {host.name}: {key} {path} is not a file; launches there will fail"
    for replica in fleet.replicas:
        for key, path in (("ca_file", replica.ca_file), ("client_cert", replica.client_cert)):
            if path is not None and not os.path.isfile(path):
                yield f"replica {replica.name}: {key} {path} is not a file; it cannot be reached"


def _placeholders(fleet: FleetConfig) -> Iterator[str]:
    """Name what looks like a placeholder and will not be expanded."""
    for host in fleet.hosts:
        for key, texts, known in (
            ("command", host.command, COMMAND_PLACEHOLDERS),
            ("env", tuple(value for _, value in host.env), PLACEHOLDERS),
            ("launch_wrapper", host.launch_wrapper, PLACEHOLDERS),
            ("log_dir", (host.log_dir or "",), PLACEHOLDERS),
            ("stop_command", host.stop_command, PLACEHOLDERS),
        ):
            for word in dict.fromkeys(word for text in texts for word in _BRACED(text)):
                if word not in known:
                    close = get_close_matches(word, known, 1)
                    way = f"did you mean {{{close[0]}}}?" if close else f"there are {', '.join(known)}"
                    yield f"host {host.name}: {key} has no placeholder {{{word}}}, it stays as it is; {way}"


def _wrappers(fleet: FleetConfig) -> Iterator[str]:
    for host in fleet.hosts:
        if host.launch_wrapper and not host.stop_command:
            wrapper = host.launch_wrapper[0]
            yield (
                f"host {host.name}: what {wrapper} starts can be stopped only where its process can be found "
                "on that host; give a stop_command if it runs elsewhere"
            )


def _shared_addresses(fleet: FleetConfig) -> Iterator[str]:
    first: dict[tuple[str, int], str] = {}
    for replica in fleet.replicas:
        other = first.setdefault((canonical(replica.host), replica.port), replica.name)
        if other != replica.name:
            yield f"replicas {other} and {replica.name} are one address, {replica.url}: its load counts twice"


def _shared_devices(fleet: FleetConfig) -> Iterator[str]:
    """Name hosts that are one machine and list the same cards, whatever their ports."""
    holders: dict[str, list[HostConfig]] = {}
    for host in fleet.hosts:
        others = holders.setdefault(canonical(host.address), [])
        for other in others:
            both = sorted(set(other.devices) & set(host.devices))
            if both:
                listed = ", ".join(map(str, both))
                yield (
                    f"hosts {other.name} and {host.name} are one machine, {host.address}, and both list "
                    f"device {listed}: two replicas may end up on one card"
                )
        others.append(host)
