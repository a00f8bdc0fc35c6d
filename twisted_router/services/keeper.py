"""Does what the core decides: the only performer of its effects."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred, DeferredList, maybeDeferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from ..core.effects import (
    Effect,
    Effects,
    Event,
    Hasten,
    Launch,
    Launched,
    LaunchFailed,
    Note,
    ProbeNow,
    ProcessExited,
    Record,
    Retired,
    Routed,
    ShutdownBegan,
    SlotNote,
    Stop,
    StopConfirmed,
    StopUnconfirmed,
    TailRead,
    Tick,
    Unrouted,
    Watch,
)
from ..core.fleet import Fleet
from ..core.slots import Slot
from ..errors import LaunchFailed as CannotLaunch
from ..errors import LaunchUncertain, ShuttingDown, StateFileError
from ..errors import StopUnconfirmed as NotStopped
from ..interfaces import ILauncher, IStateStore
from .presence import Knock
from .stopping import Stopping
from .waiters import Waiters

T = TypeVar("T")

#: Lines of a replica's log that are kept with a failed launch or a lost replica.
TAIL_LINES = 20

#: Seconds after which a state file that could not be written is tried again.
SAVE_AGAIN = 5.0

#: Seconds for which what is still under way is awaited at the end; each is bounded by its launcher anyway.
CLOSE_TIMEOUT = 5.0

#: Seconds to the next look at the core's deadlines at least; keeps a deadline that stays due from spinning.
_BREATH = 0.01

_WARNINGS = {Note.LAUNCH_FAILED, Note.LOST, Note.ABANDONED, Note.RESERVED}


class Keeper:
    """Applies events to the fleet and performs what follows; each outcome is a new event.

    Effects of one event are done in order, and before those of any event that comes up meanwhile.

    :param launchers: by the name of their host.
    :param slots: every declared slot.
    :param now: monotonic seconds, as the fleet uses them; ``clock`` only wakes us.
    :param knock: looks at an address.
    :param probe_now: has the prober look at an instance at once.
    :param observe: is shown each effect before it is done; counts them, never raises.
    :param stop_grace: seconds (``--stop-grace``).
    :param detach: launched replicas are left running at the end (``--detach-on-exit``).
    """

    _log = Logger()

    def __init__(
        self,
        fleet: Fleet,
        slots: Iterable[Slot],
        launchers: Mapping[str, ILauncher],
        store: IStateStore,
        clock: IReactorTime,
        now: Callable[[], float],
        *,
        knock: Knock,
        probe_now: Callable[[str], object],
        observe: Callable[[Effect], object],
        stop_grace: float,
        detach: bool = False,
    ) -> None:
        self._fleet = fleet
        self._slots = {slot.name: slot for slot in slots}
        self._launchers = launchers
        self._store = store
        self._clock = clock
        self._now = now
        self._knock = knock
        self._probe_now = probe_now
        self._observe = observe
        self._grace = stop_grace
        self._detach = detach
        self._batches: deque[Effects] = deque()
        self._performing = False
        self._timer: IDelayedCall | None = None
        self._woken = False
        self._retry: IDelayedCall | None = None
        self._closed = False
        self._held: set[Deferred[Any]] = set()
        self._launches: dict[str, Deferred[Any]] = {}
        self._stops: dict[str, tuple[Stopping, Deferred[Any]]] = {}
        self._watches: dict[str, Deferred[str]] = {}
        self._growing: Waiters[Launch] = Waiters()
        self._retiring: Waiters[Retired] = Waiters()
        fleet.wake = self._wake

    # Events in, effects out

    def apply(self, event: Event) -> None:
        """Take note of what happened and do what follows.

        :raises Conflict, NotFound, ShuttingDown: see ``Fleet.apply``.
        """
        self.perform(self._fleet.apply(event, self._now()))

    def perform(self, effects: Effects) -> None:
        """Do what the fleet decided, after what it decided earlier."""
        self._batches.append(effects)
        if self._performing:
            return
        self._performing = True
        try:
            while self._batches:
                self._perform_batch(self._batches.popleft())
        finally:
            self._performing = False
        self._set_timer()

    def watch(self, deferred: Deferred[Any], what: str) -> None:
        """Hold a Deferred nobody else waits for; log its failure, await it at the end."""
        self._held.add(deferred)

        def over(result: object) -> None:
            self._held.discard(deferred)
            if isinstance(result, Failure) and not result.check(CancelledError):
                self._log.failure("{what} failed", result, what=what)

        deferred.addBoth(over)

    def _perform_batch(self, effects: Effects) -> None:
        unsaved: str | None = None
        for effect in effects:
            self._observe(effect)
            match effect:
                case Record():
                    unsaved = self._save()
                case Launch(_, instance) if unsaved is not None:
                    self._settle_launch(effect, LaunchFailed(instance, unsaved))
                case Launch():
                    self._launch(effect)
                case Stop():
                    self._stop(effect)
                case Watch():
                    self._watch(effect)
                case Retired():
                    self._retired(effect)
                case ProbeNow(instance):
                    self._probe_now(instance)
                case SlotNote():
                    self._note(effect)
                case Routed(name):
                    self._log.info("replica {name} is in rotation", name=name)
                case Unrouted(name, why, planned):
                    log = self._log.info if planned else self._log.warn
                    log("replica {name} is out of rotation: {why}", name=name, why=why)

    def _save(self) -> str | None:
        """Write the state file; return why that failed, None when it is on the disk.

        A failed write is tried again until one succeeds, or the file would still name what is long gone.
        """
        if self._retry is not None and self._retry.active():
            self._retry.cancel()
        try:
            self._store.save(self._fleet.record(self._now()))
        except StateFileError as error:
            if self._retry is None:
                self._log.error("{why}", why=error)
            if not self._closed:
                self._retry = self._clock.callLater(SAVE_AGAIN, self._save)
            return str(error)
        self._retry = None
        return None

    # Time

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._closed:
            return
        deadline = self._fleet.next_deadline()
        if self._woken:
            self._timer = self._clock.callLater(0, self._tick)
        elif deadline is not None:
            self._timer = self._clock.callLater(max(_BREATH, deadline - self._now()), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._woken = False
        self.apply(Tick())

    def _wake(self) -> None:
        """A lease was given back deep inside the data path: come in the reactor's next turn."""
        self._woken = True
        self._set_timer()

    # Launching

    def _launch(self, order: Launch) -> None:
        launching = Deferred.fromCoroutine(self._bring_up(order))
        if not launching.called:
            self._launches[order.instance] = launching
        self.watch(launching, f"launching on slot {order.slot.name}")

    async def _bring_up(self, order: Launch) -> None:
        event: Launched | LaunchFailed
        try:
            event = Launched(await self._launchers[order.slot.host].launch(order.slot, order.instance))
        except CannotLaunch as error:
            reason, _, tail = error.message.partition("\n")
            event = LaunchFailed(order.instance, reason, tail, not isinstance(error, LaunchUncertain))
        except Exception as error:
            self._log.failure("the launcher of slot {slot} broke", slot=order.slot.name)
            event = LaunchFailed(order.instance, f"{type(error).__name__}: {error}", certain=False)
        self._launches.pop(order.instance, None)
        self._settle_launch(order, event)

    def _settle_launch(self, order: Launch, event: Launched | LaunchFailed) -> None:
        """Apply how a launch went, then tell those who asked for it."""
        self.apply(event)
        if isinstance(event, Launched):
            self._growing.tell(order.instance, order)
        else:
            told = "\n".join(filter(None, (event.reason, event.tail)))
            self._growing.fail(order.instance, CannotLaunch(told))

    def _watch(self, order: Watch) -> None:
        instance = order.handle.instance
        watching = maybeDeferred(self._launchers[order.slot.host].watch, order.handle)
        self._watches[instance] = watching
        watching.addCallback(lambda how: self.apply(ProcessExited(instance, how)))
        self.watch(watching, f"watching the process of slot {order.slot.name}")

    def _note(self, note: SlotNote) -> None:
        log = self._log.warn if note.note in _WARNINGS else self._log.info
        log(
            "slot {slot}: {note}{because}",
            slot=note.slot,
            note=note.note.value,
            because=f": {note.why}" if note.why else "",
            instance=note.instance,
            seconds=note.seconds,
        )
        # Only a process that was seen to exist has written something since.
        if note.note in (Note.LOST, Note.LAUNCH_FAILED) and note.instance in self._watches:
            self._fetch_tail(note)

    def _fetch_tail(self, note: SlotNote) -> None:
        slot = self._slots[note.slot]
        reading = maybeDeferred(self._launchers[slot.host].tail, slot, TAIL_LINES)
        reading.addCallback(lambda tail: self.apply(TailRead(note.instance, tail)))
        self.watch(reading, f"reading the log of slot {note.slot}")

    # Stopping

    def _stop(self, order: Stop) -> None:
        launcher = self._launchers[order.slot.host]
        stopping = Stopping(order, launcher, self._knock, self._clock, self._now, self._grace)
        running = Deferred.fromCoroutine(self._bring_down(order, stopping))
        if not running.called:
            self._stops[order.instance] = (stopping, running)
        self.watch(running, f"stopping slot {order.slot.name}")

    async def _bring_down(self, order: Stop, stopping: Stopping) -> None:
        """A stop that was given up is no event: the state file still has the instance as it was."""
        event: Event = StopConfirmed(order.instance)
        try:
            await stopping.run()
        except CancelledError:
            return
        except NotStopped as error:
            event = StopUnconfirmed(order.instance, error.message)
        except Exception as error:
            self._log.failure("the launcher of slot {slot} broke", slot=order.slot.name)
            event = StopUnconfirmed(order.instance, f"{type(error).__name__}: {error}")
        finally:
            self._stops.pop(order.instance, None)
        self.apply(event)

    def _retired(self, effect: Retired) -> None:
        watching = self._watches.pop(effect.instance, None)
        if watching is not None:
            watching.cancel()
        self._retiring.tell(effect.instance, effect)

    # Waiting

    def launch_of(self, instance: str) -> Deferred[Launch]:
        """Fire once the launcher has started this instance; fails with ``LaunchFailed`` when it could not.

        Fails with ``ShuttingDown`` when the router does not wait for it any longer. Cancelling stops nothing.
        """
        return self._growing.join(instance)

    def retirement_of(self, instance: str) -> Deferred[Retired]:
        """Fire when this instance is over, ``confirmed`` or not; everybody shares the one retirement.

        Fails with ``ShuttingDown`` when the router does not wait for it any longer. Cancelling stops nothing.
        """
        return self._retiring.join(instance)

    # The end

    def leave_running(self) -> None:
        """Let ``stop_replicas`` leave them running for the next router."""
        self._detach = True

    def stop_replicas(self) -> Deferred[None]:
        """Launch no more; drain and stop what was launched. Fires when each is confirmed or given up.

        Where they are left running, only launches and stops that are under way already are awaited.
        """
        owned = [] if self._detach else [member.instance for member in self._fleet.members() if member.owned]
        waiting: list[Deferred[Any]] = [self.retirement_of(instance) for instance in owned]
        self.apply(ShutdownBegan(self._detach))
        if self._detach:
            waiting += [_follow(launching) for launching in self._launches.values()]
            waiting += [_follow(running) for _, running in self._stops.values()]
        return DeferredList(waiting, consumeErrors=True).addCallback(lambda _: None)

    def hasten(self) -> None:
        """Stop what drains and kill what was told to stop; when neither is left to do, give up waiting."""
        before = dict(self._stops)
        self.apply(Hasten())
        begun = self._stops.keys() - before.keys()
        killed = [stopping.hasten() for stopping, _ in before.values()]
        if not begun and not any(killed):
            for _, running in before.values():
                running.cancel()
            self._dismiss()

    def _dismiss(self) -> None:
        """Tell those who wait for a retirement or a launch that it will not be awaited."""
        error = ShuttingDown("the router is shutting down and does not wait any longer")
        self._retiring.dismiss(error)
        self._growing.dismiss(error)

    def close(self) -> Deferred[None]:
        """Save the state and let go of the launchers; nothing is performed afterwards. Never fails."""
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        self._closed = True
        self._set_timer()
        self._dismiss()
        for watching in tuple(self._watches.values()):
            watching.cancel()
        held = DeferredList([_follow(deferred) for deferred in self._held], consumeErrors=True)
        await held.addTimeout(CLOSE_TIMEOUT, self._clock).addErrback(lambda _: None)
        self._save()
        for name, launcher in self._launchers.items():
            closing = maybeDeferred(launcher.close).addTimeout(CLOSE_TIMEOUT, self._clock)
            await closing.addErrback(self._not_closed, name)
        self._store.close()

    def _not_closed(self, failure: Failure, name: str) -> None:
        self._log.failure("letting go of host {host} failed", failure, host=name)


def _follow(deferred: Deferred[Any]) -> Deferred[None]:
    """Fire when another Deferred has a result; cancelling leaves that one alone."""
    follower: Deferred[None] = Deferred()

    def over(result: T) -> T:
        if not follower.called:
            follower.callback(None)
        return result

    deferred.addBoth(over)
    return follower
