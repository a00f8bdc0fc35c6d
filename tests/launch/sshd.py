"""An sshd of the test's own: on loopback, with its own keys and port, nothing outside its directory."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from twisted_router.launch import proc


class MissingProgram(Exception):
    """A program that these tests cannot do without."""


def program(name: str, package: str) -> str:
    """Find a program, also where only root looks."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise MissingProgram(f"{name} is missing: these tests need the package {package}")
    return found


class _Daemon(ProcessProtocol):
    """One run of sshd in the foreground, with its log on standard error."""

    def __init__(self) -> None:
        self.listening: Deferred[None] = Deferred()
        self.ended: Deferred[None] = Deferred()
        self.log = b""

    def errReceived(self, data: bytes) -> None:
        self.log += data
        if not self.listening.called and b"Server listening on" in self.log:
            self.listening.callback(None)

    def processEnded(self, reason: Failure) -> None:
        if not self.listening.called:
            self.listening.errback(MissingProgram(f"sshd did not start: {self.log.decode()}"))
        self.ended.callback(None)


class Sshd:
    """A server with a known host key, and a user key that it takes.

    :ivar force: what the login shell runs instead of the command, which it finds in SSH_ORIGINAL_COMMAND.
    """

    def __init__(self, reactor: Any, directory: str, force: str | None = None) -> None:
        self._reactor = reactor
        self._daemon: _Daemon | None = None
        self._process: Any = None
        self.directory = directory = os.path.abspath(directory)
        self.force = force
        self.user = getpass.getuser()
        os.makedirs(directory, mode=0o700)
        with socket.create_server(("127.0.0.1", 0)) as found:
            self.port: int = found.getsockname()[1]
        self.identity = self.make_key("id")
        self.make_key("host_key")
        shutil.copy(self.path("id.pub"), self.path("authorized_keys"))
        self.known_hosts = self.write("known_hosts", f"[127.0.0.1]:{self.port} {self.public('host_key')}\n")
        self.destination = f"ssh://{self.user}@127.0.0.1:{self.port}"

    def path(self, name: str) -> str:
        """A file of this server."""
        return os.path.join(self.directory, name)

    def write(self, name: str, text: str) -> str:
        """Write one of its files and give its path."""
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def make_key(self, name: str, kind: str = "ed25519") -> str:
        """Make a new pair of keys and give the path of the private one."""
        for old in (name, f"{name}.pub"):
            if os.path.exists(self.path(old)):
                os.unlink(self.path(old))
        keygen = program("ssh-keygen", "openssh-client")
        subprocess.run([keygen, "-q", "-t", kind, "-N", "", "-C", "", "-f", self.path(name)], check=True)
        return self.path(name)

    def public(self, name: str) -> str:
        """The public half of a key: type and key."""
        with open(self.path(f"{name}.pub"), encoding="utf-8") as file:
            return " ".join(file.read().split()[:2])

    @property
    def logins(self) -> int:
        """How often somebody was let in since the start."""
        assert self._daemon is not None
        return self._daemon.log.count(b"Accepted publickey")

    async def start(self) -> None:
        """Serve; done when it listens."""
        sshd = program("sshd", "openssh-server")
        if os.getuid() == 0:
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        host_keys = [name for name in sorted(os.listdir(self.directory)) if name.startswith("host_key")]
        lines = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            *(f"HostKey {self.path(name)}" for name in host_keys if not name.endswith(".pub")),
            f"AuthorizedKeysFile {self.path('authorized_keys')}",
            "PidFile none",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin prohibit-password",
            "UseDNS no",
            *([f"ForceCommand {self.force}"] if self.force else []),
        ]
        config = self.write("sshd_config", "\n".join(lines) + "\n")
        self._daemon = _Daemon()
        self._process = self._reactor.spawnProcess(
            self._daemon, sshd, [sshd, "-D", "-e", "-f", config], env={"PATH": os.environ.get("PATH", "")}
        )
        await self._daemon.listening

    async def stop(self) -> None:
        """Kill the server and every session it holds, as a machine that goes down does."""
        if self._daemon is None:
            return
        daemon, self._daemon = self._daemon, None
        if daemon.ended.called:
            return
        sessions = [each for each in map(proc.status, _children(self._process.pid)) if each is not None]
        self._process.signalProcess("KILL")
        for session in sessions:
            proc.send(session.process, signal.SIGKILL)
        await daemon.ended


def _children(pid: int) -> list[int]:
    """Children and grandchildren: sshd splits a session in two when it drops its rights."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            children = [int(child) for child in file.read().split()]
        for child in children:
            found += _session(child)
    return found


def _session(pid: int) -> list[int]:
    """A process and what came of it, where it is sshd's and still there."""
    with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/cmdline", "rb") as cmdline:
        if b"sshd" in cmdline.read():
            return [pid, *_children(pid)]
    return []
