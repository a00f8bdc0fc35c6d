One install gives the router as a foreground command, as a ``twistd`` daemon and as a systemd unit; ``make demo`` and ``make test`` work in a fresh clone.
