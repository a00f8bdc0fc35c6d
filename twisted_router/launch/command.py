"""How a replica is started: host and slot in; argv, environment, paths and their quoting out. Pure.

Placeholders ``{device}``, ``{devices}`` and ``{port}`` expand in ``env``, ``launch_wrapper``,
``stop_command``, ``command`` and ``log_dir``; ``command`` also knows ``{model}``, ``{served_model_name}``,
``{slot}`` and ``{host}`` (the address to listen on). ``serve_args`` are passed on as they are, and so is any
other brace.
A leading ``~/`` is the home directory of the machine the replica runs on.
"""

from __future__ import annotations

import re
import shlex

from attrs import frozen

from ..config.model import LOOPBACK, PLACEHOLDERS, HostConfig
from ..core.slots import Slot

#: Names this launch in the environment of the replica and of all its children.
INSTANCE_MARKER = "PYPTO_ROUTER_INSTANCE"
SLOT_MARKER = "PYPTO_ROUTER_SLOT"

#: Seconds a ``stop_command`` may take.
STOP_COMMAND_TIMEOUT = 120.0

#: Lines of the log that are told with a failed launch.
TOLD_LINES = 10

#: What a replica must not inherit from the router: its secrets, and what systemd told it alone.
_OURS = re.compile(r"PYPTO_ROUTER_|LISTEN_(FDS|PID|FDNAMES|PIDFDID)$|NOTIFY_SOCKET$|WATCHDOG_(USEC|PID)$")


class HomePath(str):
    """A path that begins with ``~/`` and means the home directory of another machine."""


@frozen
class ReplicaCommand:
    """All that is needed to start one replica and to stop it again.

    :ivar argv: the process to start, the wrapper included.
    :ivar env: what its environment has on top of what it inherits, the markers last.
    :ivar workdir: where it starts, or None for wherever we are.
    :ivar wrapped: whether a wrapper starts it, so that the process we see may not be the replica.
    :ivar stop_argv: what stops it instead of a signal; empty for the signal.
    """

    argv: tuple[str, ...]
    wrapped: bool
    env: tuple[tuple[str, str], ...]
    workdir: str | None
    log_dir: str
    log_path: str
    lock_path: str
    stop_argv: tuple[str, ...]


def build(
    host: HostConfig, slot: Slot, instance: str, default_log_dir: str, home: str | None
) -> ReplicaCommand:
    """Say how ``instance`` is started in ``slot``.

    ``home`` is the home directory there; None leaves it to ``quote`` and the remote shell. Without
    ``command`` the manual's program ``pypto-serving`` is started, or with a ``python`` configured, that
    interpreter's ``pypto_serving.cli``.
    """
    words = _words(host, slot)
    short = {key: words[key] for key in PLACEHOLDERS}
    log_dir = _at_home(_expand(host.log_dir or default_log_dir, short), home)
    file_name = f"{log_dir}/{slot.name.replace('/', '%2F')}"
    paths = HomePath if isinstance(log_dir, HomePath) else str
    env = (
        *((key, _at_home(_expand(value, short), home)) for key, value in sorted(host.env)),
        (SLOT_MARKER, slot.name),
        (INSTANCE_MARKER, instance),
    )
    serving = _serving(host, words, home)
    return ReplicaCommand(
        argv=_wrapped(
            tuple(_at_home(_expand(word, short), home) for word in host.launch_wrapper), serving, env
        ),
        wrapped=bool(host.launch_wrapper),
        env=env,
        workdir=None if host.workdir is None else _at_home(host.workdir, home),
        log_dir=log_dir,
        log_path=paths(f"{file_name}.log"),
        lock_path=paths(f"{file_name}.lock"),
        stop_argv=tuple(_at_home(_expand(word, short), home) for word in host.stop_command),
    )


def inherited(environ: dict[str, str]) -> dict[str, str]:
    """Leave out of the router's own environment what its replicas must not see."""
    return {key: value for key, value in environ.items() if not _OURS.match(key)}


def without_markers(env: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """What a ``stop_command`` gets of a replica's environment: it is not one of those it is to stop."""
    return tuple(entry for entry in env if entry[0] not in (INSTANCE_MARKER, SLOT_MARKER))


def quote(word: str) -> str:
    """Quote one word for a POSIX shell; a ``HomePath`` is found under that shell's ``$HOME``."""
    if isinstance(word, HomePath):
        return '"$HOME"' + (shlex.quote(word[1:]) if len(word) > 1 else "")
    return shlex.quote(word)


def quote_all(words: tuple[str, ...]) -> str:
    """Quote words into one command line for a POSIX shell."""
    return " ".join(quote(word) for word in words)


def assignments(env: tuple[tuple[str, str], ...]) -> str:
    """Quote an environment into the arguments ``env`` takes."""
    return " ".join(f"{shlex.quote(key)}={quote(value)}" for key, value in env)


def _words(host: HostConfig, slot: Slot) -> dict[str, str]:
    return {
        "device": str(slot.devices[0]),
        "devices": ",".join(map(str, slot.devices)),
        "port": str(slot.port),
        "model": host.model,
        "served_model_name": host.served_model_name or host.model,
        "slot": slot.name,
        "host": LOOPBACK if host.ssh is None else "0.0.0.0",
    }


def _serving(host: HostConfig, words: dict[str, str], home: str | None) -> tuple[str, ...]:
    if host.command:
        return tuple(_at_home(_expand(word, words), home) for word in host.command)
    program: tuple[str, ...] = ("pypto-serving",)
    if host.python is not None:
        program = (_at_home(host.python, home), "-m", "pypto_serving.cli")
    named = ("--served-model-name", host.served_model_name) if host.served_model_name else ()
    listen = ("--devices", words["devices"], "--host", words["host"], "--port", words["port"])
    model = ("--model", _at_home(host.model, home))
    return (*program, *model, *listen, "--show-startup-logs", *named, *host.serve_args)


def _wrapped(
    wrapper: tuple[str, ...], serving: tuple[str, ...], env: tuple[tuple[str, str], ...]
) -> tuple[str, ...]:
    """Hand the command to the wrapper as one argument; the environment goes along inside of it.

    A broker may start the command from a daemon of its own, where ours would be lost.
    """
    if not wrapper:
        return serving
    return (*wrapper, f"env {assignments(env)} {quote_all(serving)}")


def _expand(text: str, words: dict[str, str]) -> str:
    return re.sub(r"\{(" + "|".join(words) + r")\}", lambda match: words[match.group(1)], text)


def _at_home(text: str, home: str | None) -> str:
    if text != "~" and not text.startswith("~/"):
        return text
    return HomePath(text) if home is None else home + text[1:]
