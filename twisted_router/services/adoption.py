"""Takes recorded slots back at the start: first all of them, then one look at each, then launches."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred, DeferredList, TimeoutError, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from ..core.effects import Adopted, Event, Reclaimed, Unreachable
from ..core.fleet import Fleet
from ..core.members import Member
from ..interfaces import IStateStore
from .keeper import Keeper
from .presence import Knock, Presence
from .prober import Probe


class Adoption:
    """Brings back what an earlier router launched (manual: If the router restarts).

    :param probe: asks one replica for its health.
    :param knock: tells a replica that does not speak from one that is not there.
    :param now: monotonic seconds, as the fleet uses them; ``clock`` only wakes us.
    :param timeout: seconds one replica may take to answer; the others do not wait for it.
    """

    _log = Logger()

    def __init__(
        self,
        fleet: Fleet,
        keeper: Keeper,
        store: IStateStore,
        probe: Probe,
        knock: Knock,
        clock: IReactorTime,
        now: Callable[[], float],
        *,
        timeout: float,
    ) -> None:
        self._fleet = fleet
        self._keeper = keeper
        self._store = store
        self._probe = probe
        self._knock = knock
        self._clock = clock
        self._now = now
        self._timeout = timeout

    def reclaim(self) -> None:
        """Take every recorded slot, so that none is free by accident, and pin conversations again.

        Nothing is asked of anybody yet. Raises ``StateFileError``; then nothing was taken.
        """
        self._store.lock()
        record = self._store.load()
        self._fleet.restore_times(record)
        for slot in record.slots:
            self._keeper.apply(Reclaimed(slot))
        pinned = self._fleet.restore_pins(self._store.load_pins(), self._now())
        if record.slots or pinned:
            self._log.info(
                "taken back: slots {slots}, session pins {pins}", slots=len(record.slots), pins=pinned
            )

    def adopt(self) -> Deferred[None]:
        """Look at each reclaimed replica, all at once, then launch what is missing.

        Fires when each has its verdict and the initial launches have been ordered; never fails.
        """
        looks = [Deferred.fromCoroutine(self._look(member)) for member in self._fleet.to_adopt()]
        for look in looks:
            self._keeper.watch(look, "adopting a replica")
        return DeferredList(looks).addCallback(lambda _: self._launch_missing())

    def _launch_missing(self) -> None:
        self._keeper.perform(self._fleet.plan_initial(self._now()))

    async def _look(self, member: Member) -> None:
        self._keeper.apply(await self._verdict(member))

    async def _verdict(self, member: Member) -> Event:
        """Health is adopted; anything that speaks or at least listens is adopted, but not routable yet."""
        asking = maybeDeferred(self._probe, member).addTimeout(self._timeout, self._clock)
        try:
            status = await asking
        except Exception as error:
            why = "no answer in time" if isinstance(error, TimeoutError) else str(error) or repr(error)
        else:
            return Adopted(member.instance, status == 200)
        address = urlsplit(member.url)
        if await self._knock(address.hostname or "", address.port or 0) is Presence.PRESENT:
            return Adopted(member.instance, False)
        return Unreachable(member.instance, why)
