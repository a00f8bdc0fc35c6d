"""Whether anything is left on a slot: at its address, told by a connection that says nothing; at its lock."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, TCP4ClientEndpoint, TCP6ClientEndpoint
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from ..core.slots import Slot
from ..interfaces import ILauncher

_log = Logger()


class Presence(Enum):
    """What an address shows."""

    SILENT = "refuses connections"
    PRESENT = "still accepts connections"
    UNKNOWN = "neither accepts nor refuses a connection"


#: Fires with what ``address, port`` shows; bounded in time and never fails.
Knock = Callable[[str, int], Deferred[Presence]]


class _Quiet(Factory):
    noisy = False


class _HangUp(Protocol):
    """Leaves as soon as somebody opens."""

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.abortConnection()  # type: ignore[attr-defined]  # every stream transport has it


def _endpoint(reactor: Any, address: str, port: int, timeout: float) -> IStreamClientEndpoint:
    """A refusal by a literal address is told at once; a name is tried address by address, 0.3 s apart."""
    if isIPv6Address(address):
        return TCP6ClientEndpoint(reactor, address, port, timeout)
    if isIPAddress(address):
        return TCP4ClientEndpoint(reactor, address, port, timeout)
    return HostnameEndpoint(reactor, address, port, timeout)


def knocker(reactor: Any, timeout: float) -> Knock:
    """Make a knock that takes at most ``timeout`` seconds.

    :param reactor: provides ``IReactorTime``, ``IReactorTCP`` and ``IReactorPluggableNameResolver``.
    """

    def judge(failure: Failure) -> Presence:
        if failure.check(ConnectionRefusedError):
            return Presence.SILENT
        _log.debug("no verdict on an address: {why}", why=failure.getErrorMessage())
        return Presence.UNKNOWN

    def knock(address: str, port: int) -> Deferred[Presence]:
        endpoint = _endpoint(reactor, address, port, timeout)
        attempt = endpoint.connect(_Quiet.forProtocol(_HangUp)).addTimeout(timeout, reactor)
        return attempt.addCallbacks(lambda _: Presence.PRESENT, judge)

    return knock


async def remains(
    knock: Knock, address: str, port: int, launcher: ILauncher | None, slot: Slot | None
) -> str | None:
    """Say what speaks against an empty slot, None when nothing does.

    :param launcher: None, like ``slot``, where the configuration has lost the slot: only its address is left.

    Raises ``StopUnconfirmed`` when the lock cannot be looked at.
    """
    presence = await knock(address, port)
    if presence is not Presence.SILENT:
        return f"{address}:{port} {presence.value}"
    if launcher is not None and slot is not None and await launcher.is_held(slot):
        return f"a process holds the lock of slot {slot.name}"
    return None
