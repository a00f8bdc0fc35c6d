"""The sample files in ``etc/``: each is read, and the schema beside them knows our keys."""

from __future__ import annotations

import json
from typing import Any

import attrs
from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.config.model import FleetConfig, HostConfig, ReplicaConfig
from twisted_router.config.reading import read_fleet
from twisted_router.config.shape import HOST, REPLICA

ETC = FilePath(__file__).parent().parent().sibling("etc")
SCHEMA = "fleet.schema.json"


def sample(name: str) -> FleetConfig:
    """Read one sample."""
    return read_fleet(ETC.child(name).path)


class SampleTests(SynchronousTestCase):
    """Each sample shows one use."""

    def test_all_load(self) -> None:
        """Every sample is a good configuration, and none is missing."""
        names = sorted(n for n in ETC.listdir() if n.endswith((".json", ".yaml")) and n != SCHEMA)
        self.assertEqual(
            {name: len(sample(name).replicas) + len(sample(name).hosts) for name in names},
            {
                "deepseek.json": 2,
                "llama-server.yaml": 1,
                "local.json": 1,
                "mixed.yaml": 3,
                "replicas-https.json": 2,
                "replicas.json": 3,
                "sglang.json": 1,
                "ssh-wrapper.json": 1,
                "vllm.json": 1,
            },
        )

    def test_replicas(self) -> None:
        """Static replicas, one without a name."""
        self.assertEqual(
            [r.url for r in sample("replicas.json").replicas],
            ["http://127.0.0.1:8001", "http://10.0.0.2:8001", "http://[fd00::3]:8001"],
        )

    def test_https(self) -> None:
        """Replicas over TLS, one with an authority and a certificate of our own."""
        public, own = sample("replicas-https.json").replicas
        self.assertEqual((public.scheme, public.ca_file, own.scheme), ("https", None, "https"))
        self.assertTrue(own.ca_file and own.client_cert)

    def test_local(self) -> None:
        """A host on the router's own machine."""
        (host,) = sample("local.json").hosts
        self.assertEqual((host.ssh, host.capacity), (None, 4))

    def test_wrapper(self) -> None:
        """A host over ssh, with a broker and its way to stop."""
        (host,) = sample("ssh-wrapper.json").hosts
        self.assertTrue(host.ssh and host.launch_wrapper and host.stop_command)

    def test_deepseek(self) -> None:
        """Eight cards make one replica."""
        self.assertEqual([h.capacity for h in sample("deepseek.json").hosts], [1, 1])

    def test_engines(self) -> None:
        """Other engines come in through ``command``."""
        programs = [sample(n).hosts[0].command[0] for n in ("vllm.json", "sglang.json", "llama-server.yaml")]
        self.assertEqual(programs, ["vllm", "python3", "llama-server"])

    def test_mixed(self) -> None:
        """The manual's two hosts (Launching Replicas) beside a static replica: five slots."""
        fleet = sample("mixed.yaml")
        self.assertEqual(sum(h.capacity for h in fleet.hosts), 5)
        self.assertEqual((fleet.hosts[1].env, fleet.hosts[1].port_base), (fleet.hosts[0].env, 8001))


class SchemaTests(SynchronousTestCase):
    """``etc/fleet.schema.json`` says what an editor needs to know."""

    def setUp(self) -> None:
        self.schema: dict[str, Any] = json.loads(ETC.child(SCHEMA).getContent())

    def test_keys(self) -> None:
        """Schema, reader and model know the same keys."""
        for name, table, model in (("replica", REPLICA, ReplicaConfig), ("host", HOST, HostConfig)):
            keys = set(self.schema["$defs"][name]["properties"])
            self.assertEqual(keys, set(table))
            self.assertEqual(keys, {a.name for a in attrs.fields(model)})
            self.assertIs(self.schema["$defs"][name]["additionalProperties"], False)
        self.assertEqual(set(self.schema["properties"]), {a.name for a in attrs.fields(FleetConfig)})

    def test_defaults(self) -> None:
        """Defaults in the schema are the model's."""
        for name, model in (("replica", ReplicaConfig), ("host", HostConfig)):
            stated = self.schema["$defs"][name]["properties"]
            for attribute in attrs.fields(model):
                default: Any = attribute.default
                if default is attrs.NOTHING or default is None or default == "":
                    self.assertNotIn("default", stated[attribute.name], attribute.name)
                    continue
                if isinstance(default, tuple):
                    default = {} if attribute.name == "env" else []
                self.assertEqual(stated[attribute.name]["default"], default, attribute.name)

    def test_required(self) -> None:
        """The schema requires what the model cannot do without."""
        self.assertEqual(self.schema["$defs"]["replica"]["required"], ["host", "port"])
        self.assertEqual(self.schema["$defs"]["host"]["required"], ["devices"])
