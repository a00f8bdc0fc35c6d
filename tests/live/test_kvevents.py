"""A whole router that follows the cache events of two simulated replicas."""

from __future__ import annotations

import json
import re
from pathlib import Path

import treq
from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import TestCase
from twisted.web.client import HTTPConnectionPool

from tests.live.scene import script
from tests.programs import Watched, free_ports, start

REPLICA = "-m twisted_router.sim --port 0 --kv-events 0 --kv-tokens 8000 --time-scale 50".split()


class KvEventsTests(TestCase):
    timeout = 90

    def setUp(self) -> Deferred[object]:
        self.pool = HTTPConnectionPool(reactor, persistent=False)
        self.replicas = [start(self, *REPLICA, "--kv-events-layout", layout) for layout in ("array", "map")]
        return gatherResults([replica.wrote(b"ready on") for replica in self.replicas])

    def entry(self, name: str, replica: Watched) -> dict[str, object]:
        said = replica.out.decode()
        events, replay = re.findall(r"tcp://\S+:\d+", said)
        (port,) = re.findall(r"http://127.0.0.1:(\d+)", said)
        return {
            "name": name,
            "host": "127.0.0.1",
            "port": int(port),
            "kv_events": events,
            "kv_events_replay": replay,
        }

    async def counted(self, url: str) -> dict[tuple[str, str], float]:
        """What the router has counted, by event and replica."""
        answer = await treq.get(f"{url}/metrics", pool=self.pool)
        found = re.findall(
            r'(?m)^pypto_router_kv_events_total\{event="(\w+)",replica="(\w)"\} (\S+)$', await answer.text()
        )
        return {(event, replica): float(amount) for event, replica, amount in found}

    async def test_follows(self) -> None:
        """What replicas store and evict is matched to what was sent, in both layouts; SIGTERM ends it."""
        file, port = Path(self.mktemp()), free_ports(1)
        entries = [self.entry(name, replica) for name, replica in zip("ab", self.replicas, strict=True)]
        file.write_text(json.dumps({"replicas": entries, "policy": "work"}))
        url = f"http://127.0.0.1:{port}"
        flags = ("--replicas", str(file), "--host", "127.0.0.1", "--port", str(port), "--kv-events")
        router = start(self, script("pypto-serving-router"), *flags)
        await gatherResults(
            [router.wrote(f"follows the cache events of replica {name}".encode()) for name in "ab"]
        )
        wanted = {(event, name) for event in ("stored", "matched", "removed", "forgotten") for name in "ab"}
        counted: dict[tuple[str, str], float] = {}
        number = 0
        while not wanted <= set(counted):
            number += 1
            text = f"{number} " * 4000
            body = {"messages": [{"role": "user", "content": text}], "max_tokens": 2}
            answer = await treq.post(f"{url}/v1/chat/completions", json=body, pool=self.pool)
            self.assertEqual(answer.code, 200, await answer.text())
            counted = await self.counted(url)
        self.assertNotIn("untrusted", {event for event, _ in counted})
        router.signal("TERM")
        self.assertEqual(await router.ended, 0)
