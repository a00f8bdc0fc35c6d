"""Form uploads: ``multipart/form-data`` to its fields, byte for byte (RFC 7578)."""

from __future__ import annotations

from email.message import Message
from email.parser import BytesHeaderParser

from attrs import frozen


class MultipartError(ValueError):
    """A body that is not the form its content type promises."""


@frozen
class Part:
    """One field of a form; ``filename`` is None for plain values."""

    filename: str | None
    content: bytes


def parts(body: bytes, content_type: bytes) -> dict[str, Part]:
    """The fields by name. Raises :class:`MultipartError`."""
    declared = Message()
    declared["content-type"] = content_type.decode("latin-1")
    boundary = declared.get_boundary()
    if declared.get_content_type() != "multipart/form-data" or not boundary:
        raise MultipartError("expected multipart/form-data with a boundary")
    mark = b"--" + boundary.encode("latin-1")
    sections = (b"\r\n" + body).split(b"\r\n" + mark)
    if len(sections) < 2 or not sections[-1].startswith(b"--"):
        raise MultipartError("the form does not end with its boundary")
    fields = {}
    for section in sections[1:-1]:
        head, found, content = section.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        headers = BytesHeaderParser().parsebytes(head)
        name = headers.get_param("name", header="content-disposition")
        if not found or not isinstance(name, str):
            raise MultipartError("a part of the form has no name")
        fields[name] = Part(headers.get_filename(), content)
    return fields
