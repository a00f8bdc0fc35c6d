"""Runs, spread over the processors of this machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from attrs import frozen

from .rows import Result, Row, Variant, run_row


@frozen(eq=False)
class Run:
    """One row under one policy with one seed."""

    row: Row
    variant: Variant
    seed: int

    def __call__(self) -> Result:
        """Do it, from a fresh policy on."""
        return run_row(self.row, self.variant, self.seed)


#: Told how many runs are done, of how many, and which was the last.
Progress = Callable[[int, int, Run], None]


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(runs: Sequence[Run], processes: int, progress: Progress) -> dict[Run, Result]:
    """Do every run; what comes out does not depend on ``processes``."""
    results: dict[Run, Result] = {}
    for run, result in _each(runs, min(processes, len(runs))):
        results[run] = result
        progress(len(results), len(runs), run)
    return results


def _each(runs: Sequence[Run], processes: int) -> Iterator[tuple[Run, Result]]:
    if processes <= 1:
        yield from ((run, run()) for run in runs)
        return
    # Started afresh and not forked: whoever calls may have threads.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=_leave_interrupts)
    try:
        futures = {pool.submit(run): run for run in runs}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_interrupts() -> None:
    """A terminal's interrupt reaches every process; one of them is enough to end all."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
