"""A scripted replica of the standard library alone: up in no time, and as naughty as it is told to be.

It answers ``GET`` with 200 and who it is, and ``POST`` likewise; a body of ``{"hold": true}`` gets the
beginning of an answer, and its end only after one of ``{"release": true}``; ``{"leave": true}`` ends the
process.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: Seconds that a forked child lives when nobody ends it.
CHILD_LIFE = 300

released = threading.Event()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        """Health, or whatever else is asked for."""
        self._answer()

    def do_POST(self) -> None:
        """An answer, now or later."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if asked.get("leave"):
            os._exit(0)
        if asked.get("release"):
            released.set()
        if asked.get("hold"):
            self._hold()
        else:
            self._answer()

    def _answer(self) -> None:
        about = {"pid": os.getpid(), "argv": sys.argv[1:], "slot": os.environ.get("PYPTO_ROUTER_SLOT")}
        body = json.dumps(about).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _hold(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"5\r\nbegin\r\n")
        released.wait()
        self.wfile.write(b"3\r\nend\r\n0\r\n\r\n")


def main() -> None:
    """Do as told."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--load", type=float, default=0)
    parser.add_argument("--flood", type=int, default=0)
    parser.add_argument("--exit", type=int)
    parser.add_argument("--fork", action="store_true")
    parser.add_argument("--ignore-term", action="store_true")
    options, _ = parser.parse_known_args()
    if options.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.fork and os.fork() == 0:
        time.sleep(CHILD_LIFE)
        os._exit(0)
    line = b"noise".ljust(79, b".") + b"\n"
    for _ in range(options.flood // len(line)):
        sys.stdout.buffer.write(line)
    print(f"loading in process {os.getpid()}", flush=True)
    if options.exit is not None:
        print("cannot load the model", flush=True)
        sys.exit(options.exit)
    time.sleep(options.load)
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    server.daemon_threads = True
    print("ready", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
