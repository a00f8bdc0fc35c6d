"""Text for a person's terminal (pure)."""

from __future__ import annotations

import json
import shlex

#: Long enough to fill blocks of the simulated replicas' prefix cache.
QUESTION = (
    "Explain in two or three sentences what a prefix cache keeps between the turns of a conversation, and "
    "why the next turn is faster when it reaches the replica that holds it."
)


def curl(url: str, body: dict[str, object], *flags: str) -> str:
    """A command line that posts ``body``, quoted for a POSIX shell."""
    data = shlex.quote(json.dumps(body))
    return " ".join(["curl", *flags, url, "-H 'Content-Type: application/json'", "-d", data])


def welcome(url: str, model: str, replicas: dict[str, tuple[str, int]], file: str) -> str:
    """What the demo says when all is ready; ``replicas`` are URLs and pids by name."""
    chat = f"{url}/v1/chat/completions"
    asked: list[object] = [{"role": "user", "content": QUESTION}]
    more = [
        *asked,
        {"role": "assistant", "content": "It keeps the keys and values."},
        {"role": "user", "content": "Say more"},
    ]
    lines = [
        f"router     {url}/v1    state: {url}/health    metrics: {url}/metrics",
        *(
            f"{name:<10} {address}/v1    state: {address}/sim    simulated, process {pid}"
            for name, (address, pid) in replicas.items()
        ),
        f"fleet file {file}",
        "",
        "Try it from a second terminal. First turn; the answer's X-Session-Id names the conversation:",
        "",
        "  " + curl(chat, {"model": model, "messages": asked}, "-i"),
        "",
        "Second turn, with that id: the same replica answers (affinity=hit), and cached_tokens is above 0:",
        "",
        "  ID=paste-the-X-Session-Id-here",
        "  " + curl(chat, {"model": model, "messages": more}, "-i", '-H "X-Session-Id: $ID"'),
        "",
        "A stream:",
        "",
        "  " + curl(chat, {"model": model, "stream": True, "messages": asked}, "-N"),
        "",
        "Each request is shown below. Ctrl-C ends everything.",
        "",
    ]
    return "\n".join(lines)
