"""Hours in minutes: mixed traffic against launched replicas while clients, replicas and connections fail."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.engines import OURS, wait_until_it_serves
from bench.processes import ROOT, Children, Unavailable, children, descriptors, free_port, rss_kb
from bench.report import OUT, keep
from bench.tables import render

TEXT = "mixed traffic while clients leave, replicas die and are exchanged; nothing may be lost or sent twice"

REPLICAS = 3
_BUCKET = re.compile(r'pypto_router_reactor_lag_seconds_bucket\{le="([^"]+)"\} (\S+)')
WORKERS = 20
KILL_EVERY = 25.0
RELOAD_EVERY = 40.0
#: Seconds before a kill in which a request may have begun that the dead replica's connections still fail.
KILL_SHADOW = 2.0
SIM_FLAGS = ("--time-scale", "20", "--max-num-seqs", "64", "--die-with-parent")
#: What happens to a request besides nothing, and how often.
HARMS = {"": 0.88, "cut": 0.03, "reset": 0.02, "leave": 0.04, "slow": 0.03}
KINDS = {"stream": 0.4, "chat": 0.2, "session": 0.2, "embeddings": 0.1, "upload": 0.1}


class Wrong(Exception):
    """An answer that is not what it should be."""


@dataclass
class Tally:
    """What became of the requests, from all threads."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    sent: int = 0
    whole: int = 0
    harmed: int = 0
    by_kill: int = 0
    lost: list[str] = field(default_factory=list)
    answered: set[str] = field(default_factory=set)
    kills: list[float] = field(default_factory=list)
    reloads: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    def killed_since(self, began: float) -> bool:
        """Whether a replica was killed during, or just before, a request."""
        return any(kill >= began - KILL_SHADOW for kill in self.kills)


def _draw(chance: random.Random, weights: dict[str, float]) -> str:
    return chance.choices(list(weights), list(weights.values()))[0]


def _request(kind: str, chance: random.Random) -> tuple[str, bytes, str, int]:
    """Path, body, content type, tokens to expect."""
    tokens = chance.randint(2, 60)
    if kind == "upload":
        edge = "edge"
        head = f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
        form = f'--{edge}\r\nContent-Disposition: form-data; name="model"\r\n\r\nbench\r\n'
        data = os.urandom(chance.randint(10_000, 400_000)).replace(b"--edge", b"")
        body = form.encode() + head.encode() + data + f"\r\n--{edge}--\r\n".encode()
        return "/v1/audio/transcriptions", body, f"multipart/form-data; boundary={edge}", 0
    if kind == "embeddings":
        return "/v1/embeddings", json.dumps({"model": "bench", "input": "some text"}).encode(), "", 0
    asked = {
        "model": "bench",
        "stream": kind != "chat",
        "max_tokens": tokens,
        "messages": [{"role": "user", "content": "word " * chance.randint(5, 400)}],
    }
    return "/v1/chat/completions", json.dumps(asked).encode(), "", tokens


def _check(kind: str, body: bytes, tokens: int) -> None:
    """Raise ``Wrong`` unless an answer is complete and the one that was asked for."""
    if kind in ("stream", "session"):
        events = [event for event in body.split(b"\n\n") if event]
        if not events or events[-1] != b"data: [DONE]":
            raise Wrong("a stream without its end")
        deltas = (json.loads(event[6:])["choices"] for event in events[:-1])
        got = sum(bool(choices and choices[0]["delta"].get("content")) for choices in deltas)
        if got != tokens:
            raise Wrong(f"{got} tokens instead of {tokens}")
        return
    document = json.loads(body)
    if kind == "chat" and document["usage"]["completion_tokens"] != tokens:
        raise Wrong("another length than asked for")
    if kind == "embeddings" and not document["data"][0]["embedding"]:
        raise Wrong("no embedding")
    if kind == "upload" and "text" not in document:
        raise Wrong("no transcription")


class Client(threading.Thread):
    """One client after the other, until told to stop."""

    def __init__(self, port: int, number: int, tally: Tally, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._port, self._number, self._tally, self._stop_it = port, number, tally, stop
        self._chance = random.Random(number)
        self._link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def run(self) -> None:
        """Send, check, count."""
        turn = 0
        while not self._stop_it.wait(self._chance.expovariate(8)):
            turn += 1
            self._one(f"{self._number}-{turn}")
        self._link.close()

    def _one(self, name: str) -> None:
        tally, chance = self._tally, self._chance
        kind, harm = _draw(chance, KINDS), _draw(chance, HARMS)
        began, why, whole = time.monotonic(), "", False
        try:
            whole = self._exchange(name, kind, harm)
        except (OSError, http.client.HTTPException, Wrong, ValueError, KeyError) as error:
            why = f"{kind}: {type(error).__name__}: {error}"
        if why or not whole:
            self._link.close()
        with tally.lock:
            tally.sent += 1
            tally.kinds[kind] += 1
            if whole:
                tally.whole += 1
                tally.answered.add(name)
            elif harm in ("cut", "reset", "leave"):
                tally.harmed += 1
            elif tally.killed_since(began):
                tally.by_kill += 1
            else:
                tally.lost.append(f"{name} {why}")

    def _exchange(self, name: str, kind: str, harm: str) -> bool:
        """Whether the answer came whole; raises what it came to otherwise."""
        path, body, content, tokens = _request(kind, self._chance)
        fields = {"Content-Type": content or "application/json", "X-Soak-Id": name}
        if harm in ("cut", "reset"):
            fields["X-Soak-Harm"] = harm
        if kind == "session":
            fields["X-Session-Id"] = f"s{self._chance.randint(0, 199)}"
        self._link.request("POST", path, body, fields)
        if harm == "leave" and self._chance.random() < 0.5:
            return False
        answer = self._link.getresponse()
        if harm == "leave":
            answer.read(1)
            return False
        if harm == "slow":
            body = b"".join(iter(lambda: time.sleep(0.02) or answer.read(512), b""))
        else:
            body = answer.read()
        if answer.status != 200:
            raise Wrong(f"{answer.status} {body[:200].decode('utf-8', 'replace')}")
        if harm in ("cut", "reset"):
            raise Wrong(f"a {harm} answer that looks whole")
        _check(kind, body, tokens)
        return True


@dataclass
class Scene:
    """A running router with its replicas."""

    port: int
    process: subprocess.Popen[str]
    work: Path

    def call(self, method: str, path: str) -> tuple[int, Any]:
        """An administrative call; status and document."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            link.request(method, path)
            answer = link.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            link.close()

    def ready(self) -> int:
        """Replicas in rotation."""
        return int(self.call("GET", "/health")[1]["replicas_ready"])

    def pids(self) -> list[int]:
        """The replicas' processes, as the state file knows them."""
        slots = json.loads((self.work / "state.json").read_text())["slots"]
        return [slot["handle"]["pid"] for slot in slots if slot["handle"] and slot["reason"] is None]

    def mend(self) -> None:
        """A slot that lost three in a row waits for a person: be that person."""
        capacity = self.call("GET", "/replicas")[1]["capacity"]
        if capacity["abandoned"] and capacity["owned"] < REPLICAS:
            self.call("POST", "/replicas")

    def lags(self) -> list[tuple[float, float]]:
        """The router's own record of how late its reactor was: upper bound in ms, looks within it."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        link.request("GET", "/metrics")
        text = link.getresponse().read().decode()
        link.close()
        return [(float(bound) * 1e3, float(count)) for bound, count in _BUCKET.findall(text)]

    def seen(self) -> Counter[str]:
        """How often each id has reached a replica."""
        found: Counter[str] = Counter()
        for ledger in self.work.glob("ledger-*"):
            found.update(ledger.read_text().split())
        return found


def _free_row(count: int) -> int:
    """The first of ``count`` ports in a row that nobody has, below those the kernel gives out by itself."""
    while True:
        base = random.randint(10_000, 30_000)
        try:
            for port in range(base, base + count):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return base


def start(family: Children, work: Path) -> Scene:
    """The router, with ``REPLICAS`` replicas launched."""
    port, base = free_port(), _free_row(REPLICAS + 1)
    program = [sys.executable, "-m", "bench.soak_replica", str(work / "ledger-{device}")]
    host = {
        "name": "soak",
        "devices": list(range(REPLICAS + 1)),
        "port_base": base,
        "model": "/soak",
        "workdir": str(ROOT),
        "log_dir": str(work),
        "command": [*program, *SIM_FLAGS, "--port", "{port}", "--served-model-name", "bench"],
    }
    (work / "fleet.json").write_text(json.dumps({"hosts": [host]}))
    argv = [
        *(str(OURS), "--replicas", str(work / "fleet.json"), "--host", "127.0.0.1", "--port", str(port)),
        *("--initial-replicas", str(REPLICAS), "--state-file", str(work / "state.json")),
        *("--health-interval", "1", "--replace-after", "2", "--drain-timeout", "30", "--stop-grace", "5"),
    ]
    scene = Scene(port, family.start("soak", argv), work)
    wait_until_it_serves(scene.process, port, "soak")
    if not _await(lambda: scene.ready() == REPLICAS, 30):
        raise Unavailable("Not all replicas came up within 30 s; see bench/out/logs/soak.log.")
    return scene


def _await(true: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def _harm(scene: Scene, tally: Tally, stop: threading.Event) -> None:
    """Kill a replica now and then, and exchange one in good order; only while all are there."""
    chance, next_kill, next_reload = random.Random(0), KILL_EVERY, RELOAD_EVERY
    began = time.monotonic()
    while not stop.wait(0.5):
        now = time.monotonic() - began
        if min(next_kill, next_reload) > now:
            continue
        if scene.ready() < REPLICAS:
            scene.mend()
            continue
        if next_kill <= now:
            next_kill = now + KILL_EVERY
            with tally.lock:
                tally.kills.append(time.monotonic())
            os.kill(chance.choice(scene.pids()), signal.SIGKILL)
        else:
            next_reload = now + RELOAD_EVERY
            names = [row["name"] for row in scene.call("GET", "/replicas")[1]["replicas"] if row["ready"]]
            if scene.call("DELETE", f"/replicas/{chance.choice(names)}")[0] == 200:
                scene.call("POST", "/replicas")
                tally.reloads += 1


def late(before: list[tuple[float, float]], now: list[tuple[float, float]], share: float) -> str:
    """Milliseconds within which the reactor was in ``share`` of the looks between two records."""
    counts = [(bound, count - was) for (bound, count), (_, was) in zip(now, before, strict=True)]
    wanted = share * counts[-1][1]
    bound = next(bound for bound, count in counts if count >= wanted)
    return f"<={bound:.0f}" if bound < float("inf") else ">5000"


COLUMNS = ["minute", "RSS MB", "files", "lag p50", "lag p99", "requests", "whole", "harmed"]
COLUMNS += ["by kill", "lost", "twice", "kills", "reloads"]


def row(label: str, scene: Scene, tally: Tally, before: list[tuple[float, float]]) -> list[str]:
    """One line of the table; lags are those since ``before`` was recorded."""
    twice = sum(count > 1 for count in scene.seen().values())
    lags, pid = scene.lags(), [scene.process.pid]
    with tally.lock:
        counts = [tally.sent, tally.whole, tally.harmed, tally.by_kill, len(tally.lost), twice]
        return [
            *(label, f"{rss_kb(pid) / 1024:.1f}", f"{descriptors(pid)}"),
            *(late(before, lags, 0.5), late(before, lags, 0.99)),
            *(str(count) for count in (*counts, len(tally.kills), tally.reloads)),
        ]


def soak(options: argparse.Namespace) -> int:
    """Run it; 1 when a request was lost or came twice, or descriptors stayed behind."""
    work = Path(tempfile.mkdtemp(prefix="pypto-soak-"))
    tally, stop = Tally(), threading.Event()
    try:
        with children(OUT / "logs", grace=40) as family:
            scene = start(family, work)
            before = descriptors([scene.process.pid])
            clients = [Client(scene.port, number, tally, stop) for number in range(WORKERS)]
            harm = threading.Thread(target=_harm, args=(scene, tally, stop), daemon=True)
            lags = scene.lags()
            for thread in (*clients, harm):
                thread.start()
            rows = _watch(scene, tally, options.minutes)
            stop.set()
            for thread in (*clients, harm):
                thread.join(90)
            # Idle connections to replicas are closed after some seconds.
            _await(lambda: descriptors([scene.process.pid]) <= before + REPLICAS, 15)
            rows.append(row("end", scene, tally, lags))
            seen = scene.seen()
            held = descriptors([scene.process.pid]) - before
            ghosts = [name for name in tally.answered if name not in seen]
            alive = scene.process.poll() is None
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print("\n" + render(COLUMNS, rows), end="\n\n")
    print("requests by kind: " + ", ".join(f"{kind} {count}" for kind, count in sorted(tally.kinds.items())))
    twice = [name for name, count in seen.items() if count > 1]
    print(
        f"lost {len(tally.lost) + len(ghosts)}, duplicated {len(twice)}, descriptors more than before {held}"
    )
    for line in (*tally.lost[:10], *ghosts[:10], *twice[:10]):
        print(f"  {line}")
    keep(
        "soak",
        {"minutes": options.minutes, "columns": COLUMNS, "rows": rows, "lost": tally.lost},
        options.json,
    )
    calm = options.minutes >= 1.5 and not (tally.kills and tally.reloads)
    if calm:
        print("no harm was done, so nothing was shown: the fault injector failed")
    return int(bool(tally.lost or ghosts or twice) or held > REPLICAS or calm or not alive)


def _watch(scene: Scene, tally: Tally, minutes: float) -> list[list[str]]:
    """Print a line each minute; all lines."""
    rows: list[list[str]] = []
    began, lags = time.monotonic(), scene.lags()
    print(" ".join(f"{name:>8}" for name in COLUMNS), flush=True)
    while (left := began + 60 * minutes - time.monotonic()) > 0 and scene.process.poll() is None:
        time.sleep(min(60.0, left))
        at = (time.monotonic() - began) / 60
        rows.append(row(f"{at:.0f}" if at >= 1 else f"{at:.1f}", scene, tally, lags))
        lags = scene.lags()
        print(" ".join(f"{cell:>8}" for cell in rows[-1]), flush=True)
    return rows
