"""x."""

import argparse


def micro(options: argparse.Namespace) -> int:
    """X."""
    return 0
