"""The bytes that stub and load agree on; ``native/event.h`` says the same in C."""

EVENT_BYTES = 250
_HEAD = (
    b'data: {"object":"chat.completion.chunk","i":"%08x","t":"%016x",'
    b'"choices":[{"index":0,"delta":{"content":"'
)
_TAIL = b'"}}]}\n\n'
_INDEX, _TIME = slice(45, 53), slice(60, 76)
DONE = b"data: [DONE]\n\n"
REPLY_HEAD = b'{"object":"chat.completion","text":"'
REPLY_TAIL = b'"}'


def event(index: int, sent: int) -> bytes:
    """The SSE event number *index*, written at *sent* (nanoseconds, monotonic)."""
    head = _HEAD % (index, sent)
    return head + b"x" * (EVENT_BYTES - len(head) - len(_TAIL)) + _TAIL


def sent_at(text: bytes, index: int) -> int | None:
    """When the event *text* was written; None when it is not event number *index*."""
    try:
        sent = int(text[_TIME], 16)
    except ValueError:
        return None
    return sent if text == event(index, sent) else None


def reply(length: int) -> bytes:
    """The JSON answer of *length* bytes."""
    return REPLY_HEAD + b"x" * (length - len(REPLY_HEAD) - len(REPLY_TAIL)) + REPLY_TAIL
