"""Private directories for ssh's sockets, gone with the router however that ends."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile

from ..disk import remove_left

PREFIX = "pypto-ssh-"


class SocketDirectory:
    """A directory of its own in ``temporary``, where a path is short: a socket's must be. Raises OSError.

    It is locked as long as this process lives. What routers that were killed have left there is removed.

    :ivar path: where it is.
    """

    def __init__(self, temporary: str) -> None:
        remove_left(temporary, PREFIX)
        new = tempfile.mkdtemp(prefix="." + PREFIX, dir=temporary)
        self._lock = os.open(new, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = os.path.join(temporary, os.path.basename(new)[1:])
        # Its name comes last: nobody ever finds it unlocked and takes it for left.
        os.rename(new, self.path)

    def remove(self) -> None:
        """Remove it with all that is in it; a second call does nothing."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(lock)
