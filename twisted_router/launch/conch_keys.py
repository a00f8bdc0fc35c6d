"""Logging in with keys: from a file, from the agent, from where ssh looks for them."""

from __future__ import annotations

import os
from typing import Any

from twisted.conch.error import ConchError
from twisted.conch.ssh.agent import AGENT_SIGN_RESPONSE, AGENTC_SIGN_REQUEST, SSHAgentClient
from twisted.conch.ssh.common import NS, getNS
from twisted.conch.ssh.keys import BadKeyError, EncryptedKeyError, Key
from twisted.conch.ssh.service import SSHService
from twisted.conch.ssh.userauth import SSHUserAuthClient
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.endpoints import UNIXClientEndpoint
from twisted.internet.protocol import Factory

from ..disk import key_problem

_DEFAULT_FILES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")

#: Asks the agent for SHA-512 where the key is RSA (draft-miller-ssh-agent, section 5.3).
_RSA_SHA2_512 = b"\0\0\0\4"

#: Seconds the agent may take to list its keys.
_AGENT_TIMEOUT = 2.0


class KeyTrouble(Exception):
    """A private key that cannot be used; the text says which and why."""


class ModernKey(Key):
    """A key that signs with SHA-512 where it is RSA: servers no longer take the SHA-1 that is the default."""

    def sshType(self) -> bytes:
        """The algorithm to log in with; for RSA that is not the type of the key."""
        kind: bytes = super().sshType()
        return b"rsa-sha2-512" if kind == b"ssh-rsa" else kind


def _modern(key: Key) -> Key:
    return ModernKey(key._keyObject)


class _Agent(SSHAgentClient):
    """The user's ssh-agent."""

    def signData(self, blob: bytes, data: bytes) -> Deferred[bytes]:
        request = self.sendRequest(AGENTC_SIGN_REQUEST, NS(blob) + NS(data) + _RSA_SHA2_512)

        def signed(packet: bytes) -> bytes:
            if packet[0] != AGENT_SIGN_RESPONSE:
                raise ConchError("the agent did not sign")
            signature: bytes = getNS(packet[1:])[0]
            return signature

        answer: Deferred[bytes] = request.addCallback(signed)
        return answer

    def leave(self) -> None:
        """Hang up."""
        if self.transport is not None:
            self.transport.loseConnection()


class Keys:
    """The keys to offer, one after another.

    :ivar agent: what signs for the keys that came from it; None without one.
    """

    def __init__(self, private: list[Key], public: list[Key], agent: _Agent | None) -> None:
        self._private = private
        self._public = public
        self.agent = agent

    def take(self) -> tuple[Key, Key | None] | None:
        """The next key to offer with its private half, which stays in the agent where it is None."""
        if self._public:
            return self._public.pop(0), None
        if self._private:
            key = self._private.pop(0)
            return _modern(key.public()), key
        return None

    def close(self) -> None:
        """Let go of the agent."""
        if self.agent is not None:
            self.agent.leave()


def read_key(path: str) -> Key:
    """Read a private key. Raises KeyTrouble."""
    problem = key_problem(path)
    if problem is not None:
        raise KeyTrouble(f"identity file {problem}")
    try:
        return _modern(Key.fromFile(path))
    except EncryptedKeyError:
        raise KeyTrouble(f"identity file {path} has a passphrase; load it into an agent") from None
    except (BadKeyError, ValueError, OSError) as error:
        raise KeyTrouble(f"identity file {path} cannot be read: {error}") from error


async def find_keys(reactor: Any, identity_file: str | None) -> Keys:
    """Find what to log in with: the configured key and no other, else the agent's and the usual files.

    Raises KeyTrouble when the configured key cannot be used.
    """
    if identity_file is not None:
        return Keys([read_key(identity_file)], [], None)
    private = []
    for path in _DEFAULT_FILES:
        try:
            private.append(read_key(os.path.expanduser(path)))
        except KeyTrouble:
            continue
    agent, public = await _ask_agent(reactor)
    return Keys(private, public, agent)


async def _ask_agent(reactor: Any) -> tuple[_Agent | None, list[Key]]:
    socket = os.environ.get("SSH_AUTH_SOCK")
    if not socket:
        return None, []
    agent: _Agent | None = None
    try:
        endpoint = UNIXClientEndpoint(reactor, socket, timeout=int(_AGENT_TIMEOUT))
        connected: Any = await endpoint.connect(Factory.forProtocol(_Agent))
        agent = connected
        blobs = await connected.requestIdentities().addTimeout(_AGENT_TIMEOUT, reactor)
    except Exception:  # An agent that is no use is as good as none; ssh goes on as well.
        if agent is not None:
            agent.leave()
        return None, []
    public: list[Key] = []
    for blob, _comment in blobs:
        try:
            public.append(_modern(Key.fromString(blob)))
        except (BadKeyError, ValueError):
            continue  # a certificate or a kind of key that Conch does not know
    return agent, public


class KeyLogin(SSHUserAuthClient):
    """Offers keys and nothing else."""

    def __init__(self, user: str, instance: SSHService, keys: Keys) -> None:
        super().__init__(user.encode(), instance)
        self._keys = keys
        self._private: Key | None = None

    def getPublicKey(self) -> Key | None:
        """The next key to offer, None after the last."""
        taken = self._keys.take()
        if taken is None:
            return None
        public, self._private = taken
        return public

    def getPrivateKey(self) -> Deferred[Key]:
        """The private half of the key that was offered last."""
        return succeed(self._private) if self._private is not None else fail(ConchError("no key"))

    def signData(self, publicKey: Key, signData: bytes) -> Deferred[bytes] | None:
        """Sign, or have the agent sign."""
        if self._private is None and self._keys.agent is not None:
            return self._keys.agent.signData(publicKey.blob(), signData)
        return super().signData(publicKey, signData)

    def auth_password(self) -> bool:
        """Never: there is nobody to ask."""
        return False

    def auth_keyboard_interactive(self) -> bool:
        """Never: there is nobody to ask."""
        return False

    def serviceStopped(self) -> None:
        """Logged in, or out: the agent is no longer needed."""
        super().serviceStopped()
        self.close()

    def close(self) -> None:
        """Let go of the agent, if there is one."""
        self._keys.close()
