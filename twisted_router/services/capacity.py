"""Asks replicas how many tokens their caches hold, for a gate that has to know."""

from __future__ import annotations

import re
from collections.abc import Callable

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from ..core.fleet import Fleet
from ..core.members import Member

#: Seconds between two looks for replicas that have not told yet.
INTERVAL = 15.0

#: Seconds one replica may take to tell.
TIMEOUT = 5.0

#: Fires with the body of a replica's ``/metrics``.
Fetch = Callable[[Member], Deferred[bytes]]

_CONFIG = re.compile(rb"^vllm:cache_config_info\{([^}\n]*)\}", re.MULTILINE)
_SETTING = re.compile(rb'(num_gpu_blocks|block_size)="(\d{1,9})"')


def read_capacity(exposition: bytes) -> int | None:
    """Return the tokens that vLLM's ``cache_config_info`` amounts to, or None where it is not told."""
    config = _CONFIG.search(exposition)
    settings = dict(_SETTING.findall(config[1])) if config is not None else {}
    if len(settings) < 2:
        return None
    return int(settings[b"num_gpu_blocks"]) * int(settings[b"block_size"]) or None


class CapacityReader(Service):
    """Asks each instance until it has told once; one that never tells costs a small request now and then."""

    _log = Logger()

    def __init__(self, fleet: Fleet, fetch: Fetch, clock: IReactorTime) -> None:
        self._fleet = fleet
        self._fetch = fetch
        self._clock = clock
        self._told: set[str] = set()
        self._asking: dict[str, Deferred[None]] = {}
        self._loop = LoopingCall(self._look)
        self._loop.clock = clock

    def startService(self) -> None:
        """Ask now and every interval."""
        super().startService()
        self._loop.start(INTERVAL).addErrback(self._swallow, "asking for capacities")

    def stopService(self) -> Deferred[None]:
        """Ask no more."""
        super().stopService()
        if self._loop.running:
            self._loop.stop()
        for asking in tuple(self._asking.values()):
            asking.cancel()
        return succeed(None)

    def _look(self) -> None:
        members = tuple(self._fleet.members())
        self._told &= {member.instance for member in members}
        for member in members:
            if member.ready and member.instance not in self._told and member.instance not in self._asking:
                self._ask(member)

    def _ask(self, member: Member) -> None:
        asking = self._fetch(member).addTimeout(TIMEOUT, self._clock)
        told = asking.addCallback(self._tell, member).addErrback(self._unanswered, member)
        if not told.called:
            self._asking[member.instance] = told
            told.addBoth(lambda _: self._asking.pop(member.instance, None))

    def _tell(self, exposition: bytes, member: Member) -> None:
        tokens = read_capacity(exposition)
        if tokens is not None:
            self._told.add(member.instance)
            self._fleet.report_capacity(member.instance, tokens)
            self._log.info("replica {name} caches {tokens} tokens", name=member.name, tokens=tokens)

    def _unanswered(self, failure: Failure, member: Member) -> None:
        self._log.debug(
            "replica {name} did not tell its capacity: {why}", name=member.name, why=failure.getErrorMessage()
        )

    def _swallow(self, failure: Failure, what: str) -> None:
        self._log.failure("{what} failed", failure, what=what)
