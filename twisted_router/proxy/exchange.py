"""One proxied request from its lease to its outcome: every timer and every abort rule of it."""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from ..core.effects import NO_USAGE, ConnectRefused, Ending, Event, RequestEnd, SessionFinished, Turn
from ..core.fleet import Fleet
from ..core.members import Choice, Lease, Member
from ..core.prefix import read_prompt
from ..core.wish import Wish
from ..errors import (
    NoReplicaReady,
    Overloaded,
    QueueFull,
    ReplicaRefused,
    ReplicaReset,
    ReplicaTimedOut,
    ReplicaUnreachable,
    RouterError,
    ShuttingDown,
)
from ..interfaces import IRecorder
from .client import RelayResponse, ReplicaClient
from .deadlines import Deadlines
from .downstream import Downstream
from .framing import BadResponse, CloseBody
from .head import SessionFinder, asks_for_stream
from .headers import VerbatimHeaders, for_client, for_replica
from .holding import Holding, Ticket
from .usage import UsageReader
from .wire import WireResponse

_NO_FIELDS = VerbatimHeaders([])

#: Methods whose requests carry a length even when they have no body.
_BODY_METHODS = frozenset((b"POST", b"PUT", b"PATCH"))


@frozen
class Front:
    """What every exchange needs; one for the whole router.

    :ivar clients: the treq client of a replica.
    :ivar enter: lets a request in; takes what breaks it off, ``ShuttingDown`` is raised when none is.
    :ivar leave: takes the same at the request's end.
    :ivar apply: takes an event to the fleet and sees to the effects.
    :ivar deadlines: the queue of ``--request-timeout``.
    :ivar seconds: the monotonic clock.
    :ivar mint: makes a new session id.
    :ivar holding: keeps requests that have to wait for a replica; None where none ever waits.
    :ivar record: is told of every served request what it takes to replay it (``--record-trace``).
    :ivar receipts: whether answers say which replica was chosen and why.
    """

    fleet: Fleet
    clients: Callable[[Member], ReplicaClient]
    enter: Callable[[Callable[[], object]], None]
    leave: Callable[[Callable[[], object]], None]
    apply: Callable[[Event], object]
    recorder: IRecorder
    finder: SessionFinder
    deadlines: Deadlines
    seconds: Callable[[], float]
    mint: Callable[[], str]
    receipts: bool = False
    holding: Holding | None = None
    record: Callable[[Turn], None] | None = None


def _receipt(choice: Choice) -> bytes:
    """Say in the answer's head which replica gave it, and by which rule."""
    reason = choice.reason
    name = choice.member.name.encode("ascii", "replace")
    return b"X-Router-Replica: %b\r\nX-Router-Affinity: %b; reason=%b" % (
        name,
        reason.affinity.value.encode("ascii"),
        reason.value.encode("ascii"),
    )


class Exchange:
    """Relays one request and its answer; a ``wire.Sink`` for the answer's body.

    It ends exactly once, in ``_end``: that is where the lease goes back and the outcome is told.
    """

    _log = Logger()
    # Set once the request is looked at, in ``start``.
    wish: Wish
    _headers = _NO_FIELDS
    _body = b""
    _size = 0
    _is_final = False

    def __init__(self, front: Front, request: Downstream) -> None:
        self._front = front
        self._request = request
        self._began = front.seconds()
        self._first_byte: float | None = None
        self._sent = 0
        self._usage: UsageReader | None = None
        self._status = 0
        self._session = ""
        self._choice: Choice | None = None
        self._lease: Lease | None = None
        self._sending: Deferred[RelayResponse] | None = None
        self._response: WireResponse | None = None
        self._head: bytes | None = None  # ours to the client, waiting for the first bytes of the body
        self._ended = False
        self._ticket: Ticket | None = None
        self._by_close = False
        self._moved = False

    def start(self) -> None:
        """Choose a replica and send the request; everything up to the lease happens at once."""
        front, request = self._front, self._request
        front.recorder.started()
        self._body = request.take_body()
        found = front.finder.find(request.requestHeaders, self._body)
        self._session = front.mint() if found is None else found
        self._headers = for_replica(request.requestHeaders)
        finals = request.requestHeaders.getRawHeaders(b"x-dynamo-session-final")
        self._is_final = finals is not None and finals[0].strip().lower() == b"true"
        reads = front.fleet.wants_prompt or front.record is not None
        prompt = read_prompt(self._body) if reads else None
        self._size = len(self._body)
        self.wish = Wish(self._session, found, prompt, asks_for_stream(self._body) if prompt else True)
        try:
            front.enter(self.cut_off)
            self._ticket = front.holding.ask(self) if front.holding is not None else None
        except (ShuttingDown, QueueFull) as error:
            self._fail(error, Ending.REJECTED)
            return
        request.notifyFinish().addErrback(self._client_gone)
        front.deadlines.arm(self._timed_out)
        if self._ticket is None:
            self.resume()

    def resume(self) -> None:
        """Go on to a replica, at once or after having waited for one."""
        front = self._front
        self._ticket = None
        try:
            choice = front.fleet.pick(self.wish, front.seconds())
        except (NoReplicaReady, QueueFull) as error:
            self.refuse(error)
        else:
            self._dispatch(choice)

    def refuse(self, error: RouterError) -> None:
        """Answer that there is no replica for this request."""
        self._ticket = None
        self._fail(error, Ending.REJECTED)

    def _dispatch(self, choice: Choice) -> None:
        front, request = self._front, self._request
        self._choice = choice
        self._lease = front.fleet.lease(choice, front.seconds)
        body = self._body if self._body or request.method in _BODY_METHODS else None
        try:
            sending = front.clients(choice.member).request(
                request.method, request.uri, headers=self._headers, data=body
            )
        except Exception:  # a fault of ours, which must not keep the lease
            self._crashed(Failure())
            return
        self._sending = sending
        sending.addCallbacks(self._answered, self._unanswered).addErrback(self._crashed)

    # What the replica does

    def _answered(self, response: RelayResponse) -> None:
        """The replica's head has come: write ours, then relay the body."""
        self._sending = None
        # The request cannot be sent again; a long answer must not keep it.
        self._body = b""
        self._headers = _NO_FIELDS
        self._request.forget_head()
        if self._ended:
            response.original.producer.stopProducing()
            return
        request, original = self._request, response.original
        http11 = request.clientproto == b"HTTP/1.1"
        try:
            follow, framing = original.framing(http11=http11)
        except BadResponse as error:
            original.producer.stopProducing()
            self._fail(ReplicaReset(f"replica {self._name} answered with bad framing: {error}"), Ending.RESET)
            return
        self._response = original
        self._by_close = not framing or isinstance(follow, CloseBody)
        head = original.head
        self._status = head.status
        lines = [b"HTTP/1.1 %d %b" % (head.status, head.reason), *for_client(head), *framing]
        lines.append(b"X-Session-Id: " + self._session.encode("ascii"))
        if self._front.receipts and self._choice is not None:
            lines.append(_receipt(self._choice))
        if not request.is_persistent():
            lines.append(b"Connection: close")
        lines.append(b"\r\n")
        self._head = b"\r\n".join(lines)
        request.registerProducer(original.producer, True)
        original.relay(self, follow)
        if self._head is not None:
            self._flush_head()

    def body_data(self, data: bytes) -> None:
        """Relay a piece of the body, the first one together with the head."""
        if self._first_byte is None:
            self._began_to_answer()
        if self._usage is not None:
            self._usage.add(data)
        self._sent += len(data)
        if self._head is not None:
            data, self._head = self._head + data, None
        self._request.send(data)

    def _began_to_answer(self) -> None:
        now = self._front.seconds()
        self._first_byte = now - self._began
        trace = self._lease.trace if self._lease is not None else None
        if 200 <= self._status < 300:
            if trace is not None:
                trace.first_byte(now)
            if trace is not None or self._front.record is not None:
                self._usage = UsageReader()

    def body_done(self) -> None:
        """The answer is complete."""
        if self._head is not None:
            self._flush_head()
        self._request.unregisterProducer()
        self._response = None
        self._end(Ending.DONE)
        self._request.complete()

    def body_cut(self, error: RouterError) -> None:
        """The replica's answer broke off: the client must not take what it has for the whole."""
        self._request.unregisterProducer()
        self._response = None
        if self._head is not None:
            self._head = None
            self._fail(ReplicaReset(f"replica {self._name}: {error}"), Ending.RESET)
        else:
            self._end(Ending.CUT)
            self._request.break_off(reset=self._by_close)

    def _unanswered(self, failure: Failure) -> None:
        """No head came; a refused connection may go to one other replica, since nothing was sent."""
        self._sending = None
        if self._ended:
            return
        error = failure.value
        if isinstance(error, ReplicaRefused) and self._choice is not None:
            self._front.apply(ConnectRefused(self._choice.member.instance))
            if self._move(self._choice):
                return
        if isinstance(error, Overloaded):
            self._fail(error, Ending.REJECTED)
        elif isinstance(error, ReplicaUnreachable):
            self._fail(error, Ending.UNREACHABLE)
        elif isinstance(error, RouterError):
            self._fail(ReplicaReset(f"replica {self._name}: {error}"), Ending.RESET)
        else:
            self._crashed(failure)

    def _move(self, refused: Choice) -> bool:
        if self._moved or self._lease is None:
            return False
        self._lease.release()
        other = self._front.fleet.pick_other(refused, self._front.seconds())
        if other is None:
            return False
        self._moved = True
        self._front.recorder.connect_moved(refused.member.name, other.member.name)
        self._dispatch(other)
        return True

    # What the client and the clock do

    def _client_gone(self, _: Failure) -> None:
        """Stop the replica at once."""
        if not self._ended:
            self._status = self._status or 499
            self._end(Ending.CLIENT_GONE)
            self._stop_replica()

    def _timed_out(self) -> None:
        """``--request-timeout`` has passed."""
        late = f"replica {self._name} did not answer within {self._front.deadlines.seconds:g} seconds"
        self._give_up(ReplicaTimedOut(late), Ending.TIMED_OUT)

    def cut_off(self) -> None:
        """The router stops and cannot wait for this answer."""
        self._give_up(ShuttingDown("the router is shutting down"), Ending.CUT)

    def _give_up(self, error: RouterError, ending: Ending) -> None:
        """Answer with an error while nothing has been written, break the answer off otherwise."""
        if self._ended:
            return
        if self._response is None:
            self._fail(error, ending)
        else:
            self._request.unregisterProducer()
            self._end(ending)
            self._request.break_off(reset=self._by_close)
        self._stop_replica()

    def _stop_replica(self) -> None:
        sending, self._sending = self._sending, None
        response, self._response = self._response, None
        if sending is not None:
            sending.cancel()
        if response is not None:
            response.producer.stopProducing()

    # The end

    @property
    def _name(self) -> str:
        return self._choice.member.name if self._choice is not None else "?"

    def _flush_head(self) -> None:
        head, self._head = self._head, None
        if head is not None:
            self._request.send(head)

    def _crashed(self, failure: Failure) -> None:
        """A fault of ours: tell the log, not the client."""
        self._log.failure("relaying {method} failed", failure, method=self._request.method)
        if self._ended:
            return
        if self._status:
            self._end(Ending.CUT)
            self._request.break_off(reset=True)
        else:
            self._fail(RouterError("the router failed to relay this request; its log says why"), Ending.RESET)
        self._stop_replica()

    def _fail(self, error: RouterError, ending: Ending) -> None:
        self._status = error.status
        self._end(ending)
        self._request.fail(error, self._session)

    def _end(self, ending: Ending) -> None:
        """Give back the lease, tell the outcome; happens once."""
        self._ended = True
        front, request, choice = self._front, self._request, self._choice
        front.leave(self.cut_off)
        if self._ticket is not None and front.holding is not None:
            front.holding.leave(self._ticket)
        front.deadlines.cancel(self._timed_out)
        good = ending is Ending.DONE and 200 <= self._status < 300
        usage = NO_USAGE if self._usage is None else self._usage.read()
        if self._lease is not None:
            self._lease.release(good=good, usage=usage)
        if self._is_final:
            front.apply(SessionFinished(self._session))
        seconds = front.seconds() - self._began
        if good and front.record is not None:
            chain = self.wish.prompt.chain if self.wish.prompt is not None else ()
            front.record(Turn(self.wish.named, self._size, chain, usage, seconds, self._sent, self._is_final))
        front.recorder.ended(
            RequestEnd(
                ending,
                None if choice is None else choice.member.name,
                self._status,
                None if choice is None else choice.reason,
                self._session,
                request.method.decode("ascii", "replace"),
                request.uri.partition(b"?")[0].decode("ascii", "replace"),
                seconds,
                self._first_byte,
                self._sent,
            )
        )
        if front.holding is not None:
            front.holding.poke()
