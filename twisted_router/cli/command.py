"""What the command line of every command has."""

from __future__ import annotations

from twisted.python import usage

from twisted_router import __version__


class CommandOptions(usage.Options):
    """The command line of ``pypto-router`` or of one of its commands."""

    def opt_version(self) -> None:
        """Print the version and exit."""
        print(f"pypto-router {__version__}")
        raise SystemExit(0)
