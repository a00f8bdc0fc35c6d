"""What persons may ask of the fleet: the behaviour behind the administrative API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from twisted.internet.defer import Deferred, fail

from ..core.effects import Grow, Launch, ReleaseSlot, Retire, Retired, SessionFinished
from ..core.fleet import Fleet
from ..core.records import SlotRecord
from ..core.slots import Slot
from ..errors import Conflict, RouterError, StopUnconfirmed
from ..interfaces import ILauncher
from .keeper import Keeper
from .presence import Knock, remains


class Admin:
    """Grows and shrinks the fleet, frees reserved slots, ends sessions.

    :param slots: every declared slot.
    :param launchers: by the name of their host.
    :param now: monotonic seconds, as the fleet uses them.
    """

    def __init__(
        self,
        fleet: Fleet,
        keeper: Keeper,
        slots: Iterable[Slot],
        launchers: Mapping[str, ILauncher],
        knock: Knock,
        now: Callable[[], float],
    ) -> None:
        self._fleet = fleet
        self._keeper = keeper
        self._slots = {slot.name: slot for slot in slots}
        self._launchers = launchers
        self._knock = knock
        self._now = now

    def grow(self, slot: str | None = None) -> Deferred[Launch]:
        """Launch one more replica, on ``slot`` or wherever there is room.

        Fires once the launcher has started it. Fails with ``Conflict``, ``NotFound`` or ``ShuttingDown``
        when none can be, and with ``LaunchFailed`` when the launcher could not. Cancelling stops nothing.
        """
        try:
            effects = self._fleet.apply(Grow(slot), self._now())
        except RouterError as error:
            return fail(error)
        (order,) = (effect for effect in effects if isinstance(effect, Launch))
        waiter = self._keeper.launch_of(order.instance)
        self._keeper.perform(effects)
        return waiter

    def retire(self, name: str) -> Deferred[Retired]:
        """Drain and stop a replica that this router launched; everybody who asks shares one retirement.

        Fires when it is over, ``confirmed`` or not. Fails with ``NotFound`` or ``Conflict`` when there is
        nothing to retire, ``ShuttingDown`` when the router does not wait for it any longer. Cancelling
        gives up waiting, the retirement goes on.
        """
        try:
            instance = self._fleet.retirable(name)
        except RouterError as error:
            return fail(error)
        waiter = self._keeper.retirement_of(instance)
        self._keeper.apply(Retire(instance))
        return waiter

    def release(self, slot: str, instance: str, force: bool = False) -> Deferred[None]:
        """Free a reserved slot on a person's word, after another look at its address, lock and processes.

        :param force: do not look.

        Fails with ``Conflict`` when anything is still there or cannot be looked at, or when the slot is not
        reserved for ``instance``; with ``NotFound`` when there is no such slot.
        """
        return Deferred.fromCoroutine(self._release(slot, instance, force))

    def end_session(self, session: str) -> None:
        """Forget where a conversation lives."""
        self._keeper.apply(SessionFinished(session))

    async def _release(self, slot: str, instance: str, force: bool) -> None:
        held = self._reservation(slot, instance)
        if held is not None and not force and (left := await self._left(held)) is not None:
            raise Conflict(f"slot {slot} is not released: {left}; see to it, or send force")
        self._keeper.apply(ReleaseSlot(slot, instance))

    def _reservation(self, slot: str, instance: str) -> SlotRecord | None:
        """Find what is known of a reserved slot; None leaves it to the fleet to say what is wrong."""
        unconfirmed = self._fleet.snapshot(self._now()).capacity.unconfirmed
        if not any((view.slot, view.instance) == (slot, instance) for view in unconfirmed):
            return None
        slots = self._fleet.record(self._now()).slots
        return next((held for held in slots if (held.slot, held.instance) == (slot, instance)), None)

    async def _left(self, held: SlotRecord) -> str | None:
        """Say what is still on a reserved slot, None when nothing is to be seen of it."""
        slot = self._slots.get(held.slot)
        launcher = None if slot is None else self._launchers[slot.host]
        try:
            left = await remains(self._knock, held.address, held.port, launcher, slot)
            if left is not None or launcher is None or slot is None:
                return left
            if await launcher.is_running(slot, held.instance, held.handle):
                return f"processes of instance {held.instance} are left"
        except StopUnconfirmed as error:
            return error.message
        return None
