"""Replicas on another machine over Twisted's own ssh, for where no ``ssh`` program is.

Transport, connection and channel are ours: the stock endpoint never reports a connection lost under a running
command, drops standard error, and does not look up ``[host]:port``.
"""

from __future__ import annotations

import base64
import getpass
import hashlib
import os
from collections.abc import Callable
from struct import unpack
from typing import Any, NoReturn

from twisted.conch.ssh.channel import SSHChannel
from twisted.conch.ssh.common import NS
from twisted.conch.ssh.connection import EXTENDED_DATA_STDERR, SSHConnection
from twisted.conch.ssh.transport import (
    DISCONNECT_KEY_EXCHANGE_FAILED,
    DISCONNECT_NO_MORE_AUTH_METHODS_AVAILABLE,
    SSHClientTransport,
)
from twisted.internet.defer import CancelledError, Deferred, DeferredLock, TimeoutError, fail, succeed
from twisted.internet.endpoints import HostnameEndpoint, connectProtocol
from twisted.internet.error import ConnectError, ConnectingCancelledError
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from ..config.model import HostConfig, split_destination
from . import sentences
from .conch_keys import KeyLogin, Keys, KeyTrouble, find_keys
from .known_hosts import KnownKeys, Verdict, known_keys
from .process import Tail
from .remote import Ran, RemoteLauncher, Trouble
from .scripts import SHELL, Script

_log = Logger()

#: Seconds for the TCP connection, and for greeting, key exchange and login after it.
CONNECT_TIMEOUT = 4
LOGIN_TIMEOUT = 10.0

#: Seconds between signs of life asked of the server, and how many may be missing (as ``ssh`` is told to).
KEEPALIVE_INTERVAL = 5.0
KEEPALIVES_MISSING = 3

_KNOWN_HOSTS = ("~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts")

_NOT_ACCEPTED = {
    Verdict.UNKNOWN: sentences.HOST_KEY_UNKNOWN,
    Verdict.CHANGED: sentences.HOST_KEY_CHANGED,
    Verdict.REVOKED: "its host key is marked as revoked in known_hosts",
}


class NotConnected(Exception):
    """No connection came about; the text is a sentence for the operator."""


class _Channel(SSHChannel):
    """One command on a connection: script in, output and errors out, and an end in any case."""

    name = b"session"

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.done: Deferred[Ran] = Deferred(lambda _: self._give_up())
        self._script = script
        self._streams = Tail(), Tail()
        self._code: int | None = None
        self._ended = False

    def openFailed(self, reason: Any) -> None:
        what = reason.getErrorMessage() if isinstance(reason, Failure) else str(reason)
        self._finish(Trouble(f"it opens no session: {what}", before=True))

    def channelOpen(self, specificData: bytes) -> None:
        if self.done.called:
            self.loseConnection()
            return
        connection: Any = self.conn
        request = connection.sendRequest(self, b"exec", NS(SHELL.encode()), wantReply=True)
        request.addCallbacks(lambda _: self.write(self._script.text), self._not_run)

    def _give_up(self) -> None:
        """Close, now or as soon as it is open."""
        if self.conn is not None and self in self.conn.channelsToRemoteChannel:
            self.loseConnection()

    def _not_run(self, reason: Failure) -> None:
        self._finish(Trouble(f"it runs no command: {reason.getErrorMessage()}", before=True))
        self.loseConnection()

    def dataReceived(self, data: bytes) -> None:
        self._streams[0].add(data)
        if self._streams[0].has(self._script.last_word, len(data)):
            self._finish(None)
            self.loseConnection()

    def extReceived(self, dataType: int, data: bytes) -> None:
        if dataType == EXTENDED_DATA_STDERR:
            self._streams[1].add(data)

    def request_exit_status(self, data: bytes) -> bool:
        """How the command ended, where it was not by a signal (RFC 4254, 6.10)."""
        (self._code,) = unpack(">L", data[:4])
        self._ended = True
        return True

    def request_exit_signal(self, data: bytes) -> bool:
        """A signal ended it."""
        self._ended = True
        return True

    def closed(self) -> None:
        self._finish(None if self._ended else Trouble(sentences.CONNECTION_LOST, before=False, lost=True))

    def _finish(self, trouble: Trouble | None) -> None:
        if not self.done.called:
            output, errors = (stream.value() for stream in self._streams)
            self.done.callback(Ran(output, errors, self._code, trouble))


class _Connection(SSHConnection):
    """Tells when it is ready for commands, and hangs up when the server shows no sign of life."""

    def __init__(self, reactor: Any, ready: Callable[[], None]) -> None:
        super().__init__()
        self._ready = ready
        self._unanswered = 0
        self._alive = LoopingCall(self._ask_for_life)
        self._alive.clock = reactor

    def serviceStarted(self) -> None:
        super().serviceStarted()
        asking = self._alive.start(KEEPALIVE_INTERVAL, now=False)
        asking.addErrback(lambda failure: _log.failure("keeping a connection alive failed", failure))
        self._ready()

    def serviceStopped(self) -> None:
        if self._alive.running:
            self._alive.stop()
        super().serviceStopped()

    def _ask_for_life(self) -> None:
        if self._unanswered >= KEEPALIVES_MISSING:
            transport: Any = self.transport
            transport.transport.abortConnection()
            return
        self._unanswered += 1
        answer = self.sendGlobalRequest(b"keepalive@openssh.com", b"", wantReply=1)
        answer.addBoth(self._answered)

    def _answered(self, _: object) -> None:
        """Even a refusal is a sign of life."""
        self._unanswered = 0


class _Transport(SSHClientTransport):
    """One connection to one server, from the greeting to the loss; every loss is reported."""

    def __init__(self, reactor: Any, user: str, keys: Keys, known: KnownKeys) -> None:
        self.ready: Deferred[None] = Deferred(lambda _: self._abort())
        self.connection = _Connection(reactor, lambda: self.ready.callback(None))
        self.lost = False
        self.supportedPublicKeys = known.order(SSHClientTransport.supportedPublicKeys)
        self._login = KeyLogin(user, self.connection, keys)
        self._known = known
        self._why: str | None = None
        self._clock = reactor
        self._silence: Any = None

    def connectionMade(self) -> None:
        self._silence = self._clock.callLater(CONNECT_TIMEOUT, self._no_greeting)
        super().connectionMade()

    def verifyHostKey(self, hostKey: bytes, fingerprint: bytes) -> Deferred[bool]:
        verdict = self._known.judge(hostKey)
        if verdict is Verdict.KNOWN:
            return succeed(True)
        shown = base64.b64encode(hashlib.sha256(hostKey).digest()).decode().rstrip("=")
        self._why = f"{_NOT_ACCEPTED[verdict]}: SHA256:{shown}"
        return fail(NotConnected(self._why))

    def connectionSecure(self) -> None:
        self.requestService(self._login)

    def sendDisconnect(self, reason: int, desc: bytes) -> None:
        if reason == DISCONNECT_NO_MORE_AUTH_METHODS_AVAILABLE:
            self._why = self._why or sentences.KEY_REFUSED
        elif reason == DISCONNECT_KEY_EXCHANGE_FAILED:
            self._why = self._why or "it has no algorithm in common with us"
        super().sendDisconnect(reason, desc)

    def receiveError(self, reasonCode: int, description: bytes) -> None:
        text = description.decode("utf-8", "replace")
        many = "authentication failures" in text
        self._why = self._why or (sentences.KEY_REFUSED if many else f"its ssh server hangs up: {text}")

    def _no_greeting(self) -> None:
        if not self.gotVersion:
            self._why = sentences.SILENT
            self._abort()

    def _abort(self) -> None:
        transport: Any = self.transport
        transport.abortConnection()

    def connectionLost(self, reason: Failure | None = None) -> None:
        self.lost = True
        if self._silence.active():
            self._silence.cancel()
        super().connectionLost(reason)
        self._login.close()
        if not self.ready.called:
            said = (
                self._why or f"its ssh server hangs up: {reason.getErrorMessage() if reason else 'no reason'}"
            )
            self.ready.errback(NotConnected(said))


class ConchLauncher(RemoteLauncher):
    """Runs every step on one connection, made when it is needed and again after it was lost."""

    def __init__(self, host: HostConfig, reactor: Any) -> None:
        super().__init__(host, reactor, self._run_script, self._leave)
        self._clock = reactor
        self._settings = host
        self._transport: _Transport | None = None
        self._turns = DeferredLock()

    def _run_script(self, script: Script, timeout: float) -> Deferred[Ran]:
        return Deferred.fromCoroutine(self._run_once(script, timeout))

    async def _run_once(self, script: Script, timeout: float) -> Ran:
        try:
            # One at a time, so that those who come together share what the first one made.
            transport = await self._turns.run(lambda: Deferred.fromCoroutine(self._connected()))
        except (NotConnected, KeyTrouble) as error:
            return Ran(b"", b"", None, Trouble(str(error), before=True))
        return await self._execute(transport, script, timeout)

    def _execute(self, transport: _Transport, script: Script, timeout: float) -> Deferred[Ran]:
        if transport.lost:
            return succeed(Ran(b"", b"", None, Trouble(sentences.CONNECTION_LOST, before=True, lost=True)))
        channel = _Channel(script)
        transport.connection.openChannel(channel)
        done = channel.done.addTimeout(timeout, self._clock)

        def too_long(failure: Failure) -> Ran:
            failure.trap(TimeoutError)
            return Ran(b"", b"", None, Trouble(sentences.too_long(timeout), before=False))

        return done.addErrback(too_long)

    async def _connected(self) -> _Transport:
        """Give the connection, made anew where it must be. Raises NotConnected, KeyTrouble."""
        if self._transport is not None and not self._transport.lost:
            return self._transport
        user, address, port = split_destination(str(self._settings.ssh))
        known = known_keys(self._known_hosts(), address, port)
        keys = await find_keys(self._clock, self._settings.identity_file)
        transport = _Transport(self._clock, user or getpass.getuser(), keys, known)
        endpoint = HostnameEndpoint(self._clock, address, port or 22, timeout=CONNECT_TIMEOUT)
        try:
            await connectProtocol(endpoint, transport).addTimeout(CONNECT_TIMEOUT, self._clock, _late)
        except Exception as error:
            keys.close()
            if isinstance(error, CancelledError | ConnectingCancelledError):
                raise CancelledError from error
            raise NotConnected(f"{sentences.UNREACHABLE}: {_why(error)}") from error
        try:
            await transport.ready.addTimeout(LOGIN_TIMEOUT, self._clock)
        except TimeoutError as error:
            raise NotConnected(f"{sentences.SILENT}: no login within {LOGIN_TIMEOUT:g} s") from error
        self._transport = transport
        return transport

    def _known_hosts(self) -> str:
        paths = _KNOWN_HOSTS if self._settings.known_hosts is None else (self._settings.known_hosts,)
        texts = []
        for path in paths:
            try:
                with open(os.path.expanduser(path), encoding="utf-8", errors="replace") as file:
                    texts.append(file.read())
            except OSError:
                continue
        return "\n".join(texts)

    def _leave(self) -> Deferred[None]:
        """Hang up."""
        transport, self._transport = self._transport, None
        if transport is not None and not transport.lost:
            transport.loseConnection()
        return succeed(None)


def _late(result: object, timeout: float) -> NoReturn:
    """A connection that is given up has an error of its own, which names no time."""
    raise TimeoutError(timeout)


def _why(error: Exception) -> str:
    if isinstance(error, ConnectError) and isinstance(error.osError, int):
        return os.strerror(error.osError)
    return "no answer" if isinstance(error, TimeoutError) else str(error).rstrip(".")
