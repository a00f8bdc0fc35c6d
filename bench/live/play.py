"""Plays one row once against one candidate and prints what it saw as JSON: ``python -m bench.live.play``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from bench.live.rows import ROWS
from bench.live.stage import Stage
from bench.live.talk import Answer, Connections
from bench.live.texts import WrittenText, WrittenTexts
from bench.processes import cpu_us
from twisted_router.lab.rows import BY_NAME
from twisted_router.lab.simulation import Simulation, Turn
from twisted_router.lab.text import Texts
from twisted_router.lab.workloads import Scene


class Places:
    """Where requests go: to the one router, or to the replicas as a client would that pins perfectly.

    Each conversation is bound to a replica, in turn; everything else goes to the fewest requests in flight.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports
        self._bound: dict[str, int] = {}
        self._turn = 0
        self.busy = dict.fromkeys(ports, 0)

    def take(self, session: str | None) -> int:
        """The port for a request, counted as busy until given back."""
        port = self._free() if session is None else self._home(session)
        self.busy[port] += 1
        return port

    def _home(self, session: str) -> int:
        if session not in self._bound:
            self._bound[session] = self._next(self._ports)
        return self._bound[session]

    def _free(self) -> int:
        least = min(self.busy.values())
        return self._next([port for port in self._ports if self.busy[port] == least])

    def _next(self, ports: Sequence[int]) -> int:
        self._turn += 1
        return ports[self._turn % len(ports)]


class Machine:
    """What the processors do between two moments: all of them, and those of some processes."""

    def __init__(self, groups: dict[str, list[int]]) -> None:
        self._groups = groups
        self._before = self._look()

    def _look(self) -> dict[str, float]:
        ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        seen = {name: cpu_us(pids) for name, pids in self._groups.items()}
        seen["driver"] = time.process_time() * 1e6
        return {**seen, "all": float(sum(ticks)), "idle": float(ticks[3] + ticks[4]), "at": time.monotonic()}

    def shares(self) -> dict[str, float]:
        """``busy``: share of the machine; else processors' worth, by group."""
        now, before = self._look(), self._before
        seconds = now["at"] - before["at"]
        names = [*self._groups, "driver"]
        used = {name: (now[name] - before[name]) / 1e6 / seconds for name in names}
        idle = (now["idle"] - before["idle"]) / max(now["all"] - before["all"], 1.0)
        return {name: round(value, 3) for name, value in {"busy": 1.0 - idle, **used}.items()}


class Play:
    """One run."""

    def __init__(self, reactor: Any, options: argparse.Namespace) -> None:
        self._reactor = reactor
        self._options = options
        ports = [int(port) for port in options.ports.split(",")]
        self._places = Places(ports)
        self._ways = {port: Connections(reactor, port) for port in ports}
        self._sums: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._affinity: Counter[str] = Counter()
        self._homes: dict[str, str] = {}
        self._spent = 0.0
        self.result: dict[str, Any] = {}
        groups = json.loads(options.watch)
        self._machine = Machine(groups)
        row = BY_NAME[options.row]
        self.stage = Stage(reactor, options.scale, self._ask, self._over)
        texts = cast(Texts, WrittenTexts(f"{options.row}/{options.seed}"))
        self.scene = Scene(cast(Simulation, self.stage), options.seed, not options.no_ids, texts=texts)
        row.fill(self.scene)
        if row.until < float("inf"):
            reactor.callLater(row.until / options.scale, self._over)
        reactor.callLater(options.limit, self._over, True)

    def _over(self, stopped: bool = False) -> None:
        """Take the figures now: what is still under way is cut off by our leaving."""
        if not self.result:
            self.result = self._figures(stopped)
            self._reactor.stop()

    def _ask(self, turn: Turn, done: Callable[[], None]) -> None:
        port = self._places.take(turn.session)
        began = self.stage.now

        def answered(answer: Answer) -> None:
            self._places.busy[port] -= 1
            self._spent += self.stage.now - began
            self._note(turn, answer)
            done()

        body = cast(WrittenText, turn.text).body(turn.output, turn.session)
        lines = [b"POST /v1/chat/completions HTTP/1.1", b"Host: 127.0.0.1", b"Content-Type: application/json"]
        if turn.session is not None:
            lines.append(b"X-Session-Id: " + turn.session.encode())
            lines += [b"X-Dynamo-Session-Final: true"] if turn.final else []
        lines += [b"Content-Length: %d" % len(body), b"", body]
        self._ways[port].ask(b"\r\n".join(lines), turn.output, answered)

    def _note(self, turn: Turn, answer: Answer) -> None:
        if answer.failure is not None:
            self._failures[answer.failure] += 1
            return
        self._sums.update(prompt=answer.prompt, cached=answer.cached, output=answer.output)
        if answer.affinity is not None:
            self._affinity[answer.affinity] += 1
        if answer.replica is not None and turn.session is not None:
            self._homes.setdefault(turn.session, answer.replica)

    def _figures(self, stopped: bool) -> dict[str, Any]:
        """What is printed."""
        turns = len(self.stage.turns)
        rows = () if stopped else (self._options.row, *ROWS[self._options.row].also)
        return {
            "values": {name: BY_NAME[name].measure(self.scene) for name in rows},
            "stopped": stopped,
            "turns": turns,
            "seconds": self.stage.now,
            "turn": self._spent / max(turns, 1),
            "failures": dict(self._failures),
            "prompt": self._sums["prompt"],
            "cached": self._sums["cached"],
            "affinity": dict(self._affinity),
            "placed": dict(Counter(self._homes.values())),
            "late": self.stage.late / max(self.stage.timers, 1),
            "load": self._machine.shares(),
        }


def main() -> int:
    """Play, print."""
    parser = argparse.ArgumentParser(prog="python -m bench.live.play", description=__doc__)
    parser.add_argument("--row", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--scale", type=float, required=True)
    parser.add_argument("--ports", required=True, help="a router's, or all replicas'")
    parser.add_argument("--no-ids", action="store_true")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds")
    parser.add_argument("--watch", default="{}", help="JSON: group -> pids")
    options = parser.parse_args()
    from twisted.internet import reactor as installed

    reactor: Any = installed
    reactor.seconds = time.monotonic
    play = Play(reactor, options)
    reactor.run()
    print(json.dumps(play.result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
