"""What a request asks of the fleet, before anybody looks for a replica."""

from __future__ import annotations

from attrs import frozen

from .prefix import Prompt


@frozen
class Wish:
    """One request's wish for a replica.

    :ivar session: its conversation's id, minted for this request where the client named none.
    :ivar named: the id the client named, or None.
    :ivar prompt: what is known of its text, where the policy ``wants_prompt``.
    :ivar streams: it asked for a stream, so that its first byte says when its prompt was computed.
    """

    session: str
    named: str | None
    prompt: Prompt | None = None
    streams: bool = True
