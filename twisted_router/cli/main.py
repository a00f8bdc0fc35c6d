"""The two programs: ``pypto-serving-router``, the router in the foreground, and ``pypto-router``."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from errno import EADDRINUSE
from typing import Any, cast

from twisted.application.service import IService
from twisted.internet.error import CannotListenError
from twisted.logger import (
    FilteringLogObserver,
    ILogObserver,
    LogLevel,
    LogLevelFilterPredicate,
    globalLogBeginner,
    textFileLogObserver,
)
from twisted.python import usage
from twisted.python.reflect import namedModule

from twisted_router.cli.command import CommandOptions
from twisted_router.cli.demo import Demo, DemoOptions
from twisted_router.complaint import complaint
from twisted_router.errors import StateFileBusy, StateFileError
from twisted_router.output import LossyLines, claim_standard_descriptors

SERVE = "pypto-serving-router"
MAIN = "pypto-router"

#: Exit codes: a value or file that cannot be used, a command line that cannot be parsed, a port or state
#: file that another process has (EX_UNAVAILABLE of sysexits.h).
EX_VALUE = 1
EX_USAGE = 2
EX_UNAVAILABLE = 69


class _Passed(usage.Options):
    """The command line of a program of its own, which parses it itself."""

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Keep the words as they are."""
        self.words = tuple(options or ())


def _router_options() -> Any:
    return _tap().Options()


def _check_options() -> usage.Options:
    from twisted_router.cli.check import CheckOptions

    return CheckOptions()


def _lab_options() -> usage.Options:
    from twisted_router.cli.lab import LabOptions

    return LabOptions()


class MainOptions(CommandOptions):
    """``pypto-router``'s command line."""

    longdesc = "COMMAND --help describes a command."
    subCommands: list[list[Any]] = [
        ["demo", None, DemoOptions, "Run the router before simulated replicas, to try it out."],
        ["sim", None, _Passed, "Run one simulated replica."],
        ["check-config", None, _check_options, "Explain a configuration file, or what is wrong with it."],
        ["lab", None, _lab_options, "Compare routing policies on simulated replicas or recorded traffic."],
        ["serve", None, _router_options, f"Run the router in the foreground; the same as {SERVE}."],
    ]

    @property
    def synopsis(self) -> str:
        """The first line of the help of the program, and the beginning of that of a command."""
        return f"Usage: {MAIN}" if self.subCommand else f"Usage: {MAIN} COMMAND [options]"

    def postOptions(self) -> None:
        """A command is needed. Raises ``usage.UsageError``."""
        if self.subCommand is None:
            names = ", ".join(str(row[0]) for row in self.subCommands)
            raise usage.UsageError(f"expected a command: {names}")


def main(argv: Sequence[str] | None = None) -> int:
    """``pypto-router``: run one command; the exit code."""
    claim_standard_descriptors()
    options = MainOptions()
    if list(sys.argv[1:2] if argv is None else argv[:1]) == ["serve"]:
        _end_at_once(f"{MAIN} serve")
    code = _parse(MAIN, options, argv)
    if code is not None:
        return code
    commands: dict[str, Callable[[Any], int]] = {
        "demo": _demo,
        "sim": _sim,
        "check-config": lambda check: cast(int, check.run()),
        "lab": lambda lab: cast(int, lab.run()),
        "serve": lambda router: _run_router(f"{MAIN} serve", router),
    }
    return commands[str(options.subCommand)](options.subOptions)


def serve(argv: Sequence[str] | None = None) -> int:
    """``pypto-serving-router``: the router in the foreground until it is told to stop; the exit code."""
    claim_standard_descriptors()
    _end_at_once(SERVE)
    options = _router_options()
    options.synopsis = f"Usage: {SERVE} {options.synopsis}"
    code = _parse(SERVE, options, argv)
    return _run_router(SERVE, options) if code is None else code


def _end_at_once(program: str) -> None:
    """Have a signal end the program with a line, until the router handles signals: nothing is started yet."""

    def ended(number: int, _: object) -> None:
        name = signal.Signals(number).name
        LossyLines(2).write(f"{program}: got {name} before anything was started\n")
        os._exit(0)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, ended)


def _tap() -> Any:
    """The router is a program of its own: it is found by name, as twistd does."""
    return namedModule("twisted_router.tap")


def _parse(program: str, options: usage.Options, argv: Sequence[str] | None) -> int | None:
    """Parse ``argv``; the exit code when that failed, all that is wrong being said."""
    try:
        try:
            options.parseOptions(list(sys.argv[1:] if argv is None else argv))
        finally:
            print(end="", flush=True)
    except BrokenPipeError:
        # Whoever read the help has seen enough of it; what is left must not fail again at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except usage.UsageError as problem:
        for line in complaint(options, problem).splitlines():
            _say_error(program, line)
        return EX_VALUE if isinstance(problem, _tap().BadValue) else EX_USAGE
    return None


def _run_router(program: str, options: usage.Options) -> int:
    from twisted.internet import reactor as installed

    reactor = cast(Any, installed)
    _begin_logging(_tap().damped(textFileLogObserver(cast(Any, LossyLines(2)))))
    service = cast(IService, _tap().makeService(options))
    try:
        service.privilegedStartService()
    except CannotListenError as problem:
        where, why = f"{options['host']}:{options['port']}", problem.socketError
        hint = "; stop what listens there, or give another --port" if why.errno == EADDRINUSE else ""
        _say_error(program, f"cannot listen on {where}: {why.strerror}{hint}")
        return EX_UNAVAILABLE
    except StateFileError as problem:
        _say_error(program, str(problem))
        return EX_UNAVAILABLE if isinstance(problem, StateFileBusy) else EX_VALUE
    service.startService()
    reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
    reactor.run()
    return 0


def _demo(options: DemoOptions) -> int:
    from twisted.internet import reactor as installed

    reactor = cast(Any, installed)
    demo = Demo(reactor, LossyLines(1), options)
    _begin_logging(textFileLogObserver(cast(Any, LossyLines(2))), LogLevel.warn)

    def begin() -> None:
        # Here, for the reactor has installed its own handlers by now.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: reactor.callFromThread(demo.interrupted))
        demo.begin()

    reactor.callWhenRunning(begin)
    reactor.addSystemEventTrigger("before", "shutdown", demo.end)
    reactor.run()
    if demo.problem is not None:
        _say_error(f"{MAIN} demo", demo.problem)
        return EX_UNAVAILABLE
    return 0


def _sim(passed: _Passed) -> int:
    argv = [sys.executable, "-m", "twisted_router.sim", *passed.words]
    os.execv(sys.executable, argv)  # noqa: S606  # no shell is wanted


def _begin_logging(observer: ILogObserver, level: Any = LogLevel.info) -> None:
    predicate = LogLevelFilterPredicate(defaultLogLevel=level)
    globalLogBeginner.beginLoggingTo([FilteringLogObserver(observer, [predicate])], redirectStandardIO=False)


def _say_error(program: str, line: str) -> None:
    LossyLines(2).write(f"{program}: error: {line}\n")


if __name__ == "__main__":
    sys.exit(main())
