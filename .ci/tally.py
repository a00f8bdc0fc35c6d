"""Run commands one after the other, show what they print, end with one line: ``N passed, N failed``.

Usage: ``tally.py COMMAND...``; each argument is one shell command. Understood are the closing lines of
trial and of pytest, and this program's own, which is not shown: it is the sum of what its command printed
before it. A command that fails without a count is one failure. The exit code is 1 when anything failed.
"""

from __future__ import annotations

import re
import subprocess
import sys

_TRIAL = re.compile(r"(?:PASSED|FAILED)(?: \((.*)\))?$")
_PYTEST = re.compile(r"=*\s*\d+ [a-z]+(?:, \d+ [a-z]+)* in [\d.]+s")
_OURS = re.compile(r"\d+ passed, \d+ failed$")
_GOOD = {"successes", "passed", "expectedFailures", "xfailed"}
_BAD = {"failures", "errors", "unexpectedSuccesses", "failed", "error", "xpassed"}


def counts(line: str) -> tuple[int, int] | None:
    """Read (passed, failed) from a closing line, None from any other line."""
    if trial := _TRIAL.match(line):
        found = [(name, int(count)) for name, count in re.findall(r"(\w+)=(\d+)", trial[1] or "")]
    elif _OURS.match(line) or _PYTEST.match(line):
        found = [(name, int(count)) for count, name in re.findall(r"(\d+) ([a-z]+)", line)]
    else:
        return None
    return sum(n for name, n in found if name in _GOOD), sum(n for name, n in found if name in _BAD)


def run(command: str) -> tuple[int, int]:
    """Run one command, relay its output, return what it counted."""
    passed = failed = 0
    with subprocess.Popen(  # noqa: S602 - the caller's own command line
        command,
        shell=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            found = counts(line.rstrip())
            if _OURS.match(line.rstrip()) and found:
                passed, failed = found
                continue
            if found:
                passed, failed = passed + found[0], failed + found[1]
            print(line, end="", flush=True)
    if process.returncode and not failed:
        print(f"exit code {process.returncode}: {command}")
        failed = 1
    return passed, failed


def main(commands: list[str]) -> int:
    """Run all commands, also after one failed, and print the sum."""
    totals = [run(command) for command in commands]
    passed, failed = sum(p for p, _ in totals), sum(f for _, f in totals)
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed or not totals else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
