"""The Klein tree: what is mounted where, and how errors become answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from klein import Klein
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.iweb import IRequest
from twisted.web.resource import IResource
from twisted.web.server import Request
from werkzeug.exceptions import HTTPException
from werkzeug.exceptions import MethodNotAllowed as WerkzeugMethodNotAllowed

from .. import errors
from ..core.snapshot import FleetView
from . import problems
from .fleet import FleetCalls
from .status import answer, health_json

#: Renders the metrics for an ``Accept`` header; returns content type and body.
MetricsRenderer = Callable[[str], tuple[str, bytes]]


class RouterApp:
    """The router's own endpoints around the relay at ``/v1/``.

    :param snapshot: freezes the fleet.
    :param is_closing: whether the router takes no new work any more.
    """

    app = Klein()
    _log = Logger()

    def __init__(
        self,
        relay: IResource,
        snapshot: Callable[[], FleetView],
        metrics: MetricsRenderer,
        fleet: FleetCalls,
        is_closing: Callable[[], bool],
    ) -> None:
        self._relay = relay
        self._snapshot = snapshot
        self._metrics = metrics
        self._fleet = fleet
        self._is_closing = is_closing

    def resource(self) -> IResource:
        """The root of the tree."""
        return cast(IResource, self.app.resource())

    @app.route("/v1/", branch=True)
    def v1(self, request: Request) -> IResource:
        """Everything below belongs to the replicas."""
        return self._relay

    @app.route("/health", methods=["GET", "HEAD"])
    def health(self, request: Request) -> bytes:
        """The state of the whole table; 503 when nothing is routable."""
        view = self._snapshot()
        return answer(request, health_json(view), 200 if view.ready else 503)

    @app.route("/liveness", methods=["GET", "HEAD"])
    @app.route("/livez", methods=["GET", "HEAD"])
    @app.route("/live", methods=["GET", "HEAD"])
    @app.route("/ping", methods=["GET", "HEAD"])
    def liveness(self, request: Request) -> bytes:
        """200 as long as the reactor turns."""
        return answer(request, {"status": "alive"})

    @app.route("/readiness", methods=["GET", "HEAD"])
    @app.route("/readyz", methods=["GET", "HEAD"])
    def readiness(self, request: Request) -> bytes:
        """Whether a load balancer should send anything here."""
        if self._is_closing():
            return answer(request, {"status": "stopping"}, 503)
        ready = self._snapshot().ready
        return answer(request, {"status": "ready" if ready else "no_replicas"}, 200 if ready else 503)

    @app.route("/metrics", methods=["GET", "HEAD"])
    def metrics(self, request: Request) -> bytes:
        """Prometheus exposition, OpenMetrics when asked for."""
        kind, content = self._metrics((request.getHeader(b"accept") or b"").decode("ascii", "replace"))
        request.setHeader(b"Content-Type", kind.encode("ascii"))
        return content

    @app.route("/replicas", methods=["GET", "HEAD"])
    def replicas(self, request: Request) -> bytes:
        """The fleet, and what is left."""
        return self._fleet.listing(request)

    @app.route("/replicas", methods=["POST"])
    def grow(self, request: Request) -> Deferred[bytes]:
        """Launch one more replica."""
        return self._fleet.grow(request)

    @app.route("/replicas/<name>", methods=["DELETE"])
    def retire(self, request: Request, name: str) -> Deferred[bytes]:
        """Drain and stop a replica."""
        return self._fleet.retire(request, name)

    @app.route("/slots/<slot>/release", methods=["POST"])
    def release(self, request: Request, slot: str) -> Deferred[bytes]:
        """Free a reserved slot."""
        return self._fleet.release(request, slot)

    @app.route("/sessions/<session>", methods=["DELETE"])
    def end_session(self, request: Request, session: str) -> bytes:
        """Forget where a conversation lives."""
        return self._fleet.end_session(request, session)

    @app.route("/finish_session", methods=["POST"])
    def finish_session(self, request: Request) -> bytes:
        """Forget where a conversation lives, as other routers' clients ask for it."""
        return self._fleet.end_session(request, None)

    @app.handle_errors(errors.RouterError)
    def router_error(self, request: IRequest, failure: Failure) -> bytes:
        """An error of ours."""
        return problems.answer(request, cast(errors.RouterError, failure.value))

    @app.handle_errors(HTTPException)
    def routing_error(self, request: IRequest, failure: Failure) -> bytes:
        """No such path, or not with this method."""
        path = (request.path or b"?").decode("ascii", "replace")
        if isinstance(failure.value, WerkzeugMethodNotAllowed):
            allowed = ", ".join(sorted(failure.value.valid_methods or ()))
            request.setHeader(b"Allow", allowed.encode("ascii"))
            error: errors.RouterError = errors.MethodNotAllowed(f"{path} answers to {allowed} only")
        else:
            error = errors.NotFound(
                f"nothing is served at {path}; model requests go below /v1/, the fleet's state is at /health"
            )
        return problems.answer(request, error)

    @app.handle_errors(Exception)
    def internal_error(self, request: IRequest, failure: Failure) -> bytes:
        """A fault of ours: the log gets the traceback, the client a sentence."""
        self._log.failure("answering {path} failed", failure, path=request.path)
        return problems.answer(request, errors.RouterError("the router failed to answer; its log says why"))
