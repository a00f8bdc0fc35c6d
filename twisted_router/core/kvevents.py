"""What a replica tells of its KV cache: the events that vLLM and its kin publish, in either layout.

A batch is ``[time, events, ...]`` or an object with ``events``; an event is ``[kind, field, ...]`` or an
object with ``type``. Fields that are not known are passed over; a kind that is not known is an error, for it
may have changed what is cached. Token ids are not looked at: they are somebody's text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from attrs import frozen

_FIELDS = {
    "BlockStored": (
        "block_hashes",
        "parent_block_hash",
        "token_ids",
        "block_size",
        "lora_id",
        "medium",
        "lora_name",
        "extra_keys",
        "group_idx",
        "kv_cache_spec_kind",
    ),
    "BlockRemoved": ("block_hashes", "medium", "group_idx"),
    "AllBlocksCleared": (),
}

#: Kinds of layers whose cache is reused by prefix alone; others keep a window or a state.
_WHOLE_PREFIX = ("full_attention", "mla_attention", "sink_full_attention")


class UnknownEvents(ValueError):
    """Events of a shape that is not known; whoever sent them cannot be believed from here on."""


class News(Enum):
    """What there is to count about one replica's events; also a metric label."""

    STORED = "stored"
    REMOVED = "removed"
    CLEARED = "cleared"
    MATCHED = "matched"
    FORGOTTEN = "forgotten"
    MISSED = "missed"
    REPLAY = "replay"
    RESTARTED = "restarted"
    UNTRUSTED = "untrusted"


@frozen
class Stored:
    """Blocks came into the cache, each one behind the one before.

    :ivar hashes: their names, all of ``block_size`` tokens.
    :ivar parent: the block that the first of them follows, None where it begins a text.
    :ivar group: which group of layers, for models that have several.
    :ivar counts: whether they are in fast memory and of a group that a prefix fills from its beginning.
    """

    hashes: tuple[int, ...]
    parent: int | None
    block_size: int
    group: int | None = None
    counts: bool = True


@frozen
class Removed:
    """Blocks left the cache."""

    hashes: tuple[int, ...]
    group: int | None = None
    counts: bool = True


@frozen
class Cleared:
    """Nothing is cached any more."""


KvEvent = Stored | Removed | Cleared


def read_batch(value: object) -> tuple[KvEvent, ...]:
    """Read one unpacked batch.

    :raises UnknownEvents: it is none, or holds an event that is not known.
    """
    match value:
        case [int() | float(), list() as events, *_] | {"events": list() as events}:
            return tuple(_event(event) for event in events)
    raise UnknownEvents(f"expected a batch of events, got {_kind_of(value)}")


def _event(value: object) -> KvEvent:
    match value:
        case [str() as kind, *given] if kind in _FIELDS:
            fields: Mapping[object, object] = dict(zip(_FIELDS[kind], given, strict=False))
        case {"type": str() as kind, **named} if kind in _FIELDS:
            fields = named
        case [str() as kind, *_] | {"type": str() as kind}:
            raise UnknownEvents(f"no event is called {kind[:40]!r}")
        case _:
            raise UnknownEvents(f"expected an event, got {_kind_of(value)}")
    match kind:
        case "BlockStored":
            return _stored(fields)
        case "BlockRemoved":
            group = _number(fields.get("group_idx"), "group_idx")
            return Removed(_hashes(fields.get("block_hashes")), group, _is_fast(fields))
    return Cleared()


def _stored(fields: Mapping[object, object]) -> Stored:
    size, parent, layers = (
        fields.get(name) for name in ("block_size", "parent_block_hash", "kv_cache_spec_kind")
    )
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise UnknownEvents(f"block_size: expected a whole number of at least 1, got {_kind_of(size)}")
    if not isinstance(fields.get("token_ids"), list):
        raise UnknownEvents(f"token_ids: expected a list, got {_kind_of(fields.get('token_ids'))}")
    return Stored(
        _hashes(fields.get("block_hashes")),
        None if parent is None else _hash(parent),
        size,
        _number(fields.get("group_idx"), "group_idx"),
        _is_fast(fields) and (layers is None or layers in _WHOLE_PREFIX),
    )


def _is_fast(fields: Mapping[object, object]) -> bool:
    """Tell whether it is the accelerator's memory; copies elsewhere come and go by other rules."""
    medium = fields.get("medium")
    if medium is None:
        return True
    if not isinstance(medium, str):
        raise UnknownEvents(f"medium: expected a name, got {_kind_of(medium)}")
    return medium.upper() == "GPU"


def _hashes(value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise UnknownEvents(f"block_hashes: expected a list, got {_kind_of(value)}")
    return tuple(map(_hash, value))


def _hash(value: object) -> int:
    """A number names a block, or bytes, of which the last eight are as good."""
    if isinstance(value, bytes) and value:
        return int.from_bytes(value[-8:], "big")
    number = _number(value, "block hash")
    if number is None:
        raise UnknownEvents("block hash: expected a number or bytes, got null")
    return number


def _number(value: object, what: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise UnknownEvents(f"{what}: expected a number, got {_kind_of(value)}")


def _kind_of(value: object) -> str:
    """Name a value's kind, and nothing of what it holds."""
    if value is None:
        return "null"
    if isinstance(value, str | bytes):
        return "a text" if isinstance(value, str) else "bytes"
    if isinstance(value, Sequence):
        return f"a list of {len(value)}"
    return "an object" if isinstance(value, Mapping) else f"a {type(value).__name__}"
