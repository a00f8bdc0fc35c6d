"""Replicas on another machine through the system's ``ssh``, which honours ssh_config and ProxyJump."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from typing import Any

from twisted.internet.defer import Deferred

from ..config.model import HostConfig
from ..disk import key_problem
from . import sentences
from .process import Ended, run
from .remote import Ran, RemoteLauncher, Trouble
from .scripts import SHELL, Script
from .sockets import SocketDirectory

#: Seconds for the TCP connection and the server's first line. A hanging host is told within five.
CONNECT_TIMEOUT = 4

#: Longest path a unix socket may have, less what ssh appends while it sets the socket up.
_SOCKET_PATH = 107 - 18

#: ssh's own exit code for all of its troubles; a remote command may use it as well.
_SSH_FAILED = 255

#: What ssh says when a session never came about, and what that means. The first that is found counts.
_BEFORE = (
    (r"(?s)IDENTIFICATION HAS CHANGED.*?(SHA256:[\w+/]+)", sentences.HOST_KEY_CHANGED),
    (r"IDENTIFICATION HAS CHANGED|Host key for .* has changed", sentences.HOST_KEY_CHANGED),
    (r"host key is known|Host key verification failed", sentences.HOST_KEY_UNKNOWN),
    (r"Permission denied \(|Too many authentication failures", sentences.KEY_REFUSED),
    (r"Could not resolve hostname .*", "its name cannot be resolved"),
    (r"connect to host .*?: (.*)", sentences.UNREACHABLE),
    (r"timed out during banner exchange", sentences.SILENT),
    (r"(?:kex_exchange_identification|banner exchange): (.*)", "its ssh server hangs up"),
    (r"Unable to negotiate with .*?: (.*)", "it has no algorithm in common with us"),
    (
        r"Bad configuration option: (.*)|Can't open user config file (.*)",
        "the ssh configuration cannot be used",
    ),
    (r"hostname contains invalid characters", "its ssh destination is no host name"),
)


class OpenSSHLauncher(RemoteLauncher):
    """Runs every step through one shared connection that ``ssh`` keeps open for a minute (ControlMaster).

    :param sockets: where the connection's socket lies; removed when the launcher is closed.
    """

    def __init__(self, host: HostConfig, reactor: Any, sockets: SocketDirectory) -> None:
        super().__init__(host, reactor, self._run_script, self._leave)
        self._sockets = sockets
        self._control_dir = sockets.path

    def _run_script(self, script: Script, timeout: float) -> Deferred[Ran]:
        return Deferred.fromCoroutine(self._run_ssh(script, timeout))

    async def _run_ssh(self, script: Script, timeout: float) -> Ran:
        ssh = shutil.which("ssh")
        if ssh is None:
            return _nothing("the program ssh is missing here; install openssh-client or use conch")
        if self._host.identity_file is not None:
            problem = key_problem(self._host.identity_file)
            if problem is not None:
                return _nothing(f"identity file {problem}")
        try:
            os.makedirs(self._control_dir, mode=0o700, exist_ok=True)
            argv = (ssh, *self._options(), "-T", "--", str(self._host.ssh), SHELL)
            ended = await run(self._reactor, argv, timeout, stdin=script.text, last_word=script.last_word)
        except OSError as error:
            return _nothing(f"ssh cannot be started: {error}")
        return Ran(ended.output, ended.errors, ended.code, _trouble(ended, timeout))

    def _leave(self) -> Deferred[None]:
        """Tell the shared connection to end, and leave nothing behind."""
        return Deferred.fromCoroutine(self._end_connection())

    async def _end_connection(self) -> None:
        ssh = shutil.which("ssh")
        if ssh is not None and os.path.isdir(self._control_dir) and os.listdir(self._control_dir):
            argv = (ssh, *self._options(), "-O", "exit", "--", str(self._host.ssh))
            with suppress(OSError):
                await run(self._reactor, argv, CONNECT_TIMEOUT)
        self._sockets.remove()

    def _options(self) -> tuple[str, ...]:
        host = self._host
        options = [
            "BatchMode=yes",
            "StrictHostKeyChecking=yes",
            "UpdateHostKeys=no",
            f"ConnectTimeout={CONNECT_TIMEOUT}",
            "ServerAliveInterval=5",
            "ServerAliveCountMax=3",
            "ForwardAgent=no",
            "ForwardX11=no",
            "ClearAllForwardings=yes",
            "RemoteCommand=none",
            "LogLevel=INFO",
        ]
        if len(self._control_dir) + 1 + 40 <= _SOCKET_PATH:
            socket = self._control_dir.replace("%", "%%") + "/%C"
            options += ["ControlMaster=auto", f"ControlPath={socket}", "ControlPersist=60"]
        if host.known_hosts is not None:
            known = host.known_hosts.replace("%", "%%")
            options += [f'UserKnownHostsFile="{known}"', "GlobalKnownHostsFile=/dev/null"]
        words = [word for option in options for word in ("-o", option)]
        if host.identity_file is not None:
            identity = host.identity_file.replace("%", "%%")
            words += ["-o", "IdentitiesOnly=yes", "-i", identity]
        if host.ssh_config is not None:
            words += ["-F", host.ssh_config]
        return tuple(words)


def _nothing(sentence: str) -> Ran:
    return Ran(b"", b"", None, Trouble(sentence, before=True))


def _trouble(ended: Ended, timeout: float) -> Trouble | None:
    """Judge how ssh itself ended; None when that says nothing of its own."""
    if ended.timed_out:
        return Trouble(sentences.too_long(timeout), before=False)
    if ended.code is not None and ended.code != _SSH_FAILED:
        return None
    errors = ended.errors.decode("utf-8", "replace")
    for pattern, sentence in _BEFORE:
        found = re.search(pattern, errors)
        if found is not None:
            detail = next(filter(None, found.groups()), "").strip().rstrip(".")
            return Trouble(f"{sentence}: {detail}" if detail else sentence, before=True)
    said = errors.strip().rpartition("\n")[2].strip() or f"ssh {ended.how}"
    return Trouble(f"{sentences.CONNECTION_LOST}: {said}", before=False, lost=True)
