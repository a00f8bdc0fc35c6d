"""Stub and load generator understand one another, compiled or in Python, and wrong answers are seen."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from bench.fallback.events import DONE, EVENT_BYTES, event, reply, sent_at
from bench.processes import Children, children, tree
from bench.tools import NATIVE, run_load, start_stub

STREAMS: dict[str, object] = {
    "stream": 1,
    "connections": 3,
    "rate": 500,
    "chunks": 20,
    "warmup": 0.05,
    "seconds": 0.1,
    "drain": 5,
}


class EventTests(SynchronousTestCase):
    """The bytes both sides agree on."""

    def test_length(self) -> None:
        """Every event has the agreed length, whatever its number and time."""
        self.assertEqual({len(event(0, 0)), len(event(1 << 31, 1 << 63))}, {EVENT_BYTES})

    def test_round_trip(self) -> None:
        """An event gives back when it was written, under its own number only."""
        self.assertEqual((sent_at(event(7, 12345), 7), sent_at(event(7, 12345), 8)), (12345, None))

    def test_same_places(self) -> None:
        """The C header has index and time where the Python side has them."""
        header = (NATIVE / "event.h").read_text()
        index, time = (int(re.findall(rf"EVENT_{name}_AT (\d+)", header)[0]) for name in ("INDEX", "TIME"))
        text = event(0xABCDEF01, 0x1122334455667788)
        self.assertEqual(
            (text[index : index + 8], text[time : time + 16]), (b"abcdef01", b"1122334455667788")
        )

    def test_reply(self) -> None:
        """The plain answer is JSON of the wanted length."""
        text = reply(1024)
        self.assertEqual((len(text), list(json.loads(text))), (1024, ["object", "text"]))


class PairTests(SynchronousTestCase):
    """Each stub with each load generator, over real sockets."""

    def pair(self, flags: dict[str, object], *, stub: bool, load: bool) -> dict[str, Any]:
        """Run one load straight to a stub; True stands for the compiled one."""
        with children(Path(self.mktemp())) as family:
            port = start_stub(family, ports=1, native=stub)[0]
            return run_load(port, flags, [os.getpid()], native=load)

    def test_requests(self) -> None:
        """A number of requests is made and answered exactly, in each pairing."""
        for stub, load in ((True, True), (True, False), (False, True), (False, False)):
            seen = self.pair(
                {"connections": 4, "requests": 40, "warmup": 0, "seconds": 20}, stub=stub, load=load
            )
            self.assertEqual((seen["requests"], seen["errors"]), (40, 0), seen)
            self.assertGreater(seen["rss_kb"], 0)

    def test_streams(self) -> None:
        """Streams end complete and their events are counted, in each pairing."""
        for stub, load in ((True, True), (True, False), (False, True), (False, False)):
            seen = self.pair(STREAMS, stub=stub, load=load)
            self.assertEqual(seen["errors"], 0, seen)
            self.assertGreaterEqual(seen["complete"], 3)
            self.assertGreater(seen["chunks"], 0)

    def test_wrong_length(self) -> None:
        """An answer of another length is an error, not a request."""
        for load in (True, False):
            seen = self.pair({"requests": 5, "warmup": 0, "seconds": 20, "reply": 99}, stub=True, load=load)
            self.assertEqual((seen["requests"], seen["error_kinds"]["length"]), (0, 5), seen)

    def test_refused(self) -> None:
        """A port that nobody listens on gives connection errors, and the run ends."""
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        for load in (True, False):
            seen = run_load(port, {"requests": 5, "warmup": 0, "seconds": 20}, [], native=load)
            self.assertEqual((seen["requests"], seen["error_kinds"]["connect"]), (0, 5), seen)

    def test_wrong_content(self) -> None:
        """A changed, missing or repeated event is an error."""
        good = [event(i, 1) for i in range(3)]
        for body in (
            [good[0], good[2], good[1]],
            [good[0], good[0], good[2]],
            [good[0], b"?" * 250, good[2]],
        ):
            for load in (True, False):
                with Canned(chunked([*body, DONE])) as port:
                    flags = {"stream": 1, "chunks": 3, "requests": 1, "warmup": 0, "seconds": 20}
                    seen = run_load(port, flags, [], native=load)
                self.assertEqual((seen["requests"], seen["error_kinds"]["content"]), (0, 1), seen)

    def test_cut(self) -> None:
        """A stream that breaks off before its last chunk is an error."""
        for load in (True, False):
            with Canned(chunked([event(0, 1)])[:-5]) as port:
                flags = {"stream": 1, "chunks": 3, "requests": 1, "warmup": 0, "seconds": 20}
                seen = run_load(port, flags, [], native=load)
            self.assertEqual((seen["requests"], seen["error_kinds"]["cut"]), (0, 1), seen)


def chunked(pieces: list[bytes]) -> bytes:
    """A whole chunked response."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


class Canned:
    """A server process that answers one connection with fixed bytes and closes."""

    SOURCE = (
        "import socket, sys\n"
        "s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n"
        "c = s.accept()[0]; c.recv(65536); c.sendall(bytes.fromhex(sys.argv[1])); c.close()\n"
    )

    def __init__(self, answer: bytes) -> None:
        self._argv = ["python3", "-c", self.SOURCE, answer.hex()]

    def __enter__(self) -> int:
        self._process = subprocess.Popen(self._argv, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def __exit__(self, *unused: object) -> None:
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.terminate()
        self._process.wait()


class ChildrenTests(SynchronousTestCase):
    """No process outlives its run."""

    def start(self, family: Children) -> list[int]:
        """A shell that ignores SIGTERM, with a child of its own."""
        script = "trap '' TERM; sleep 60 & echo ready; wait"
        process = family.start("stub-shell", ["sh", "-c", script])
        assert process.stdout is not None
        process.stdout.readline()
        return tree(process.pid)

    def test_ended(self) -> None:
        """A process that ignores SIGTERM is killed with all it started, also after an error."""
        pids: list[int] = []
        with self.assertRaises(ZeroDivisionError), children(Path(self.mktemp()), grace=0.1) as family:
            pids = self.start(family)
            raise ZeroDivisionError
        self.assertEqual(len(pids), 2)
        for pid in pids:
            self.assertFalse(is_running(pid))

    def test_signal_restored(self) -> None:
        """SIGTERM is handled as before once the run is over."""
        before = signal.getsignal(signal.SIGTERM)
        with children(Path(self.mktemp())):
            self.assertNotEqual(signal.getsignal(signal.SIGTERM), before)
        self.assertEqual(signal.getsignal(signal.SIGTERM), before)


def is_running(pid: int) -> bool:
    """Whether *pid* is alive; a killed orphan that nobody has reaped yet is not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text[text.rindex(")") + 2] != "Z"
