"""Text for a person's terminal (pure)."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping

#: Long enough to fill blocks of the simulated replicas' prefix cache.
QUESTION = (
    "Explain in two or three sentences what a prefix cache keeps between the turns of a conversation, and "
    "why the next turn is faster when it reaches the replica that holds it."
)

_LOGGED = re.compile(r"\S+T(?P<time>[\d:]{8})\S* \[(?P<where>[^#\]]*)(?:#(?P<level>\w+))?\] (?P<text>.*)")

#: Where the news is: requests, and changes of slots and of the router itself.
_NEWS = ("twisted_router.access", "twisted_router.services.")

#: Where advice on the configuration comes from: the demo's is its own business.
_ADVICE = "twisted_router.assembly"


def news(line: str) -> str | None:
    """What a person is shown of one line of the router's log; None for what is the daemon's business.

    What is no log line at all, a complaint or a traceback, is shown as it is.
    """
    found = _LOGGED.fullmatch(line)
    if found is None:
        return line or None
    is_calm = found["level"] in (None, "debug", "info")
    is_news = found["where"].startswith(_NEWS) if is_calm else not found["where"].startswith(_ADVICE)
    if not is_news:
        return None
    mark = "" if is_calm else f"{found['level']}: "
    return f"{found['time']} {mark}{found['text']}"


def arrival(line: str) -> str | None:
    """Name the slot whose replica, by this line of the router's log, has come up or has been taken back."""
    found = re.search(r"\] slot (\S+): (?:ready|adopted)$", line)
    return None if found is None else found[1]


def curl(url: str, body: Mapping[str, object], *flags: str) -> str:
    """A command line that posts ``body``, quoted for a POSIX shell."""
    data = shlex.quote(json.dumps(body))
    return " ".join(["curl", *flags, url, "-H 'Content-Type: application/json'", "-d", data])


def kill(pid: str) -> str:
    """A command line that kills the process whose id the command ``pid`` prints."""
    return f"kill -9 $({pid})"


def welcome(url: str, model: str, slots: Mapping[str, str], directory: str) -> str:
    """What the demo says when all is ready; ``slots`` are URLs by name, the last one is free."""
    *running, (spare, _) = slots.items()
    first = running[0][1] if running else url
    pid_there = f"curl -s {first}/sim | sed 's/.*\"pid\":\\([0-9]*\\).*/\\1/'"
    lines = [
        f"router     {url}/v1    also {url}/health  {url}/replicas  {url}/metrics",
        *(f"{name:<10} {address}/v1    state: {address}/sim    simulated" for name, address in running),
        f"{spare:<10} free, to grow into",
        f"files      {directory}: fleet.json, state.json, logs/",
        "",
        "Try it from a second terminal.",
        *_turns(f"{url}/v1/chat/completions", model),
        *_step("One replica more, and one less:", f"curl -s -X POST {url}/replicas"),
        f"  curl -s -X DELETE {url}/replicas/{spare}",
        *_step("Kill a replica; it is replaced in about fifteen seconds:", kill(pid_there)),
        *_step(
            "Kill the router; it is started again, takes its replicas back, and so do the conversations:",
            kill(f"cat {shlex.quote(directory + '/router.pid')}"),
        ),
        "",
        "Each request and each change of a slot is shown below. Ctrl-C ends everything.",
        "",
    ]
    return "\n".join(lines)


def _turns(chat: str, model: str) -> list[str]:
    asked: list[object] = [{"role": "user", "content": QUESTION}]
    answered = {"role": "assistant", "content": "It keeps the keys and values."}
    more = [*asked, answered, {"role": "user", "content": "Say more"}]
    return [
        *_step(
            "First turn; the answer's X-Session-Id names the conversation:",
            curl(chat, {"model": model, "messages": asked}, "-i"),
        ),
        *_step(
            "Second turn, with that id: the same replica (affinity=hit), and cached_tokens above 0:",
            "ID=paste-the-X-Session-Id-here",
        ),
        "  " + curl(chat, {"model": model, "messages": more}, "-i", '-H "X-Session-Id: $ID"'),
        *_step("A stream:", curl(chat, {"model": model, "stream": True, "messages": asked}, "-N")),
    ]


def _step(what: str, command: str) -> list[str]:
    return ["", what, "", f"  {command}"]
