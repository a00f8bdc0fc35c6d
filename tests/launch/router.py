"""A router cut down to one launch, to be killed: ``python router.py HOME PORT LOG_DIR INSTANCE``."""

from __future__ import annotations

import json
import os
import sys
import time

from twisted.internet import reactor

from twisted_router.config.model import HostConfig
from twisted_router.core.slots import Handle, Slot
from twisted_router.launch.local import LocalLauncher


def launched(handle: Handle) -> None:
    """Tell the test what runs now."""
    print(json.dumps({"pid": handle.pid, "started": handle.started, "log": handle.log_path}), flush=True)


home, port, log_dir, instance = sys.argv[1:]
replica = os.path.join(os.path.dirname(os.path.abspath(__file__)), "replica.py")
host = HostConfig(
    "here",
    (4,),
    log_dir=log_dir,
    command=(sys.executable, replica, "--home", home, "--port", "{port}"),
)
slot = Slot("here-d4", "here", (4,), "127.0.0.1", int(port))
reactor.callWhenRunning(
    lambda: LocalLauncher(host, reactor, time.monotonic, log_dir).launch(slot, instance).addCallback(launched)
)
reactor.run()
