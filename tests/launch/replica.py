"""A scripted replica: a program of its own that does as its flags say and phones home.

Each process of it connects to ``--home PORT``, tells in one JSON line who it is, and keeps the connection
until it ends, so that a test waits for events instead of times.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys


def report(home: int, role: str) -> socket.socket:
    """Connect to the test and say who we are."""
    line = socket.create_connection(("127.0.0.1", home))
    about = {
        "role": role,
        "pid": os.getpid(),
        "session": os.getsid(0),
        "argv": sys.argv[1:],
        "env": dict(os.environ),
        "cwd": os.getcwd(),
        "stdin": os.readlink("/proc/self/fd/0"),
        "fds": sorted(
            int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")
        ),
    }
    line.sendall(json.dumps(about).encode() + b"\n")
    return line


def main() -> None:
    """Do as told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=int, required=True)
    parser.add_argument("--port", type=int)
    parser.add_argument("--exit", type=int)
    parser.add_argument("--say", default="hello")
    parser.add_argument("--flood", type=int, default=0)
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--fork", action="store_true")
    parser.add_argument("--new-session", action="store_true")
    parser.add_argument("--scrub", action="store_true")
    parser.add_argument("--leave", action="store_true")
    parser.add_argument("--deaf", action="store_true")
    options, _ = parser.parse_known_args()
    if options.exit is not None:
        print("cannot load the model", flush=True)
        sys.exit(options.exit)
    if options.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    role = "parent"
    if options.fork and os.fork() == 0:
        role = "child"
        if options.new_session:
            os.setsid()
        if options.scrub:
            flags = [
                flag for flag in sys.argv[1:] if flag not in ("--fork", "--new-session", "--scrub", "--leave")
            ]
            os.execve(sys.executable, [sys.executable, __file__, *flags, "--deaf"], {})
    elif options.leave:
        sys.exit(0)
    listener = None
    if options.port is not None and role == "parent" and not options.deaf:
        listener = socket.create_server(("127.0.0.1", options.port))
    block = b"x" * 1023 + b"\n"
    for _ in range(options.flood):
        os.write(1, block * 1024)
    print(options.say, flush=True)
    line = report(options.home, role)
    assert line is not None
    while True:
        if listener is None:
            signal.pause()
        else:
            listener.accept()[0].close()


main()
