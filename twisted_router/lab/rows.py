"""The rows of the table: a workload, the fleet it meets, and what is measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import fmean

from attrs import frozen

from ..core.policies.vocabulary import Policy
from . import workloads
from .engine import EngineModel
from .simulation import Actor, Simulation, Wait
from .workloads import Scene

FULL = EngineModel()
SMALL = EngineModel(capacity=250_000)

#: When a replica is lost, when it is back, when one more joins; seconds.
LOST, BACK, JOINS = 120.0, 240.0, 120.0

#: The steady row counts turns between these.
WARM, OVER = 300.0, 900.0


@frozen
class Row:
    """One row.

    :ivar name: as printed and as asked for.
    :ivar fill: puts the workload into a scene.
    :ivar measure: one number from a scene that has run.
    :ivar more: whether more is better.
    :ivar trouble: what happens to the fleet meanwhile.
    :ivar until: seconds after which the run is stopped.
    """

    name: str
    about: str
    fill: Callable[[Scene], None]
    measure: Callable[[Scene], float]
    more: bool = False
    model: EngineModel = FULL
    replicas: int = 4
    slowness: tuple[float, ...] = ()
    trouble: Callable[[Simulation], Actor] | None = None
    structured: bool = False
    until: float = float("inf")


def mean_span(scene: Scene) -> float:
    """Mean seconds of a trajectory."""
    return fmean(scene.spans)


def _bulk(scene: Scene) -> float:
    return fmean(scene.bulk)


def _turns_per_minute(scene: Scene) -> float:
    counted = sum(1 for at in scene.simulation.turns if WARM < at <= OVER)
    return counted * 60.0 / (OVER - WARM)


def _loss(simulation: Simulation) -> Actor:
    yield Wait(LOST)
    simulation.lose(simulation.stations[1])
    yield Wait(BACK - LOST)
    simulation.add()


def _join(simulation: Simulation) -> Actor:
    yield Wait(JOINS)
    simulation.add()


_tbench = workloads.long_agents
_gaps = partial(workloads.long_agents, clients=112, gap=25.0, ramp=60.0)
_fewer = partial(workloads.long_agents, clients=48)

ROWS = (
    Row("tbench", "64 long agents, 4 s tools", _tbench, mean_span),
    Row("gaps", "112 long agents, 25 s tools", _gaps, mean_span),
    Row(
        "steady",
        "30 agents at any time, turns/min",
        workloads.endless_agents,
        _turns_per_minute,
        True,
        until=OVER,
    ),
    Row("short", "400 rollouts of about 4 turns", workloads.short_rollouts, mean_span),
    Row("mixed", "20 agents beside GRPO bursts: the agents", workloads.mixed, mean_span),
    Row("bulk", "20 agents beside GRPO bursts: the bursts", workloads.mixed, _bulk),
    Row("lead", "leads with subagents", workloads.leads, mean_span),
    Row(
        "leadfork",
        "leads whose subagents share their prefix",
        partial(workloads.leads, fork=True),
        mean_span,
    ),
    Row("grpo", "3 batches of 32 prompts x 16 samples", workloads.grpo, _bulk),
    Row("pass16", "60 problems x 16 samples", workloads.pass_at_16, _bulk),
    Row("fewshot", "4 tasks x 300 questions, short answers", workloads.few_shot, _bulk),
    Row(
        "fewshot-many",
        "12 tasks x 150 questions, very short answers",
        partial(workloads.few_shot, tasks=12, questions=150, output=24),
        _bulk,
    ),
    Row("slow", "one replica at half speed", _fewer, mean_span, slowness=(1.0, 2.0)),
    Row("loss", "one replica dies and comes back", _fewer, mean_span, trouble=_loss),
    Row("add", "a fourth replica joins late", _fewer, mean_span, replicas=3, trouble=_join),
    Row("pressure", "64 long agents on small caches", _tbench, mean_span, model=SMALL),
    Row(
        "gap-pressure",
        "96 agents with long gaps on small caches",
        partial(_gaps, clients=96),
        mean_span,
        model=SMALL,
    ),
    Row("templates", "agents behind 8 long system prompts", workloads.templates, mean_span),
    Row("structured", "ids with one long beginning", _tbench, mean_span, structured=True),
)

BY_NAME = {row.name: row for row in ROWS}


@frozen
class Variant:
    """One column of the table: a policy, and what it is given to work with.

    :ivar make: a fresh policy for each run.
    :ivar named: whether clients send session ids.
    :ivar pooled: whether all replicas share one cache without limit, which makes the bound.
    :ivar reports: whether replicas tell a gate what their caches hold.
    """

    name: str
    make: Callable[[], Policy]
    named: bool = True
    pooled: bool = False
    reports: bool = True


@frozen
class Result:
    """What one run gave.

    :ivar value: the row's own measure.
    :ivar cached: share of prompt tokens found in caches.
    :ivar served: requests each replica got.
    :ivar held: requests that had to wait at the router.
    """

    value: float
    cached: float
    served: tuple[int, ...]
    held: int


def run_row(row: Row, variant: Variant, seed: int) -> Result:
    """Run one row with a fresh policy."""
    simulation = Simulation(
        variant.make(), row.model, row.replicas, row.slowness, variant.pooled, reports=variant.reports
    )
    scene = Scene(simulation, seed, variant.named, row.structured)
    row.fill(scene)
    if row.trouble is not None:
        simulation.spawn(row.trouble(simulation))
    simulation.run(row.until)
    return Result(
        row.measure(scene),
        simulation.cached / max(simulation.prompted, 1),
        tuple(station.served for station in simulation.stations),
        simulation.held,
    )
