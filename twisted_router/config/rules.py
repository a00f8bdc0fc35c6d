"""What the records of one file must not do to each other, or a record's keys to one another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv6Address, ip_address

from .locate import Path, quote, show_path
from .model import LOOPBACK, FleetConfig, HostConfig, ReplicaConfig, authority
from .shape import MAX_PORT, Report

#: Keys that mean nothing on the router's own machine.
SSH_ONLY = ("identity_file", "known_hosts", "ssh_config", "ssh_client")
#: Keys that mean nothing when the whole command is given.
DEFAULT_COMMAND_ONLY = ("python", "serve_args")
#: Keys that mean nothing without TLS.
HTTPS_ONLY = ("ca_file", "client_cert")


def check_fleet(fleet: FleetConfig, report: Report) -> None:
    """Report every contradiction in a fleet, leaving out what rests on a value already refused."""
    for i, replica in enumerate(fleet.replicas):
        _check_replica(replica, ("replicas", i), report)
    for i, host in enumerate(fleet.hosts):
        _check_host(host, ("hosts", i), report)
    _check_names("replicas", (r.name for r in fleet.replicas), report)
    _check_names("hosts", (h.name for h in fleet.hosts), report)
    _check_slots(fleet, report)


def _check_replica(replica: ReplicaConfig, path: Path, report: Report) -> None:
    if replica.kv_events_replay is not None and replica.kv_events is None:
        report.add((*path, "kv_events_replay"), 'expected this key only beside "kv_events"', at_key=True)
    if replica.scheme == "https" or not report.is_sound(*path, "scheme"):
        return
    for key in HTTPS_ONLY:
        if getattr(replica, key) is not None:
            report.add((*path, key), 'expected this key only with "scheme": "https"', at_key=True)


def _check_host(host: HostConfig, path: Path, report: Report) -> None:
    for key in SSH_ONLY:
        if host.ssh is None and getattr(host, key) is not None:
            report.add((*path, key), 'expected this key only beside "ssh"', at_key=True)
    for key in DEFAULT_COMMAND_ONLY:
        if host.command and getattr(host, key):
            report.add((*path, key), 'expected this key only without "command"', at_key=True)
    if host.ssh_client == "conch" and host.ssh_config is not None:
        report.add((*path, "ssh_config"), 'expected this key only with "ssh_client": "openssh"', at_key=True)
    for i, part in enumerate(host.command):
        # Without a name of its own a model is served under its path.
        if not host.model and report.is_sound(*path, "model"):
            for word in ("{model}", "{served_model_name}"):
                if word in part and not (word == "{served_model_name}" and host.served_model_name):
                    text = f'expected {word} only beside "{word[1:-1]}", got {quote(part)}'
                    report.add((*path, "command", i), text)
    if not report.is_sound(*path, "devices_per_replica") or not report.is_sound(*path, "devices"):
        return
    width = host.devices_per_replica
    if len(host.devices) % width:
        got = f"got {len(host.devices)} device{'s'[: len(host.devices) != 1]}"
        report.add((*path, "devices"), f"expected a multiple of devices_per_replica={width}, {got}")
    for i, group in enumerate(host.groups):
        port = host.slot_port(group)
        if not 1 <= port <= MAX_PORT and report.is_sound(*path, "port_base"):
            wanted = f"expected a device whose port is from 1 to {MAX_PORT}"
            got = f"{group[0]} (port_base {host.port_base} + {group[0]} = {port})"
            report.add((*path, "devices", i * width), f"{wanted}, got {got}")


def _check_names(table: str, names: Iterable[str], report: Report) -> None:
    first: dict[str, int] = {}
    for i, name in enumerate(names):
        if first.setdefault(name, i) != i:
            other = show_path((table, first[name]))
            report.add((table, i, "name"), f"expected a name of its own, got {quote(name)} as {other} has")


def _check_slots(fleet: FleetConfig, report: Report) -> None:
    """No slot may share its address and port, or its name, with a static replica or another slot."""
    homes: dict[tuple[str, int], str] = {}
    names: dict[str, int] = {}
    for i, replica in enumerate(fleet.replicas):
        if report.is_sound("replicas", i, "host") and report.is_sound("replicas", i, "port"):
            homes.setdefault((canonical(replica.host), replica.port), show_path(("replicas", i)))
        names.setdefault(replica.name, i)
    for i, host in enumerate(fleet.hosts):
        mine = {}
        for name, port in _slots(host, ("hosts", i), report):
            taken = homes.get((canonical(host.address), port))
            if taken is not None:
                what = f"expected an address and port of its own for slot {name}"
                report.add(
                    ("hosts", i, "port_base"), f"{what}, got {authority(host.address, port)} as {taken} has"
                )
                break  # the neighbours collide in the same way
            mine[canonical(host.address), port] = f"slot {name} of {show_path(('hosts', i))}"
            if name in names:
                text = (
                    f"expected a name no slot has, got {quote(name)} as a slot of {show_path(('hosts', i))}"
                )
                report.add(("replicas", names[name], "name"), text)
        homes |= mine


def _slots(host: HostConfig, path: Path, report: Report) -> Iterator[tuple[str, int]]:
    """Yield name and port of each slot of a host whose numbers and address were accepted."""
    if all(report.is_sound(*path, key) for key in ("ssh", "devices", "devices_per_replica", "port_base")):
        for group in host.groups:
            yield host.slot_name(group), host.slot_port(group)


def canonical(host: str) -> str:
    """Bring the usual spellings of one address to one form, without asking any name server."""
    name = host.lower().rstrip(".")
    if name in ("localhost", "0.0.0.0"):
        return LOOPBACK
    try:
        found = ip_address(name)
    except ValueError:
        return name
    return str((isinstance(found, IPv6Address) and found.ipv4_mapped) or found)
