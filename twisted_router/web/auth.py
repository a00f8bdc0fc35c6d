"""Who may make administrative calls (manual: Security)."""

from __future__ import annotations

from hmac import compare_digest
from ipaddress import IPv6Address, ip_address

from twisted.web.server import Request

from ..errors import Forbidden, Unauthorized

#: Fields that say a request came from a browser's page, or through a proxy and so from anywhere.
_FROM_ELSEWHERE = (b"origin", b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via")


class Guard:
    """Lets administrative calls through or not.

    With a token, whoever shows it. Without one, everybody if ``is_open``; otherwise only this machine itself,
    because such a call starts processes.
    """

    def __init__(self, token: str | None, *, is_open: bool) -> None:
        self._token = None if token is None else token.encode("utf-8")
        self._is_open = is_open

    def check(self, request: Request) -> None:
        """Return when the call is allowed.

        :raises Unauthorized: the token is missing or wrong.
        :raises Forbidden: there is no token and the call does not come from this machine.
        """
        if self._token is not None:
            scheme, _, shown = (request.getHeader(b"authorization") or b"").partition(b" ")
            if scheme.lower() != b"bearer" or not compare_digest(shown.strip(), self._token):
                raise Unauthorized("admin token required: send Authorization: Bearer <token>")
        elif not self._is_open and not _is_local(request):
            raise Forbidden(
                "without --admin-token, administrative calls are taken from this machine only "
                "(--admin-open takes them from anywhere)"
            )


def _is_local(request: Request) -> bool:
    if any(request.requestHeaders.hasHeader(name) for name in _FROM_ELSEWHERE):
        return False
    peer = ip_address(request.getClientAddress().host)
    mapped = peer.ipv4_mapped if isinstance(peer, IPv6Address) else None
    return (mapped or peer).is_loopback
