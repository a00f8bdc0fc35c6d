"""What a simulated replica says, in the shapes that clients of OpenAI's and vLLM's servers expect (pure)."""

from __future__ import annotations

import base64
import itertools
import json
import struct
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Protocol

from attrs import field, frozen

DONE = b"data: [DONE]\n\n"
#: The marker that every answer carries.
FINGERPRINT = "simulated"


@frozen
class Script:
    """The text of every answer, cut into pieces that count as one token each, repeated without end."""

    name: str
    _pieces: tuple[str, ...] = field(init=False)

    @_pieces.default
    def _cut(self) -> tuple[str, ...]:
        text = f"This answer is simulated by {self.name}: no model was asked and it means nothing. "
        text += " " * (-len(text) % 4)
        return tuple(text[start : start + 4] for start in range(0, len(text), 4))

    def piece(self, index: int) -> str:
        """Token number ``index``, counted from 0."""
        return self._pieces[index % len(self._pieces)]

    def text(self, tokens: int, start: int = 0) -> str:
        """The tokens from number ``start`` up to, and without, number ``tokens``."""
        return "".join(self.piece(index) for index in range(start, tokens))


@frozen
class Usage:
    """Tokens of one finished request."""

    prompt: int
    cached: int
    completion: int = 0

    def as_openai(self) -> dict[str, object]:
        """The ``usage`` of chat, completions and embeddings."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }

    def as_responses(self) -> dict[str, object]:
        """The ``usage`` of the Responses API."""
        return {
            "input_tokens": self.prompt,
            "input_tokens_details": {"cached_tokens": self.cached},
            "output_tokens": self.completion,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self.prompt + self.completion,
        }


class Dialect(Protocol):
    """How one API shows an answer. ``finish`` is ``stop`` or ``length``."""

    def opening(self) -> bytes:
        """Frames of a stream before the first token."""

    def token(self, piece: str) -> bytes:
        """The frame of one token."""

    def closing(self, text: str, usage: Usage, finish: str) -> bytes:
        """Frames that end a stream."""

    def whole(self, text: str, usage: Usage, finish: str) -> dict[str, object]:
        """The answer in one piece."""


def frame(value: object, event: str | None = None) -> bytes:
    """One server-sent event."""
    head = b"event: " + event.encode() + b"\n" if event else b""
    return head + b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


@frozen
class Completions:
    """``/v1/chat/completions`` and ``/v1/completions``; ``created`` is a Unix time in seconds."""

    chat: bool
    id: str
    model: str
    created: int
    include_usage: bool = False
    _around: tuple[bytes, bytes] = field(init=False)

    @_around.default
    def _split(self) -> tuple[bytes, bytes]:
        # A stream repeats all but one string: build the frame once and cut it around that string.
        before, after = frame(self._chunk("\0", None)).split(json.dumps("\0").encode())
        return before, after

    def opening(self) -> bytes:
        """A chat stream begins with the role."""
        if not self.chat:
            return b""
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        return frame(self._envelope([choice], streamed=True))

    def token(self, piece: str) -> bytes:
        """One chunk with ``piece``."""
        before, after = self._around
        return before + json.dumps(piece).encode() + after

    def closing(self, text: str, usage: Usage, finish: str) -> bytes:
        """The finish reason, the usage if asked for, and ``[DONE]``."""
        frames = frame(self._chunk(None, finish))
        if self.include_usage:
            frames += frame({**self._envelope([], streamed=True), "usage": usage.as_openai()})
        return frames + DONE

    def whole(self, text: str, usage: Usage, finish: str) -> dict[str, object]:
        """The object a client without ``stream`` gets."""
        said: dict[str, object] = (
            {"message": {"role": "assistant", "content": text, "refusal": None}}
            if self.chat
            else {"text": text}
        )
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": finish}
        return {**self._envelope([choice], streamed=False), "usage": usage.as_openai()}

    def _chunk(self, piece: str | None, finish: str | None) -> dict[str, object]:
        said: dict[str, object]
        if self.chat:
            said = {"delta": {} if piece is None else {"content": piece}}
        else:
            said = {"text": piece or ""}
        return self._envelope(
            [{"index": 0, **said, "logprobs": None, "finish_reason": finish}], streamed=True
        )

    def _envelope(self, choices: list[dict[str, object]], streamed: bool) -> dict[str, object]:
        kind = "text_completion"
        if self.chat:
            kind = "chat.completion.chunk" if streamed else "chat.completion"
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
        }


@frozen
class Responses:
    """``/v1/responses``: one message item with one text part; one object shows one answer."""

    id: str
    model: str
    created: int
    _numbers: Iterator[int] = field(factory=itertools.count, init=False)

    def opening(self) -> bytes:
        """The frames that announce the response, its item and its part."""
        return b"".join(
            (
                self._event("response.created", response=self._body("in_progress", [], None)),
                self._event("response.output_item.added", output_index=0, item=self._item("in_progress", [])),
                self._event(
                    "response.content_part.added", **self._where(), content_index=0, part=self._part("")
                ),
            )
        )

    def token(self, piece: str) -> bytes:
        """One text delta."""
        return self._event(
            "response.output_text.delta", **self._where(), content_index=0, delta=piece, logprobs=[]
        )

    def closing(self, text: str, usage: Usage, finish: str) -> bytes:
        """The frames that complete part, item and response."""
        item = self._item("completed", [self._part(text)])
        return b"".join(
            (
                self._event(
                    "response.output_text.done", **self._where(), content_index=0, text=text, logprobs=[]
                ),
                self._event(
                    "response.content_part.done", **self._where(), content_index=0, part=self._part(text)
                ),
                self._event("response.output_item.done", output_index=0, item=item),
                self._event("response.completed", response=self.whole(text, usage, finish)),
            )
        )

    def whole(self, text: str, usage: Usage, finish: str) -> dict[str, object]:
        """The completed response."""
        return self._body("completed", [self._item("completed", [self._part(text)])], usage.as_responses())

    def _body(
        self, status: str, output: list[object], usage: Mapping[str, object] | None
    ) -> dict[str, object]:
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "model": self.model,
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "metadata": {"system_fingerprint": FINGERPRINT},
            "usage": usage,
        }

    def _item(self, status: str, content: list[object]) -> dict[str, object]:
        return {
            "id": f"msg_{self.id}",
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        }

    def _part(self, text: str) -> dict[str, object]:
        return {"type": "output_text", "text": text, "annotations": []}

    def _where(self) -> dict[str, object]:
        return {"item_id": f"msg_{self.id}", "output_index": 0}

    def _event(self, kind: str, **fields: object) -> bytes:
        return frame({"type": kind, "sequence_number": next(self._numbers), **fields}, kind)


def vector(text: bytes, dimensions: int) -> list[float]:
    """Numbers between -1 and 1 that depend on the text alone."""
    return [
        int.from_bytes(blake2b(text, salt=index.to_bytes(4, "big"), digest_size=4).digest(), "big") / 2**31
        - 1
        for index in range(dimensions)
    ]


def embeddings(
    texts: list[bytes], dimensions: int, as_base64: bool, model: str, usage: Usage
) -> dict[str, object]:
    """The answer of ``/v1/embeddings``; base64 holds little-endian 32-bit floats."""
    data = []
    for index, text in enumerate(texts):
        numbers = vector(text, dimensions)
        shown: object = numbers
        if as_base64:
            shown = base64.b64encode(struct.pack(f"<{dimensions}f", *numbers)).decode()
        data.append({"object": "embedding", "index": index, "embedding": shown})
    return {
        "object": "list",
        "data": data,
        "model": model,
        "system_fingerprint": FINGERPRINT,
        "usage": usage.as_openai(),
    }


def models(name: str, root: str, max_model_len: int, created: int) -> dict[str, object]:
    """The answer of ``/v1/models``."""
    return {
        "object": "list",
        "data": [
            {
                "id": name,
                "object": "model",
                "created": created,
                "owned_by": FINGERPRINT,
                "root": root,
                "parent": None,
                "max_model_len": max_model_len,
            }
        ],
    }


def problem(message: str, status: int, param: str | None = None) -> dict[str, object]:
    """An error as vLLM writes it: a type after the status, an integer code."""
    kinds = {400: "BadRequestError", 404: "NotFoundError", 405: "MethodNotAllowedError"}
    kind = kinds.get(status, "ServiceUnavailableError" if status == 503 else "InternalServerError")
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}
