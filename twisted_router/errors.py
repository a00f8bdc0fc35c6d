"""Every exception this project raises on purpose, with the HTTP status and code a client sees.

The codes are the strings OpenAI clients already meet in front of other routers; ``web.problems`` alone
turns an exception into bytes.
"""

from __future__ import annotations


class RouterError(Exception):
    """What a client of the router is told: a sentence that names the thing, the fact and the way out."""

    status = 500
    type = "server_error"
    code = "internal_error"
    #: Whole seconds for a ``Retry-After`` header, or None to send none.
    retry_after: int | None = None

    @property
    def message(self) -> str:
        """The sentence this error was raised with."""
        return str(self.args[0]) if self.args else self.code


class BadRequest(RouterError):
    """The request cannot be understood or relayed safely."""

    status = 400
    type = "invalid_request_error"
    code = "bad_request"


class Unauthorized(RouterError):
    """An administrative call without the right bearer token."""

    status = 401
    type = "invalid_request_error"
    code = "invalid_api_key"


class Forbidden(RouterError):
    """An administrative call from where none is allowed."""

    status = 403
    type = "invalid_request_error"
    code = "forbidden"


class NotFound(RouterError):
    """No such route, replica, slot or session."""

    status = 404
    type = "invalid_request_error"
    code = "not_found"


class MethodNotAllowed(RouterError):
    """The path exists, the method does not."""

    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"


class Conflict(RouterError):
    """What is asked for contradicts the present state of the fleet."""

    status = 409
    type = "invalid_request_error"
    code = "conflict"


class BodyTooLarge(RouterError):
    """One upload exceeds ``--max-body``."""

    status = 413
    type = "invalid_request_error"
    code = "body_too_large"


class HeadTooLarge(RouterError):
    """A request head exceeds what the router reads."""

    status = 431
    type = "invalid_request_error"
    code = "head_too_large"


class RequestTimedOut(RouterError):
    """A client took too long to send its request."""

    status = 408
    type = "invalid_request_error"
    code = "request_timeout"


class NotImplementedHere(RouterError):
    """A feature of HTTP that is not relayed."""

    status = 501
    type = "invalid_request_error"
    code = "not_implemented"


class Overloaded(RouterError):
    """All uploads together would exceed ``--max-body-total``, or descriptors run short."""

    status = 503
    code = "overloaded"
    retry_after = 1


class QueueFull(RouterError):
    """Every routable replica is at ``--max-outstanding`` and nobody more may wait."""

    status = 429
    type = "rate_limit_error"
    code = "queue_full"
    retry_after = 1


class QueueTimedOut(RouterError):
    """A request has waited for a replica as long as ``--queue-timeout`` allows."""

    status = 503
    code = "queue_timeout"
    retry_after = 1


class NoReplicaReady(RouterError):
    """Nothing is routable."""

    status = 503
    code = "no_replica_available"
    retry_after = 1


class ShuttingDown(RouterError):
    """The router is stopping and takes no new work."""

    status = 503
    code = "shutting_down"
    retry_after = 1


class ReplicaUnreachable(RouterError):
    """No connection to the replica could be made; nothing of the request has reached it.

    :ivar why: what kept it from being made, in a few words, or empty.
    """

    status = 502
    code = "upstream_connect_failed"

    def __init__(self, message: str, why: str = "") -> None:
        super().__init__(message)
        self.why = why


class ReplicaRefused(ReplicaUnreachable):
    """The replica's address refused the connection outright: nobody listens there."""


class ReplicaConnectTimedOut(ReplicaUnreachable):
    """No connection within ``--connect-timeout``: the replica's machine is away, or too busy to accept."""


class ReplicaReset(RouterError):
    """The replica closed, reset or answered nonsense before its response head was complete."""

    status = 502
    code = "upstream_reset"


class ReplicaCut(RouterError):
    """The replica's answer broke off after its head; the client's connection has to break as well."""

    status = 502
    code = "upstream_cut"


class ReplicaTimedOut(RouterError):
    """The exchange took longer than ``--request-timeout``."""

    status = 504
    type = "timeout_error"
    code = "upstream_timeout"


class LaunchFailed(RouterError):
    """A replica could not be started; the text carries the reason and the last lines it wrote."""

    status = 502
    code = "launch_failed"


class LaunchUncertain(LaunchFailed):
    """A start that leaves open whether a process exists; only a confirmed stop settles it."""

    code = "launch_uncertain"


class StopUnconfirmed(RouterError):
    """A replica was told to stop and nothing proves that it did."""

    status = 500
    code = "stop_unconfirmed"


class StateFileError(Exception):
    """The state file cannot be read, locked or written; the text says which, why and what to do."""


class StateFileBusy(StateFileError):
    """Another router has the state file."""


class ConfigError(Exception):
    """A configuration file that cannot be used, with every problem found in it.

    :ivar problems: complete lines for a person, ``file:line:column: path: expected ..., got ...``.
    """

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
