"""The command line of the simulated replica."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from math import inf

from twisted.python import usage

from twisted_router import __version__

LOADING = ("refuse", "503")
LAYOUTS = ("array", "map")


def whole(minimum: int) -> Callable[[str], int]:
    """A coerce function for whole numbers of at least ``minimum``."""

    def coerce(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"expected a whole number, got {text!r}") from None
        if value < minimum:
            raise ValueError(f"expected at least {minimum}, got {text}")
        return value

    return coerce


def positive(text: str) -> float:
    """A coerce function for numbers above 0."""
    value = seconds(text)
    if value == 0:
        raise ValueError("expected more than 0")
    return value


def seconds(text: str) -> float:
    """A coerce function for numbers of at least 0."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"expected a number, got {text!r}") from None
    if not 0 <= value < float("inf"):
        raise ValueError(f"expected at least 0, got {text}")
    return value


def span(text: str) -> float:
    """A coerce function for numbers above 0; ``inf`` is one."""
    return inf if text == "inf" else positive(text)


def loading(text: str) -> str:
    """A coerce function for ``--loading``."""
    if text not in LOADING:
        raise ValueError(f"expected refuse or 503, got {text!r}")
    return text


def layout(text: str) -> str:
    """A coerce function for ``--kv-events-layout``."""
    if text not in LAYOUTS:
        raise ValueError(f"expected array or map, got {text!r}")
    return text


def _flag(name: str, default: object, text: str, coerce: Callable[[str], object] = str) -> list[object]:
    """One entry of ``optParameters`` whose complaints name the flag."""

    def named(value: str) -> object:
        try:
            return coerce(value)
        except ValueError as problem:
            raise ValueError(f"--{name}: {problem}") from None

    return [name, None, default, text, named]


class SimOptions(usage.Options):
    """Flags of ``pypto-serving`` that the manual shows, the engine model's, and faults on demand."""

    synopsis = "Usage: pypto-router sim [options]"
    longdesc = (
        "A simulated serving replica: OpenAI endpoints over a model of an engine, with a real prefix cache "
        "and no model. A token is four bytes of text. Every answer says that it is simulated."
    )
    optFlags = [
        ["show-startup-logs", None, "Accepted, without effect: everything is shown."],
        ["ignore-sigterm", None, "Fault: do not exit on SIGTERM."],
        ["fail-health", None, "Fault: /health answers 503."],
        ["fork-child", None, "Fault: start a child process that keeps standard output open."],
        ["die-with-parent", None, "Be killed by the kernel when the parent process dies (Linux)."],
    ]
    optParameters = [
        _flag("host", "127.0.0.1", "Address to listen on."),
        _flag("port", 8001, "Port to listen on; 0 takes a free one.", whole(0)),
        _flag("model", "simulated", "Model path; its last part is the served name."),
        _flag("served-model-name", None, "Name clients use, instead of the path's last part."),
        _flag("devices", "0", "Device numbers, shown in /sim."),
        _flag("dp", 1, "Accepted, without effect.", whole(1)),
        _flag("ep", 1, "Accepted, without effect.", whole(1)),
        _flag("tp", 1, "Accepted, without effect.", whole(1)),
        _flag("max-num-seqs", 64, "Sequences that run at once; others wait in line.", whole(1)),
        _flag("block-size", 16, "Tokens in a cache block.", whole(1)),
        _flag(
            "max-model-len",
            None,
            "Longest prompt and answer together; 32768, or --kv-tokens if less.",
            whole(2),
        ),
        _flag("kv-tokens", 262144, "KV memory in tokens.", whole(1)),
        _flag("batch-tokens", 2048, "Tokens computed in one step.", whole(1)),
        _flag("prefill-rate", 2000.0, "Prompt tokens computed in a second.", positive),
        _flag("step-ms", 20.0, "Milliseconds of one decoding step.", positive),
        _flag("attention-span", inf, "Tokens of context that make a prompt token cost twice as much.", span),
        _flag("context-ns", 0.0, "Nanoseconds each token of context adds to a decoding step.", seconds),
        _flag("stream-interval", 1, "Tokens in one event of a stream; the first comes alone.", whole(1)),
        _flag("max-tokens-default", 64, "Length of an answer, in tokens, when it ends by itself.", whole(1)),
        _flag(
            "kv-events",
            None,
            "Publish cache events on this port, 0 for a free one, as vLLM does; repeat them on the next.",
            whole(0),
        ),
        _flag("kv-events-layout", "array", "How events are packed: array or map.", layout),
        _flag("time-scale", 1.0, "How many simulated seconds pass in a second.", positive),
        _flag("load-time", 0.0, "Simulated seconds until the model is loaded.", seconds),
        _flag("loading", "refuse", "Until then: refuse connections, or answer 503.", loading),
        _flag("die-after", None, "Fault: the request after this many ends the process.", whole(0)),
        _flag("hang-after", None, "Fault: from the request after this many on, answer nothing.", whole(0)),
        _flag("cut-after", None, "Fault: break each answer off after this many tokens.", whole(1)),
        _flag("slow-health", 0.0, "Fault: seconds /health takes to answer.", seconds),
        _flag("noise", 0, "Fault: print this many bytes at start.", whole(0)),
        _flag("exit-at-start", None, "Fault: exit at once with this code.", whole(0)),
    ]

    def opt_version(self) -> None:
        """Print the version and exit."""
        print(f"pypto-router {__version__}")
        raise SystemExit(0)

    def postOptions(self) -> None:
        """Settle ``max-model-len`` and refuse contradictions. Raises ``usage.UsageError``."""
        if self["port"] > 65535:
            raise usage.UsageError(f"--port: expected at most 65535, got {self['port']}")
        events = self["kv-events"]
        if events is not None:
            # The one after it is taken as well.
            if events > 65534:
                raise usage.UsageError(f"--kv-events: expected at most 65534, got {events}")
            if any(find_spec(name) is None for name in ("zmq", "msgpack")):
                raise usage.UsageError("--kv-events needs pip install 'pypto-router[kv-events]'")
        if self["max-model-len"] is None:
            self["max-model-len"] = min(32768, self["kv-tokens"])
        if self["kv-tokens"] < self["max-model-len"]:
            raise usage.UsageError(
                f"--kv-tokens: {self['kv-tokens']} cannot hold one sequence of --max-model-len "
                f"{self['max-model-len']}"
            )

    @property
    def served_name(self) -> str:
        """The model name that clients use."""
        return self["served-model-name"] or os.path.basename(str(self["model"]).rstrip("/")) or "simulated"
