"""Recorded traffic as a row: the same requests at the same times, on simulated replicas."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial

from attrs import frozen

from ..core.prefix import CHUNK
from ..errors import ConfigError
from .engine import BLOCK, EngineModel
from .rows import Row, mean_span
from .simulation import Actor, Turn, Wait
from .text import BYTES_PER_TOKEN, Text
from .workloads import Scene

#: More problems than these are not listed.
MOST_PROBLEMS = 20


@frozen
class Record:
    """One request of a trace.

    :ivar at: seconds since the trace began.
    :ivar chain: fingerprints of its text, where they were recorded.
    """

    at: float
    session: str | None
    tokens: int
    output: int
    chain: tuple[int, ...] = ()
    final: bool = False


def read_trace(lines: Iterable[str], name: str) -> tuple[Record, ...]:
    """Read JSON lines: ``time``, ``session``, ``bytes`` or ``tokens``, ``output_tokens``.

    ``chain`` (a list of numbers) and ``final`` may be there; other keys are left alone. Times are moved so
    that the first is 0, and lines are put in order of time.

    :raises ConfigError: with every line that cannot be used.
    """
    records, problems = [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            records.append(_record(json.loads(line)))
        except (ValueError, RecursionError) as problem:
            problems.append(f"{name}:{number}: {problem}")
    if not records and not problems:
        problems.append(f"{name}: no requests in it")
    if problems:
        raise ConfigError(tuple(problems[:MOST_PROBLEMS]))
    start = min(record.at for record in records)
    moved = (
        Record(one.at - start, one.session, one.tokens, one.output, one.chain, one.final) for one in records
    )
    return tuple(sorted(moved, key=lambda record: record.at))


def _record(read: object) -> Record:
    if not isinstance(read, dict):
        raise ValueError("expected a JSON object")
    session = read.get("session")
    if session is not None and not isinstance(session, str):
        raise ValueError("session: expected a string or null")
    if "tokens" in read:
        tokens = int(_number(read, "tokens"))
    else:
        tokens = int(_number(read, "bytes") / BYTES_PER_TOKEN)
    chain = read.get("chain", [])
    if not isinstance(chain, list) or not all(type(one) is int for one in chain):
        raise ValueError("chain: expected a list of whole numbers")
    return Record(
        _number(read, "time"),
        session,
        max(tokens, 1),
        max(int(_number(read, "output_tokens")), 1),
        tuple(chain),
        read.get("final") is True,
    )


def _number(read: dict[str, object], key: str) -> float:
    value = read.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
        raise ValueError(f"{key}: expected a number of at least 0, got {value!r}")
    return float(value)


def replay_row(name: str, records: Sequence[Record], replicas: int, model: EngineModel) -> Row:
    """A row whose measure is the mean time of a request."""
    return Row(
        name,
        f"{len(records)} recorded requests",
        partial(_fill, records=records),
        mean_span,
        model=model,
        replicas=replicas,
    )


def _fill(scene: Scene, records: Sequence[Record]) -> None:
    """Every conversation is an actor: a turn comes at its time, or when the one before is answered."""
    conversations: dict[str, list[Record]] = {}
    for record in records:
        if record.session is None:
            scene.simulation.at(record.at, _conversation(scene, [record]))
        else:
            conversations.setdefault(record.session, []).append(record)
    for turns in conversations.values():
        scene.simulation.at(turns[0].at, _conversation(scene, turns))


def _conversation(scene: Scene, turns: Sequence[Record]) -> Actor:
    simulation = scene.simulation
    text = scene.texts.empty()
    for turn in turns:
        if turn.at > simulation.now:
            yield Wait(turn.at - simulation.now)
        if turn.chain:
            text = _recorded(scene, turn)
        else:
            if turn.tokens < text.tokens:
                text = scene.texts.empty()
            text.grow(turn.tokens - text.tokens, messages=2)
        started = simulation.now
        yield Turn(text, turn.output, turn.session if scene.named else None, turn.final)
        scene.spans.append(simulation.now - started)


def _recorded(scene: Scene, turn: Record) -> Text:
    """A text whose equal beginnings are those of the recorded fingerprints."""
    text = scene.texts.empty()
    text.grow(turn.tokens)
    known = min(len(turn.chain), len(text.chunks))
    text.chunks[:known] = turn.chain[:known]
    for position in range(len(text.blocks)):
        at = int((position + 1) * BLOCK * BYTES_PER_TOKEN) // CHUNK
        if at >= known:
            break
        text.blocks[position] = hash((turn.chain[at], position))
    return text
