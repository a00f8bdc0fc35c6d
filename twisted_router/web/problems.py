"""An exception -> the JSON a client gets: OpenAI's error envelope and the plain object form in one."""

from __future__ import annotations

import json
from typing import Any

from twisted.web.iweb import IRequest

from ..errors import RouterError


def body(error: RouterError, **more: Any) -> bytes:
    """Render the error's JSON, with what else is worth knowing beside it."""
    document = {
        "error": {"message": error.message, "type": error.type, "param": None, "code": error.code},
        "object": "error",
        "message": error.message,
        **more,
    }
    return json.dumps(document).encode("ascii") + b"\n"


def answer(request: IRequest, error: RouterError, **more: Any) -> bytes:
    """Set a request's status and header fields; return the body that goes with them."""
    request.setResponseCode(error.status)
    for name, value in fields(error):
        request.setHeader(name, value)
    return body(error, **more)


def fields(error: RouterError) -> list[tuple[bytes, bytes]]:
    """Return the header fields that go with it, length excepted."""
    fields = [(b"Content-Type", b"application/json")]
    if error.retry_after is not None:
        fields.append((b"Retry-After", b"%d" % error.retry_after))
    if error.status == 401:
        fields.append((b"WWW-Authenticate", b"Bearer"))
    return fields
