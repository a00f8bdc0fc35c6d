"""The workloads: who asks what, when. Tokens and seconds; every draw comes from the run's own seed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from attrs import define, field, frozen

from .simulation import Actor, Simulation, Together, Turn, Wait
from .text import Text, Texts

#: Output tokens of a long agent's turn.
OUTPUT = 320


class Draws:
    """The random numbers of one trajectory; what others do meanwhile does not change them."""

    def __init__(self, seed: str) -> None:
        self.random = Random(seed)  # noqa: S311 - not for secrets

    def around(self, mean: float, spread: float = 0.5, least: int = 16) -> int:
        """A whole number around ``mean``, log-normal."""
        return max(least, int(mean * self.random.lognormvariate(-spread * spread / 2, spread)))

    def pause(self, mean: float) -> Wait:
        """A tool's run time, log-normal with a long tail."""
        return Wait(mean * self.random.lognormvariate(-0.32, 0.8))


@define
class Scene:
    """What a workload may use, and where it leaves its measurements.

    :ivar named: whether clients send session ids.
    :ivar structured: whether ids share a long beginning.
    :ivar spans: seconds each trajectory took.
    :ivar bulk: seconds each burst of single-turn requests took.
    """

    simulation: Simulation
    seed: int
    named: bool = True
    structured: bool = False
    texts: Texts = field(factory=Texts)
    spans: list[float] = field(factory=list)
    bulk: list[float] = field(factory=list)

    def draws(self, what: object) -> Draws:
        """The random numbers of the trajectory with this name."""
        return Draws(f"{self.seed}/{what}")

    def session(self, draws: Draws, name: object) -> str | None:
        """An id for a new conversation, or None where clients send none."""
        drawn = f"{draws.random.getrandbits(128):032x}"
        if not self.named:
            return None
        return f"trajectory-{name:0>8}" if self.structured else drawn


@frozen
class Habits:
    """How an agent behaves: tokens a turn adds and brings out, mean seconds its tools take."""

    growth: float
    output: float
    gap: float


def agent(draws: Draws, session: str | None, text: Text, turns: int, habits: Habits) -> Actor:
    """One trajectory: ask, run a tool, ask again with everything so far."""
    for turn in range(turns):
        final = turn == turns - 1
        yield Turn(text, draws.around(habits.output), session, final)
        if not final:
            yield draws.pause(habits.gap)
            text.grow(draws.around(habits.growth), messages=2)


def _timed(scene: Scene, actor: Actor, spans: list[float]) -> Actor:
    started = scene.simulation.now
    yield from actor
    spans.append(scene.simulation.now - started)


def _one_shot(text: Text, output: int) -> Actor:
    yield Turn(text, output, None)


def _one_by_one(actors: Iterator[Actor]) -> Actor:
    """A client that starts the next trajectory when one is done."""
    for actor in actors:
        yield from actor


def _clients(scene: Scene, clients: int, ramp: float, actors: Iterator[Actor]) -> None:
    """Trajectories in order, ``clients`` at a time; the first ones start over ``ramp`` seconds."""
    draws = scene.draws("clients")
    for _ in range(clients):
        scene.simulation.at(draws.random.uniform(0.0, ramp), _one_by_one(actors))


def long_agents(
    scene: Scene,
    clients: int = 64,
    total: int | None = None,
    turns: float = 34,
    gap: float = 4.0,
    ramp: float = 30.0,
) -> None:
    """Terminal-bench-like agents behind one system prompt; as many as clients unless ``total`` says more."""
    system = scene.texts.empty().grow(3000)
    habits = Habits(growth=1000, output=OUTPUT, gap=gap)

    def trajectories() -> Iterator[Actor]:
        for number in range(clients if total is None else total):
            draws = scene.draws(number)
            text = system.fork().grow(draws.around(1200))
            session = scene.session(draws, number)
            actor = agent(draws, session, text, draws.around(turns, 0.35, 4), habits)
            yield _timed(scene, actor, scene.spans)

    _clients(scene, clients, ramp, trajectories())


def endless_agents(scene: Scene, clients: int = 30) -> None:
    """A steady group: a new agent starts when one finishes, for as long as the run lasts."""
    long_agents(scene, clients, total=1_000_000)


def short_rollouts(scene: Scene, total: int = 400, clients: int = 60) -> None:
    """Rollouts of a few turns."""
    system = scene.texts.empty().grow(1200)
    habits = Habits(growth=700, output=180, gap=2.0)

    def trajectories() -> Iterator[Actor]:
        for number in range(total):
            draws = scene.draws(number)
            text = system.fork().grow(draws.around(900))
            session = scene.session(draws, number)
            actor = agent(draws, session, text, draws.around(4, 0.4, 2), habits)
            yield _timed(scene, actor, scene.spans)

    _clients(scene, clients, 10.0, trajectories())


def _burst(scene: Scene, name: str, groups: int, samples: int, prompt: float, output: float) -> Actor:
    """Groups of samples of one prompt each, all at once."""
    draws = scene.draws(name)
    actors = []
    for _ in range(groups):
        text = scene.texts.empty().grow(draws.around(prompt))
        actors += [_one_shot(text, draws.around(output, 0.6)) for _ in range(samples)]
    return _timed(scene, _together(actors), scene.bulk)


def _together(actors: list[Actor]) -> Actor:
    yield Together(tuple(actors))


def mixed(scene: Scene, clients: int = 20, bursts: int = 8, every: float = 45.0) -> None:
    """Agents that share their replicas with bursts of GRPO sampling."""
    long_agents(scene, clients, turns=30)
    for at in range(bursts):
        scene.simulation.at(20.0 + at * every, _burst(scene, f"burst{at}", 8, 16, 1500, 350))


def grpo(scene: Scene) -> None:
    """Batches of 32 prompts with 16 samples each, one after the other."""
    batches = iter([_burst(scene, f"batch{at}", 32, 16, 1500, 500) for at in range(3)])
    scene.simulation.spawn(_one_by_one(batches))


def pass_at_16(scene: Scene, problems: int = 60, clients: int = 256) -> None:
    """Problems sampled 16 times each, so many requests at a time."""
    draws = scene.draws("problems")
    work = []
    for _ in range(problems):
        text = scene.texts.empty().grow(draws.around(600))
        work += [_one_shot(text, draws.around(900, 0.6)) for _ in range(16)]
    _pool(scene, work, clients)


def few_shot(
    scene: Scene, tasks: int = 4, questions: int = 300, output: float = 120, clients: int = 128
) -> None:
    """Questions behind the examples of their task, partly grouped by task."""
    draws = scene.draws("questions")
    work = []
    for _ in range(tasks):
        examples = scene.texts.empty().grow(draws.around(3000))
        work += [
            _one_shot(examples.fork().grow(draws.around(150), messages=0), draws.around(output, 0.6, 4))
            for _ in range(questions)
        ]
    order = [(at + draws.random.gauss(0.0, len(work) / 6), at) for at in range(len(work))]
    _pool(scene, [work[at] for _, at in sorted(order)], clients)


def _pool(scene: Scene, work: list[Actor], clients: int) -> None:
    """Work through a list, so many at a time."""
    left = iter(work)
    everything = _together([_one_by_one(left) for _ in range(clients)])
    scene.simulation.spawn(_timed(scene, everything, scene.bulk))


def leads(scene: Scene, fork: bool = False) -> None:
    """Leads that three times start four subagents and read what they found.

    :param fork: whether subagents begin with what their lead has so far.
    """
    system = scene.texts.empty().grow(3000)
    other = scene.texts.empty().grow(2000)
    habits = Habits(growth=900, output=200, gap=2.0)

    def child(name: str, text: Text) -> Actor:
        draws = scene.draws(name)
        text.grow(draws.around(700))
        return agent(draws, scene.session(draws, name), text, draws.around(6, 0.3, 2), habits)

    def lead(number: int) -> Actor:
        draws = scene.draws(number)
        text = system.fork().grow(draws.around(1500))
        session = scene.session(draws, number)
        for part in range(3):
            for _ in range(4):
                yield Turn(text, draws.around(300), session)
                yield draws.pause(2.0)
                text.grow(draws.around(1200), messages=2)
            origin = text if fork else other
            yield Together(tuple(child(f"{number}.{part}.{at}", origin.fork()) for at in range(4)))
            text.grow(draws.around(2400), messages=2)
            yield Turn(text, draws.around(400), session, final=part == 2)

    draws = scene.draws("leads")
    for number in range(4):
        actor = _timed(scene, lead(number), scene.spans)
        scene.simulation.at(draws.random.uniform(0.0, 5.0), actor)


def templates(scene: Scene, clients: int = 48, total: int = 96) -> None:
    """Agents behind eight long system prompts."""
    systems = [scene.texts.empty().grow(12_000) for _ in range(8)]
    habits = Habits(growth=800, output=200, gap=4.0)

    def trajectories() -> Iterator[Actor]:
        for number in range(total):
            draws = scene.draws(number)
            text = draws.random.choice(systems).fork().grow(draws.around(800))
            session = scene.session(draws, number)
            actor = agent(draws, session, text, draws.around(12, 0.35, 3), habits)
            yield _timed(scene, actor, scene.spans)

    _clients(scene, clients, 20.0, trajectories())
