"""TLS counts as connected once both sides have agreed, and not before."""

from __future__ import annotations

from typing import cast

from service_identity import VerificationError
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import (
    IAddress,
    IHandshakeListener,
    IProtocol,
    IProtocolFactory,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.protocols.tls import TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from zope.interface import implementer


class HandshakeFailed(ConnectError):
    """TCP connected, and TLS was not agreed upon."""

    def __str__(self) -> str:
        return f"TLS: {self.args[0]}"


@implementer(IStreamClientEndpoint)
class HandshakeEndpoint:
    """Connects over TLS; what goes wrong before the handshake is done is a failure to connect.

    Twisted's own endpoint fires when TCP is connected: a replica that accepts and says nothing would then be
    waited for as if it computed, and a certificate that is refused would look like a broken answer.

    :param endpoint: made by ``wrapClientTLS``.
    """

    def __init__(self, endpoint: IStreamClientEndpoint) -> None:
        self._endpoint = endpoint

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """See ``IStreamClientEndpoint``. Fails with ``HandshakeFailed`` and TLS's own reason."""
        greetings: list[_Greeting] = []

        def give_up(_: object) -> None:
            connecting.cancel()
            for greeting in greetings:
                greeting.abort()

        done: Deferred[IProtocol] = Deferred(give_up)

        def greet() -> _Greeting:
            greetings.append(_Greeting(protocolFactory, done))
            return greetings[0]

        factory = Factory.forProtocol(greet)
        factory.noisy = False
        connecting = self._endpoint.connect(factory)
        connecting.addErrback(lambda failure: None if done.called else done.errback(failure))
        return done


@implementer(IHandshakeListener)
class _Greeting(Protocol):
    """Stands in for the real protocol until the handshake is done."""

    transport: TLSMemoryBIOProtocol

    def __init__(self, factory: IProtocolFactory, done: Deferred[IProtocol]) -> None:
        self._factory = factory
        self._done = done

    def handshakeCompleted(self) -> None:
        """Give the connection to the protocol it was made for."""
        protocol = self._factory.buildProtocol(cast(IAddress, self.transport.getPeer()))
        if protocol is None or self._done.called:
            self.abort()
            return
        self.transport.wrappedProtocol = protocol
        protocol.makeConnection(self.transport)
        self._done.callback(protocol)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """It came to nothing."""
        if not self._done.called:
            self._done.errback(HandshakeFailed(string=tls_reason(reason)))

    def abort(self) -> None:
        """Drop the connection."""
        self.transport.abortConnection()


def tls_reason(failure: Failure) -> str:
    """Put into words why a handshake failed; OpenSSL gives lists of its functions."""
    if failure.check(VerificationError):
        return "the certificate is for another name or address"
    told = failure.value.args[0] if failure.value is not None and failure.value.args else None
    if isinstance(told, list):
        return ", ".join(str(entry[-1]) for entry in told if entry) or "the handshake was broken off"
    return failure.getErrorMessage().rstrip(".") or type(failure.value).__name__
