"""The laboratory's prompts, written out: text that nobody else has, in the messages of a chat request."""

from __future__ import annotations

import json
from random import Random

#: Bytes the simulated replica counts as one token.
TOKEN = 4

#: The model that requests name.
MODEL = "bench"

#: What a replica's chat template puts around each message, beside the role.
_FRAME = len("<|im_start|>\n<|im_end|>\n")


class WrittenTexts:
    """Makes texts; all that one of these makes differ from each other and from those of other seeds."""

    def __init__(self, seed: str) -> None:
        self._random = Random(seed)

    def empty(self) -> WrittenText:
        """A text of no tokens."""
        return WrittenText(self._random, [])


class WrittenText:
    """A growing conversation; ``tokens`` as the laboratory counts them, as replicas do to within 1 %."""

    __slots__ = ("_messages", "_random", "tokens")

    def __init__(self, random: Random, messages: list[bytes], tokens: int = 0) -> None:
        self._random = random
        self._messages = messages
        self.tokens = tokens

    def grow(self, tokens: int, messages: int = 1) -> WrittenText:
        """Append so many messages, or to the last one, that nobody else has; return self."""
        self.tokens += tokens
        if messages == 0 and self._messages:
            self._messages[-1] += self._content(tokens * TOKEN)
            return self
        for number in range(max(messages, 1)):
            role = "system" if not self._messages else "user" if number == messages - 1 else "assistant"
            size = tokens * TOKEN // max(messages, 1) - _FRAME - len(role)
            self._messages.append(b'{"role":"%b","content":"%b' % (role.encode(), self._content(size)))
        return self

    def fork(self) -> WrittenText:
        """Another text that is equal so far."""
        return WrittenText(self._random, list(self._messages), self.tokens)

    def body(self, output: int, session: str | None) -> bytes:
        """A streamed chat request for exactly so many tokens; fields that vary stand before the messages."""
        asked: dict[str, object] = {
            "model": MODEL,
            "max_tokens": output,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if session is not None:
            asked["session_params"] = {"session_id": session}
        head = json.dumps(asked, separators=(",", ":")).encode()
        return b'%b,"messages":[%b"}]}' % (head[:-1], b'"},'.join(self._messages))

    def _content(self, size: int) -> bytes:
        return self._random.randbytes(max(size, 2) // 2).hex().encode()
