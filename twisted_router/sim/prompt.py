"""Request bodies to token counts and block keys, without a tokenizer.

A token is four bytes of the UTF-8 text of the rendered prompt, the last one possibly shorter. That is coarse,
but deterministic and prefix-stable: a conversation that grows keeps its leading tokens, and so its cached
blocks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b

#: Bytes of text that count as one token.
TOKEN_BYTES = 4


class NotUnderstood(ValueError):
    """A body that is valid JSON but not a request; the text says what was expected."""


def count(text: bytes) -> int:
    """Tokens in ``text``; an empty one still has one (a beginning-of-text token)."""
    return max(1, -(-len(text) // TOKEN_BYTES))


def chain(text: bytes, block_size: int) -> tuple[bytes, ...]:
    """A key for each full block of ``block_size`` tokens; each key covers its block and all before it."""
    size = block_size * TOKEN_BYTES
    keys = []
    key = b""
    for start in range(0, len(text) - size + 1, size):
        key = blake2b(text[start : start + size], key=key, digest_size=16).digest()
        keys.append(key)
    return tuple(keys)


def chat(body: Mapping[str, object]) -> bytes:
    """The prompt of a chat request: tools first, then each message, then the cue for the answer."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise NotUnderstood("messages: expected a list with at least one message")
    parts = [f"<|tools|>{_compact(body['tools'])}\n"] if body.get("tools") else []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise NotUnderstood("messages: each message needs a role")
        calls = _compact(message["tool_calls"]) if message.get("tool_calls") else ""
        parts.append(f"<|im_start|>{message['role']}\n{_content(message.get('content'))}{calls}<|im_end|>\n")
    parts.append("<|im_start|>assistant\n")
    return _encode("".join(parts))


def completion(body: Mapping[str, object]) -> bytes:
    """The prompt of a completion request: a string, or token ids."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, list) and prompt and all(isinstance(item, int) for item in prompt):
        # Each id becomes the four bytes that count as one token.
        return b"".join((item & 0xFFFFFFFF).to_bytes(4, "big") for item in prompt)
    if not isinstance(prompt, str):
        raise NotUnderstood("prompt: expected one string or one list of token ids")
    return _encode(prompt)


def responses(body: Mapping[str, object]) -> bytes:
    """The prompt of a Responses API request: ``instructions`` and ``input``, rendered like a chat."""
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise NotUnderstood("input: expected a string or a list of items")
    messages = [
        item if isinstance(item.get("role"), str) else {"role": "item", "content": _compact(item)}
        for item in items
    ]
    if isinstance(body.get("instructions"), str):
        messages.insert(0, {"role": "system", "content": body["instructions"]})
    return chat({**body, "messages": messages})


def inputs(body: Mapping[str, object]) -> list[bytes]:
    """The texts of an embeddings request."""
    given = body.get("input")
    several = given if isinstance(given, list) and not _is_ids(given) else [given]
    if not several:
        raise NotUnderstood("input: expected at least one text")
    return [completion({"prompt": item}) for item in several]


def _is_ids(value: list[object]) -> bool:
    return bool(value) and all(isinstance(item, int) for item in value)


def _content(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise NotUnderstood("content: expected a string or a list of parts")
    return "".join(
        part["text"] if isinstance(part, dict) and isinstance(part.get("text"), str) else _compact(part)
        for part in content
    )


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
