"""Session ids, and the pins that say which replica a conversation lives on."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b

from attrs import define

from .records import PinRecord

#: How many pins are kept at most; the least recently used go first (manual: Limits).
PIN_CAP = 100_000

_SAFE = re.compile(rb"[A-Za-z0-9._:-]{1,128}").fullmatch


def usable_id(raw: bytes) -> str | None:
    """Turn what a client sent into an id that is safe in a header, a log line and a dict.

    Safe ids stay as they are. Longer or odder ones become a digest of themselves, so that the same wish
    always gives the same id and affinity holds; blank ones count as absent (None).
    """
    raw = raw.strip()
    if not raw:
        return None
    if _SAFE(raw):
        return raw.decode("ascii")
    return blake2b(raw, digest_size=16).hexdigest()


@define(eq=False)
class Pin:
    """One conversation's home.

    :ivar home: the instance it is pinned to.
    :ivar last: seconds (monotonic) of its last use, an answer's end included.
    :ivar inflight: requests of this conversation that have not ended; a pin in use never expires.
    """

    session: str
    home: str
    last: float
    inflight: int = 0

    def record(self, now: float) -> PinRecord:
        """Freeze it; one that has been used since ``now`` is not idle."""
        return PinRecord(self.session, self.home, max(0.0, now - self.last))


class Pins:
    """All pins, ordered by last use, so that expiry and eviction only ever look at the old end.

    :param ttl: seconds of idleness after which a pin is gone; expired strictly beyond it.
    :param cap: how many pins to keep at most.
    """

    def __init__(self, ttl: float, cap: int = PIN_CAP) -> None:
        self._ttl = ttl
        self._cap = cap
        self._pins: OrderedDict[str, Pin] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pins)

    def __iter__(self) -> Iterator[Pin]:
        return iter(self._pins.values())

    def newest(self) -> Pin | None:
        """Return the pin that was used last."""
        return next(reversed(self._pins.values()), None)

    def copied(self) -> list[Pin]:
        """Return every pin in no particular order: half a millisecond for 100,000, iterating takes 14."""
        return list(dict.values(self._pins))

    def find(self, session: str, now: float) -> Pin | None:
        """Return the live pin of a session and count this as a use of it."""
        pin = self._pins.get(session)
        if pin is None:
            return None
        if self._is_expired(pin, now):
            del self._pins[session]
            return None
        self.touch(pin, now)
        return pin

    def place(self, session: str, home: str, now: float) -> Pin:
        """Pin a session to ``home``, wherever it was before; evict the least recently used beyond the cap."""
        pin = self._pins.get(session)
        if pin is not None:
            pin.home = home
            self.touch(pin, now)
            return pin
        pin = self._pins[session] = Pin(session, home, now)
        if len(self._pins) > self._cap:
            self.sweep(now)
            for _ in range(len(self._pins)):
                if len(self._pins) <= self._cap:
                    break
                oldest = next(iter(self._pins.values()))
                if oldest.inflight and oldest is not pin:
                    self._pins.move_to_end(oldest.session)
                else:
                    del self._pins[oldest.session]
        return pin

    def touch(self, pin: Pin, now: float) -> None:
        """Count a use of ``pin``; one that was released or evicted meanwhile stays gone."""
        pin.last = now
        if self._pins.get(pin.session) is pin:
            self._pins.move_to_end(pin.session)

    def release(self, session: str) -> bool:
        """Forget one session; tell whether it was pinned."""
        return self._pins.pop(session, None) is not None

    def release_home(self, home: str) -> int:
        """Forget every session pinned to ``home``; return how many there were."""
        gone = [pin.session for pin in self._pins.values() if pin.home == home]
        for session in gone:
            del self._pins[session]
        return len(gone)

    def sweep(self, now: float) -> int:
        """Forget every expired pin; return how many there were. Costs only what it removes or renews."""
        removed = 0
        while self._pins:
            oldest = next(iter(self._pins.values()))
            if now - oldest.last <= self._ttl:
                break
            if oldest.inflight:
                self.touch(oldest, now)
            else:
                del self._pins[oldest.session]
                removed += 1
        return removed

    def restore(self, session: str, home: str, last: float) -> None:
        """Take in a pin from before; ``last`` is no later than that of any pin already here.

        A newer pin of the session stays; beyond the cap nothing is taken in.
        """
        if session not in self._pins and len(self._pins) < self._cap:
            self._pins[session] = Pin(session, home, last)
            self._pins.move_to_end(session, last=False)

    def _is_expired(self, pin: Pin, now: float) -> bool:
        return not pin.inflight and now - pin.last > self._ttl
