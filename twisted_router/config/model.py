"""What a configuration means: frozen values, units in the docstrings, rules between fields.

Replicas and hosts come from the configuration file (``config.reading``), settings from the command line
(``tap.Options``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from attrs import frozen

MIB = 1 << 20

#: Where a request's session id is looked for, in this order (``--session-sources``).
SESSION_SOURCES = (
    "x-session-id",
    "body.session_id",
    "x-dynamo-session-id",
    "body.session_params.session_id",
    "x-claude-code-agent-id",
    "x-claude-code-session-id",
    "session-id",
    "x-session-affinity",
)

#: The address of replicas on the router's own machine.
LOOPBACK = "127.0.0.1"

#: What may stand in braces in a host's ``env``, ``launch_wrapper``, ``stop_command`` and ``log_dir`` ...
PLACEHOLDERS = ("device", "devices", "port")
#: ... and in its ``command``.
COMMAND_PLACEHOLDERS = (*PLACEHOLDERS, "model", "served_model_name", "slot", "host")


def split_destination(ssh: str) -> tuple[str | None, str, int | None]:
    """Split an ssh destination into user, host and port; None for what it leaves to the ssh client.

    Both forms OpenSSH takes are known: ``user@host``, cut at the last ``@``, and ``ssh://user@host:port``,
    the only one that carries a port. Raises ValueError for an ``ssh://`` form it does not know.
    """
    uri = ssh.startswith("ssh://")
    user, _, rest = ssh.removeprefix("ssh://").rpartition("@")
    if not uri:
        return user or None, rest, None
    found = re.fullmatch(r"(?:\[([^\]]*)\]|([^:\[\]]*))(?::([0-9]{1,5}))?/?", rest)
    if found is None:
        raise ValueError(f"{ssh} has no host, or something behind it that is no port")
    port = found[3]
    return user or None, found[1] or found[2] or "", int(port) if port else None


def authority(host: str, port: int) -> str:
    """``host:port`` as a URL has it: IPv6 literals in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@frozen
class ReplicaConfig:
    """A replica that already runs somewhere; the router never stops it (manual: Two Ways to Get Replicas).

    :ivar ca_file: PEM file of the authorities to trust for an ``https`` replica; None trusts the platform's.
    :ivar client_cert: PEM file with certificate and key to show an ``https`` replica, or None.
    :ivar health_path: what the prober asks for.
    :ivar kv_events: where it publishes what its cache does, ``tcp://host:port``; for ``--kv-events``.
    :ivar kv_events_replay: where it repeats that, or None.
    """

    name: str
    host: str
    port: int
    scheme: str = "http"
    ca_file: str | None = None
    client_cert: str | None = None
    health_path: str = "/health"
    kv_events: str | None = None
    kv_events_replay: str | None = None

    @property
    def url(self) -> str:
        """``scheme://host:port``."""
        return f"{self.scheme}://{authority(self.host, self.port)}"


@frozen
class HostConfig:
    """A machine the router may launch replicas on (manual: Launching Replicas).

    :ivar ssh: ``user@node``, ``node`` or ``ssh://user@node:port``; None for the router's own machine.
    :ivar devices: the cards that may be used, in order.
    :ivar devices_per_replica: how many of them one replica needs.
    :ivar port_base: a replica listens on this plus the number of its first device.
    :ivar command: a whole argv template for engines other than pypto-serving; empty for that one.
    :ivar stop_command: argv that replaces the default way of stopping; empty for the default.
    :ivar launch_wrapper: argv of a broker that takes the serving command as one argument; empty for none.
    :ivar log_dir: where a replica's output goes on that machine; None for the default.
    :ivar ssh_client: ``openssh`` or ``conch``; None takes openssh where the program exists.
    :ivar ssh_config: a file for OpenSSH to read instead of ``~/.ssh/config``; None for that one.
    :ivar model: a path on that machine, never looked at; empty only when ``command`` is given.
    :ivar serve_args: further arguments of the serving command, passed on as they are.
    :ivar env: what the replica's environment has on top, in the order of the file.
    """

    name: str
    devices: tuple[int, ...]
    model: str = ""
    ssh: str | None = None
    identity_file: str | None = None
    known_hosts: str | None = None
    ssh_client: str | None = None
    ssh_config: str | None = None
    devices_per_replica: int = 1
    port_base: int = 8001
    served_model_name: str | None = None
    serve_args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    launch_wrapper: tuple[str, ...] = ()
    stop_command: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    python: str | None = None
    workdir: str | None = None
    log_dir: str | None = None
    health_path: str = "/health"

    @property
    def capacity(self) -> int:
        """How many replicas fit (manual: How many replicas fit on a host)."""
        return len(self.devices) // self.devices_per_replica

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The devices of each slot: the list cut in order into groups of ``devices_per_replica``."""
        width = self.devices_per_replica
        return tuple(self.devices[i * width : (i + 1) * width] for i in range(self.capacity))

    @property
    def address(self) -> str:
        """Where the router reaches what it launches here: 127.0.0.1 or the host part of ``ssh``."""
        return LOOPBACK if self.ssh is None else split_destination(self.ssh)[1]

    def slot_name(self, group: tuple[int, ...]) -> str:
        """``<host>-d<first device>``, as in the manual's ``node02-d1``."""
        return f"{self.name}-d{group[0]}"

    def slot_port(self, group: tuple[int, ...]) -> int:
        """``port_base`` plus the group's first device (manual: Launching Replicas)."""
        return self.port_base + group[0]


def in_filling_order(hosts: Iterable[HostConfig]) -> list[HostConfig]:
    """Sort hosts as they are filled: the router's own machine, then as in the file (manual: Capacity)."""
    return sorted(hosts, key=lambda host: host.ssh is not None)


@frozen
class FleetConfig:
    """One configuration file.

    :ivar policy: a routing policy as ``--policy`` takes it, or None; the command line wins.
    """

    replicas: tuple[ReplicaConfig, ...] = ()
    hosts: tuple[HostConfig, ...] = ()
    policy: str | None = None


@frozen
class Settings:
    """The command line, checked. All durations are seconds; defaults are the manual's (Tuning).

    :ivar initial_replicas: None means 1 when the file declares hosts, else 0.
    :ivar max_replicas: None means the declared pool.
    :ivar replace_after: effective value is at least two health intervals.
    :ivar max_connections: clients served at once; None means as many as there are file descriptors for.
    :ivar max_body: bytes one upload may have.
    :ivar max_body_total: bytes all uploads held at once may have.
    :ivar policy: a routing policy's name, perhaps with parameters: ``NAME:key=value,key=value``.
    :ivar gate: whether conversations wait between turns while the caches are full.
    :ivar kv_events: whether replicas' cache events correct what the policy remembers of them.
    :ivar affinity_slack: requests by which a pinned replica may exceed the idlest one; None leaves it to the
        policy: 8 for ``session``, no bound for ``work``.
    :ivar max_outstanding: requests one replica may have at once; None sets no limit.
    :ivar queue_size: requests that may wait for a replica; 0 answers 503 at once, as the manual says.
    :ivar receipts: whether answers carry ``X-Router-Replica`` and ``X-Router-Affinity``.
    :ivar traffic_veto: whether recent good traffic excuses a probe that timed out.
    """

    host: str = "0.0.0.0"
    port: int = 8000
    session_ttl: float = 600.0
    affinity_slack: int | None = None
    health_interval: float = 5.0
    request_timeout: float = 3600.0
    connect_timeout: float = 5.0
    initial_replicas: int | None = None
    max_replicas: int | None = None
    launch_timeout: float = 600.0
    drain_timeout: float = 300.0
    replace_after: float = 30.0
    stop_grace: float = 30.0
    state_file: str | None = None
    admin_token: str | None = None
    admin_open: bool = False
    detach_on_exit: bool = False
    max_connections: int | None = None
    max_body: int = 64 * MIB
    max_body_total: int = 1024 * MIB
    session_sources: tuple[str, ...] = SESSION_SOURCES
    traffic_veto: bool = True
    access_log: bool = False
    policy: str = "session"
    receipts: bool = True
    gate: bool = False
    kv_events: bool = False
    max_outstanding: int | None = None
    queue_size: int = 0
    queue_timeout: float = 60.0
    max_hold: float = 60.0
    record_trace: str | None = None
