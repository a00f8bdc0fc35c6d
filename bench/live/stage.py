"""Where the laboratory's actors play in real time: its simulation, without the fleet."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define
from twisted.internet.interfaces import IReactorTime

from twisted_router.lab.simulation import Actor, Together, Turn, Wait

#: Sends a turn's request; calls back when the whole answer is there, or will not come.
Ask = Callable[[Turn, Callable[[], None]], None]


@define(eq=False)
class _Playing:
    actor: Actor
    group: _Group | None


@define(eq=False)
class _Group:
    waiter: _Playing
    left: int


class Stage:
    """Plays actors; what workloads and measures use of :class:`twisted_router.lab.simulation.Simulation`.

    :param clock: ``scale`` simulated seconds pass in each of its seconds.
    :param over: called once, when the last actor has left.
    :ivar turns: simulated seconds at which each turn ended.
    :ivar late: simulated seconds by which all timers together were late.
    :ivar timers: how many there were.
    """

    def __init__(self, clock: IReactorTime, scale: float, ask: Ask, over: Callable[[], None]) -> None:
        self._clock = clock
        self._scale = scale
        self._ask = ask
        self._over = over
        self._began = clock.seconds()
        self._present = 0
        self.turns: list[float] = []
        self.late = 0.0
        self.timers = 0

    @property
    def now(self) -> float:
        """Simulated seconds."""
        return (self._clock.seconds() - self._began) * self._scale

    def spawn(self, actor: Actor) -> None:
        """Start an actor in a moment."""
        self.at(self.now, actor)

    def at(self, when: float, actor: Actor) -> None:
        """Start an actor later."""
        self._present += 1
        self._later(max(0.0, when - self.now), _Playing(actor, None))

    def _later(self, seconds: float, playing: _Playing) -> None:
        self._clock.callLater(seconds / self._scale, self._woken, playing, self.now + seconds)

    def _woken(self, playing: _Playing, due: float) -> None:
        self.late += max(0.0, self.now - due)
        self.timers += 1
        self._go_on(playing)

    def _go_on(self, playing: _Playing) -> None:
        try:
            step = next(playing.actor)
        except StopIteration:
            self._leave(playing.group)
            return
        match step:
            case Wait(seconds):
                self._later(seconds, playing)
            case Turn():
                self._ask(step, lambda: self._answered(playing))
            case Together(actors):
                group = _Group(playing, len(actors))
                self._present += len(actors)
                for actor in actors:
                    self._go_on(_Playing(actor, group))

    def _answered(self, playing: _Playing) -> None:
        self.turns.append(self.now)
        self._go_on(playing)

    def _leave(self, group: _Group | None) -> None:
        self._present -= 1
        if group is not None:
            group.left -= 1
            if not group.left:
                self._go_on(group.waiter)
        if not self._present:
            self._over()
