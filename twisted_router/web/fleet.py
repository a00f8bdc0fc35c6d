"""``/replicas``, ``/slots`` and ``/sessions``: what a person, or a script for one, asks of the fleet."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol, cast

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.web.server import Request

from .. import errors
from ..config.model import authority
from ..core.effects import Launch, Retired
from ..core.snapshot import CapacityView, FleetView, ReplicaView
from . import problems
from .auth import Guard
from .status import answer, replica_json


class Admin(Protocol):
    """The behaviour behind these calls; cancelling a Deferred gives up waiting and stops nothing."""

    def grow(self, slot: str | None = None) -> Deferred[Launch]:
        """Launch one more; fires once its process exists."""

    def retire(self, name: str) -> Deferred[Retired]:
        """Drain and stop; fires when it is over."""

    def release(self, slot: str, instance: str, force: bool = False) -> Deferred[None]:
        """Free a reserved slot."""

    def end_session(self, session: str) -> None:
        """Forget where a conversation lives."""


def admin_json(replica: ReplicaView) -> dict[str, Any]:
    """One replica in ``/replicas``."""
    return {
        **replica_json(replica),
        "draining": replica.draining,
        "owned": replica.owned,
        "instance": replica.instance,
        "phase_seconds": _rounded(replica.age),
        "reason": replica.why or None,
        "launch_seconds": _rounded(replica.elapsed),
        "launch_eta_seconds": _rounded(replica.eta),
        "retry_in_seconds": _rounded(replica.retry_in),
        "losses": replica.losses,
    }


def capacity_json(capacity: CapacityView) -> dict[str, Any]:
    """What is left, and which slots need a person (manual: Growing and shrinking at runtime)."""
    return {
        "owned": capacity.owned,
        "ceiling": capacity.ceiling,
        "free_slots": list(capacity.free_slots),
        "unconfirmed": [
            {
                "slot": held.slot,
                "reason": held.reason.value,
                "instance": held.instance,
                "detail": held.why or None,
                "seconds": _rounded(held.age),
                "devices": list(held.devices),
                "address": authority(held.address, held.port),
                "release": f"POST /slots/{held.slot}/release",
            }
            for held in capacity.unconfirmed
        ],
        "abandoned": list(capacity.abandoned),
        "failures": [
            {
                "slot": failure.slot,
                "instance": failure.instance,
                "reason": failure.why,
                "log_tail": failure.tail,
                "seconds_ago": _rounded(failure.age),
            }
            for failure in capacity.failures
        ],
    }


class FleetCalls:
    """The administrative calls; every one of them may raise a ``RouterError``.

    :param guard: decides who may make them. Ending a session needs no token: its id is the proof, and all it
        does is what ``X-Dynamo-Session-Final`` does.
    """

    def __init__(self, admin: Admin, snapshot: Callable[[], FleetView], guard: Guard) -> None:
        self._admin = admin
        self._snapshot = snapshot
        self._guard = guard

    def listing(self, request: Request) -> bytes:
        """``GET /replicas``: the fleet, and what is left."""
        self._guard.check(request)
        view = self._snapshot()
        return answer(
            request,
            {
                "replicas": [admin_json(replica) for replica in view.replicas],
                "capacity": capacity_json(view.capacity),
            },
        )

    def grow(self, request: Request) -> Deferred[bytes]:
        """``POST /replicas``: 202 once the launch is under way, 409 when the pool is full, 502 on failure."""
        self._guard.check(request)
        slot = document(request).get("slot")
        if slot is not None and not isinstance(slot, str):
            raise errors.BadRequest("'slot' must be the name of a slot")

        def launched(order: Launch) -> bytes:
            return answer(
                request,
                {
                    "name": order.slot.name,
                    "url": order.slot.url,
                    "instance": order.instance,
                    "ready": False,
                    "message": "the replica is starting and takes requests once it reports ready",
                },
                202,
            )

        return self._settled(request, self._admin.grow(slot).addCallback(launched))

    def retire(self, request: Request, name: str) -> Deferred[bytes]:
        """``DELETE /replicas/{name}``: 200 once the stop is confirmed, 500 when it cannot be."""
        self._guard.check(request)

        def over(retired: Retired) -> bytes:
            if not retired.confirmed:
                raise errors.StopUnconfirmed(
                    f"replica {name} is out of rotation, but its stop is not confirmed: {retired.why}; "
                    f"its slot stays reserved until POST /slots/{name}/release"
                )
            capacity = capacity_json(self._snapshot().capacity)
            return answer(request, {"name": name, "stopped": True, "capacity": capacity})

        return self._settled(request, self._admin.retire(name).addCallback(over))

    def release(self, request: Request, slot: str) -> Deferred[bytes]:
        """``POST /slots/{slot}/release``: frees a reserved slot on a person's word."""
        self._guard.check(request)
        wish = document(request)
        instance, force = wish.get("instance"), wish.get("force", False)
        if not isinstance(instance, str) or not isinstance(force, bool):
            raise errors.BadRequest(
                'send {"instance": "..."} with the instance that GET /replicas shows under '
                'capacity.unconfirmed, and "force": true to skip the look'
            )

        def released(_: None) -> bytes:
            capacity = capacity_json(self._snapshot().capacity)
            return answer(request, {"slot": slot, "released": True, "capacity": capacity})

        return self._settled(request, self._admin.release(slot, instance, force).addCallback(released))

    def end_session(self, request: Request, session: str | None) -> bytes:
        """``DELETE /sessions/{id}`` and ``POST /finish_session``."""
        if session is None:
            named = (request.args or {}).get(b"session_id", [b""])[0].decode("utf-8", "replace")
            session = named or document(request).get("session_id")
        if not isinstance(session, str) or not session:
            raise errors.BadRequest("name the session: ?session_id=... or a JSON body with session_id")
        self._admin.end_session(session)
        return answer(request, {"session_id": session, "released": True})

    def _settled(self, request: Request, waiting: Deferred[bytes]) -> Deferred[bytes]:
        """Turn a failure into an answer that shows the capacity too; a caller that left gets none."""

        def failed(failure: Failure) -> bytes:
            failure.trap(errors.RouterError)
            error = cast(errors.RouterError, failure.value)
            return problems.answer(request, error, capacity=capacity_json(self._snapshot().capacity))

        return waiting.addErrback(failed)


def document(request: Request) -> dict[str, Any]:
    """Read an optional JSON object from the body.

    :raises BadRequest: there is a body and it is none.
    """
    content = request.content.read() if request.content is not None else b""
    if not content.strip():
        return {}
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise errors.BadRequest("the body must be a JSON object, or empty")
    return parsed


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
