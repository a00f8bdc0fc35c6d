"""A ZeroMQ socket on the reactor.

Its descriptor tells of the socket's inner life, not of messages, and only once for each change: so after
every wakening, every send, and once at the beginning, everything there is has to be taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import zmq
from twisted.internet.interfaces import IDelayedCall, IReactorFDSet, IReactorTime, IReadDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

#: Messages taken before the reactor may see to others.
TURN = 64


class IReactor(IReactorTime, IReactorFDSet):
    """What a socket needs of the reactor."""


@implementer(IReadDescriptor)
class ReactorSocket:
    """Hands over what a socket receives, a list of frames for each message.

    :param socket: connected or bound already; closed by ``close``.
    """

    def __init__(
        self, reactor: IReactor, socket: zmq.Socket[bytes], received: Callable[[list[bytes]], None]
    ) -> None:
        self._reactor = reactor
        self._socket = socket
        self._received = received
        self._again: IDelayedCall | None = None
        self._descriptor = socket.getsockopt(zmq.FD)
        reactor.addReader(self)
        self._look_again()

    def send(self, frames: Sequence[bytes]) -> None:
        """Send one message; it is queued where nobody is connected yet.

        :raises zmq.Again: the queue is full.
        """
        self._socket.send_multipart(frames, zmq.NOBLOCK)
        self._look_again()

    def close(self) -> None:
        """Close it at once, whatever is queued; it hands over nothing from here on."""
        if self._socket.closed:
            return
        self._reactor.removeReader(self)
        if self._again is not None:
            self._again.cancel()
            self._again = None
        self._socket.close(linger=0)

    def fileno(self) -> int:
        """The descriptor that becomes readable when something has changed."""
        return -1 if self._socket.closed else int(self._descriptor)

    def logPrefix(self) -> str:
        """How it is called in logs."""
        return "zeromq"

    def connectionLost(self, reason: Failure) -> None:
        """The reactor gives up on the descriptor: the process ends."""
        self.close()

    def doRead(self) -> None:
        """Take what is there; what is left over has its turn after the others."""
        for _ in range(TURN):
            if self._socket.closed or not int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
                return
            self._received(self._socket.recv_multipart(zmq.NOBLOCK))
        self._look_again()

    def _look_again(self) -> None:
        if self._again is None and not self._socket.closed:
            self._again = self._reactor.callLater(0, self._look)

    def _look(self) -> None:
        self._again = None
        self.doRead()
