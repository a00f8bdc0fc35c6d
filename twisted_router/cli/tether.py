"""``python -m twisted_router.cli.tether FILE MODULE [ARGUMENT...]``: a program that ends with FILE's holder.

Whoever holds a lock on FILE (``hold``) may be killed in any way: the kernel gives the lock back, and all that
was started so ends at once, however many processes lie between the two.
"""

from __future__ import annotations

import fcntl
import os
import runpy
import sys
import threading
from contextlib import suppress


def hold(path: str) -> int:
    """Make FILE and lock it; the descriptor holds it. Raises OSError.

    It has its name only once it is locked, so that nobody ever finds it and takes its holder for dead.
    """
    held = os.open(path + ".new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)
    os.rename(path + ".new", path)
    return held


def main(argv: list[str]) -> None:
    """Run MODULE as ``python -m`` does, in a session of its own: a Ctrl-C is the holder's to pass on."""
    path, module, *rest = argv
    try:
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}: what {module} was started for is over")
    threading.Thread(target=_end_with, args=(opened,), daemon=True).start()
    with suppress(PermissionError):
        # Refused where it leads a session already.
        os.setsid()
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _end_with(opened: int) -> None:
    """Wait, without ever taking the processor, until the lock can be had."""
    fcntl.flock(opened, fcntl.LOCK_SH)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
