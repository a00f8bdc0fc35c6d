"""Runs a random walk so that trial shows the steps that broke a rule."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


def walk(machine: type[RuleBasedStateMachine], *, walks: int, steps: int) -> None:
    """Walk; raise AssertionError with the shortest way to the broken rule, if one was found."""
    patient = settings(
        max_examples=walks,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(machine, settings=patient)
    except Exception as error:
        # trial prints no notes, and the steps are in the notes.
        steps_taken = "\n".join(getattr(error, "__notes__", ()))
        raise AssertionError(f"{type(error).__name__}: {error}\n{steps_taken}") from error
