"""Whether anything is left on a slot: at its address, told by a connection that says nothing; at its lock."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from ..config.model import authority
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


def knocker(
    endpoint_to: Callable[[str, int], IStreamClientEndpoint], clock: IReactorTime, timeout: float
) -> Knock:
    """Make a knock that takes at most ``timeout`` seconds.

    :param endpoint_to: gives the endpoint for an address and port.
    """

    def judge(failure: Failure) -> Presence:
        if failure.check(ConnectionRefusedError):
            return Presence.SILENT
        _log.debug("no verdict on an address: {why}", why=failure.getErrorMessage())
        return Presence.UNKNOWN

    def knock(address: str, port: int) -> Deferred[Presence]:
        attempt = endpoint_to(address, port).connect(_Quiet.forProtocol(_HangUp)).addTimeout(timeout, clock)
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
        return f"{authority(address, port)} {presence.value}"
    if launcher is not None and slot is not None and await launcher.is_held(slot):
        return f"a process holds the lock of slot {slot.name}"
    return None
