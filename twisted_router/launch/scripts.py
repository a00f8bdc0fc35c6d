r"""What is run on another machine, put together, and how its answer is read.

A script travels on the standard input of ``exec /bin/sh -s``, words that every login shell understands alike,
so nothing has to be quoted for a shell that is not known. A connection that breaks on the way runs nothing,
for the shell reads ``main`` whole. Facts come back as lines that begin with a random tag, so that banners,
profiles and logs can say what they like before and between them.
"""

from __future__ import annotations

import math
import secrets

from attrs import frozen

from ..core.slots import Handle, Slot
from . import shell
from .command import (
    INSTANCE_MARKER,
    SLOT_MARKER,
    ReplicaCommand,
    assignments,
    quote,
    quote_all,
    without_markers,
)

#: What the login shell on the other side is asked to run.
SHELL = "exec /bin/sh -s"


@frozen
class Script:
    """One script and the tag its answer will carry."""

    text: bytes
    tag: str

    @property
    def last_word(self) -> bytes:
        """What it prints at its end. A login shell may leave descriptors that hold the session open."""
        return f"@{self.tag} end".encode()


@frozen
class Reply:
    """What a script told.

    :ivar facts: pairs of a word and the rest of its line, in order.
    :ivar log: the lines of a log it was asked for.
    :ivar begun: whether it ran at all.
    :ivar complete: whether it ran to its end; if not, nothing can be concluded from what is missing.
    """

    facts: tuple[tuple[str, str], ...]
    log: str
    begun: bool
    complete: bool

    def fact(self, word: str) -> str | None:
        """What was told under a word, None when nothing was."""
        return next((rest for key, rest in self.facts if key == word), None)


def read_reply(script: Script, output: bytes) -> Reply:
    """Find the facts in what came back on standard output."""
    mark = f"@{script.tag} "
    facts: list[tuple[str, str]] = []
    log: list[str] = []
    in_log = False
    for line in output.decode("utf-8", "replace").split("\n"):
        if line.startswith(mark):
            word, _, rest = line.removeprefix(mark).partition(" ")
            facts.append((word, rest))
            in_log = word == "log"
        elif in_log:
            log.append(line)
    words = {word for word, _ in facts}
    return Reply(tuple(facts), "\n".join(log).strip("\n"), "begin" in words, "end" in words)


def launch_script(command: ReplicaCommand, slot: Slot, instance: str, lines: int) -> Script:
    """Start a replica, detached.

    Tells ``refused`` with a reason, or ``log_path`` and one of ``pid`` (pid and start time), ``exited`` (its
    code; the last ``lines`` of the log follow) and ``submitted`` (a wrapper ended well, its charge is
    elsewhere).
    """
    settings = {
        **_place(command, slot, instance),
        "program": command.argv[0],
        "search": dict(command.env).get("PATH", ""),
        "port": str(slot.port),
        "port_hex": f"{slot.port:04X}",
        "lines": str(lines),
    }
    return _script(shell.LAUNCH.replace("$REPLICA", _run(command.env, command.argv)), settings)


def stop_script(
    command: ReplicaCommand, slot: Slot, instance: str, handle: Handle | None, grace: float
) -> Script:
    """Stop an instance and prove it; ``grace`` is rounded up to whole seconds.

    Tells ``stopped``, or ``failed`` with what stands against it.
    """
    settings = {
        **_place(command, slot, instance),
        "leader": written(handle),
        "grace": str(math.ceil(grace)),
        "stop_command": _yes(bool(command.stop_argv)),
    }
    stop = _run(without_markers(command.env), command.stop_argv)
    return _script(shell.MEMBERS + shell.STOP.replace("$STOP_COMMAND", stop), settings)


def running_script(command: ReplicaCommand, slot: Slot, instance: str, handle: Handle | None) -> Script:
    """Look for anything of an instance. Tells ``running`` or ``over``."""
    settings = {**_place(command, slot, instance), "leader": written(handle)}
    return _script(shell.MEMBERS + shell.RUNNING, settings)


def written(handle: Handle | None) -> str:
    """PID:START as the scripts write a process, empty when it is not known."""
    if handle is None or handle.pid is None or handle.started is None:
        return ""
    return f"{handle.pid}:{handle.started}"


def held_script(command: ReplicaCommand, slot: Slot) -> Script:
    """Look at the slot's lock. Tells ``held``, ``free`` or ``unknown``."""
    return _script(shell.HELD, _place(command, slot, ""))


def tail_script(command: ReplicaCommand, slot: Slot, lines: int) -> Script:
    """Fetch the last lines of the slot's log."""
    return _script(shell.TAIL, {**_place(command, slot, ""), "lines": str(lines)})


def look_script(processes: tuple[str, ...]) -> Script:
    """Look for processes, each written PID:START. Tells ``gone`` with each that has ended."""
    return _script(shell.LOOK, {"members": " ".join(processes)})


def _run(env: tuple[tuple[str, str], ...], argv: tuple[str, ...]) -> str:
    return f"env {assignments(env)} /bin/sh -c 'exec \"$@\"' sh {quote_all(argv)}"


def _place(command: ReplicaCommand, slot: Slot, instance: str) -> dict[str, str]:
    return {
        "slot": slot.name,
        "instance": instance,
        "entry": f"{INSTANCE_MARKER}={instance}",
        "slot_entry": f"{SLOT_MARKER}={slot.name}",
        "log_dir": command.log_dir,
        "log": command.log_path,
        "lock": command.lock_path,
        "workdir": command.workdir or "",
        "wrapped": _yes(command.wrapped),
    }


def _script(body: str, settings: dict[str, str]) -> Script:
    tag = secrets.token_hex(8)
    lines = "".join(f"{name}={quote(value)}\n" for name, value in {"tag": tag, **settings}.items())
    # The first newline ends whatever a profile left unfinished.
    run = "printf '\\n'; say begin; main </dev/null; say end; exit 0\n"
    text = f"{lines}{shell.PRELUDE}{body}{run}"
    return Script(text.encode("utf-8", "surrogatepass"), tag)


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"
