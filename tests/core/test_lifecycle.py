from __future__ import annotations

from collections.abc import Callable

from automat import NoTransition
from twisted.trial.unittest import SynchronousTestCase

from twisted_router.core.effects import Effects
from twisted_router.core.lifecycle import Life, new_life
from twisted_router.core.places import Place, Rules, State
from twisted_router.core.records import Reservation
from twisted_router.core.slots import Handle, Slot

from .scene import kinds, record_of

SLOT = Slot("node-d0", "node", (0,), "127.0.0.1", 8001)
HANDLE = Handle("node-d0", "i", 1, "2", "/log")

#: Every input of a slot, by the name the tables use.
INPUTS: dict[str, Callable[[Life], Effects]] = {
    "launch": lambda life: life.launch(1.0),
    "launched": lambda life: life.launched(HANDLE, 1.0),
    "launch failed": lambda life: life.launch_failed("why", "tail", 1.0),
    "launch uncertain": lambda life: life.launch_uncertain("why", "tail", 1.0),
    "answered": lambda life: life.answered(1.0),
    "silent": lambda life: life.fell_silent("why", 1.0),
    "exited": lambda life: life.exited("why", "tail", 1.0),
    "retire": lambda life: life.retire("why", 1.0),
    "due": lambda life: life.due(1.0),
    "confirmed": lambda life: life.stop_confirmed(1.0),
    "unconfirmed": lambda life: life.stop_unconfirmed("why", 1.0),
    "wait": lambda life: life.wait(10.0, "why", 1.0),
    "reclaim": lambda life: life.reclaim(record_of(), 1.0),
    "reserve": lambda life: life.reserve(record_of(reason=Reservation.STOP_UNCONFIRMED), 1.0),
    "adopted ready": lambda life: life.adopted_ready(1.0),
    "adopted loading": lambda life: life.adopted_loading(1.0),
    "unreachable": lambda life: life.unreachable("why", 1.0),
    "release": lambda life: life.release(),
}

#: One way to bring a slot into each state.
WAYS: dict[State, tuple[str, ...]] = {
    State.FREE: (),
    State.RECLAIMED: ("reclaim",),
    State.LAUNCHING: ("launch",),
    State.DOOMED: ("launch", "retire"),
    State.LOADING: ("launch", "launched"),
    State.READY: ("launch", "launched", "answered"),
    State.FAILED: ("launch", "launched", "answered", "silent"),
    State.DRAINING: ("launch", "launched", "answered", "retire"),
    State.STOPPING: ("launch", "launched", "answered", "retire", "due"),
    State.WAITING: ("wait",),
    State.RESERVED: ("reserve",),
}

#: Every legal move, and what has to be done then, log notes apart. What is not here is refused.
MOVES: tuple[tuple[State, str, State, str], ...] = (
    (State.FREE, "launch", State.LAUNCHING, "Record Launch"),
    (State.FREE, "wait", State.WAITING, ""),
    (State.FREE, "reclaim", State.RECLAIMED, ""),
    (State.FREE, "reserve", State.RESERVED, ""),
    (State.RECLAIMED, "adopted ready", State.READY, "Routed Watch Record"),
    (State.RECLAIMED, "adopted loading", State.LOADING, "Watch Record"),
    (State.RECLAIMED, "unreachable", State.RESERVED, "Record Retired"),
    (State.RECLAIMED, "retire", State.STOPPING, "Stop"),
    (State.LAUNCHING, "launched", State.LOADING, "Record Watch"),
    (State.LAUNCHING, "launch failed", State.FREE, "Record Retired"),
    (State.LAUNCHING, "launch uncertain", State.STOPPING, "Stop"),
    (State.LAUNCHING, "retire", State.DOOMED, ""),
    (State.DOOMED, "launched", State.STOPPING, "Record Stop"),
    (State.DOOMED, "launch failed", State.FREE, "Record Retired"),
    (State.DOOMED, "launch uncertain", State.STOPPING, "Stop"),
    (State.DOOMED, "retire", State.DOOMED, ""),
    (State.LOADING, "answered", State.READY, "Routed Record"),
    (State.LOADING, "exited", State.STOPPING, "Stop"),
    (State.LOADING, "due", State.STOPPING, "Stop"),
    (State.LOADING, "retire", State.DRAINING, ""),
    (State.READY, "silent", State.FAILED, "Unrouted"),
    (State.READY, "exited", State.DRAINING, "Unrouted"),
    (State.READY, "retire", State.DRAINING, "Unrouted"),
    (State.FAILED, "answered", State.READY, "Routed"),
    (State.FAILED, "due", State.DRAINING, ""),
    (State.FAILED, "exited", State.DRAINING, ""),
    (State.FAILED, "retire", State.DRAINING, ""),
    (State.DRAINING, "due", State.STOPPING, "Stop"),
    (State.DRAINING, "retire", State.DRAINING, ""),
    (State.STOPPING, "confirmed", State.FREE, "Record Retired"),
    (State.STOPPING, "unconfirmed", State.RESERVED, "Record Retired"),
    (State.STOPPING, "retire", State.STOPPING, ""),
    (State.WAITING, "due", State.LAUNCHING, "Record Launch"),
    (State.WAITING, "retire", State.FREE, "Retired"),
    (State.RESERVED, "release", State.FREE, "Record"),
)


def slot_in(state: State) -> tuple[Life, Place]:
    """Bring a slot into a state."""
    place = Place(SLOT, Rules(), lambda: "i", lambda: None)
    life = new_life(place)
    for name in WAYS[state]:
        INPUTS[name](life)
    return life, place


class MovesTests(SynchronousTestCase):
    def test_ways(self) -> None:
        """Every state can be reached."""
        for state in State:
            self.assertIs(slot_in(state)[0].state(), state)

    def test_legal_moves(self) -> None:
        """A legal move leads where the table says and asks for what the table says."""
        for state, name, target, effects in MOVES:
            life, _ = slot_in(state)
            done = kinds(INPUTS[name](life))
            self.assertEqual((life.state(), done), (target, effects.split()), (state, name))

    def test_all_others_are_refused(self) -> None:
        """Whatever is not in the table is refused and leaves the slot as it was."""
        legal = {(state, name) for state, name, _, _ in MOVES}
        for state in State:
            for name in INPUTS:
                if (state, name) not in legal:
                    life, _ = slot_in(state)
                    self.assertRaises(NoTransition, INPUTS[name], life)
                    self.assertIs(life.state(), state)

    def test_a_launch_is_recorded_first(self) -> None:
        """No process exists that the state file does not know."""
        for state, name in ((State.FREE, "launch"), (State.WAITING, "due")):
            life, _ = slot_in(state)
            done = kinds(INPUTS[name](life))
            self.assertLess(done.index("Record"), done.index("Launch"))

    def test_adopted_without_a_handle(self) -> None:
        """A replica whose process was never told of cannot be watched, and is adopted all the same."""
        life, place = slot_in(State.RECLAIMED)
        place.handle = None
        self.assertEqual(kinds(life.adopted_ready(1.0)), ["Routed", "Record"])
