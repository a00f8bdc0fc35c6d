"""The HTTP side of the simulated replica: OpenAI endpoints over the engine model, and faults on demand."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Protocol, cast

from attrs import define, field, frozen
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure
from twisted.web import http, resource, server

from twisted_router.sim import answers, prompt, status
from twisted_router.sim.answers import Completions, Dialect, Responses, Script, Usage
from twisted_router.sim.driver import Driver
from twisted_router.sim.engine import DoesNotFit, Job, Work
from twisted_router.sim.multipart import MultipartError, parts

#: Bytes of an upload that count as one token of audio.
AUDIO_TOKEN_BYTES = 4000
EMBEDDING_DIMENSIONS = 16

Body = Mapping[str, object]


@frozen
class Faults:
    """What goes wrong on purpose; None or 0 for nothing.

    :ivar die_after: requests taken before the next one ends the process.
    :ivar hang_after: requests taken before nothing is answered any more, ``/health`` included.
    :ivar cut_after: tokens after which each answer breaks off.
    :ivar slow_health: seconds.
    """

    die_after: int | None = None
    hang_after: int | None = None
    cut_after: int | None = None
    slow_health: float = 0.0
    fail_health: bool = False


class Refused(Exception):
    """A request that is answered with an error; nothing of it reaches the engine."""

    def __init__(self, message: str, code: int = http.BAD_REQUEST, param: str | None = None) -> None:
        super().__init__(message)
        self.message, self.code, self.param = message, code, param


@frozen
class Identity:
    """Who the replica says it is, and how it speaks.

    :ivar stream_interval: tokens in one event of a stream; the first comes alone.
    """

    name: str
    root: str
    devices: str
    max_model_len: int
    default_tokens: int
    created: int
    stream_interval: int = 1


class Finisher(Protocol):
    """Turns a finished job into the body of an answer that is not streamed."""

    def __call__(self, text: str, usage: Usage, finish: str) -> bytes:
        """The body."""


@define(eq=False)
class Exchange:
    """One request on its way through the engine.

    :ivar natural: tokens after which the answer would have ended by itself.
    :ivar abort: ends the job whose answer is cut on purpose.
    :ivar stream: how to stream the answer, or None to give it in one piece.
    """

    request: server.Request
    script: Script
    natural: int
    whole: Finisher
    abort: Callable[[Job], None]
    stream: Dialect | None = None
    cut_after: int | None = None
    interval: int = 1
    _shown: int = field(default=0, init=False)

    def progressed(self, job: Job) -> None:
        """Show the newest tokens, or the whole answer with the last one."""
        if self.stream is not None:
            self._stream(self.stream, job)
        elif job.done:
            self._answer(job)

    def _stream(self, dialect: Dialect, job: Job) -> None:
        cut = self.cut_after is not None and job.generated >= self.cut_after
        if self._shown and not job.done and not cut and job.generated < self._shown + self.interval:
            return
        data = b"" if self._shown else dialect.opening()
        data += dialect.token(self.script.text(job.generated, self._shown))
        self._shown = job.generated
        if cut:
            self.abort(job)
            self.request.write(data)
            self.request.loseConnection()
            return
        if job.done:
            data += dialect.closing(self.script.text(job.generated), *self._end(job))
        self.request.write(data)
        if job.done:
            self.request.finish()

    def _answer(self, job: Job) -> None:
        body = self.whole(self.script.text(job.generated), *self._end(job))
        self.request.setHeader(b"content-length", b"%d" % len(body))
        if self.cut_after is not None:
            self.request.write(body[: len(body) // 2])
            self.request.loseConnection()
            return
        self.request.write(body)
        self.request.finish()

    def _end(self, job: Job) -> tuple[Usage, str]:
        usage = Usage(job.work.prompt_tokens, job.cached_tokens, job.generated)
        return usage, "stop" if job.generated >= self.natural else "length"


class Replica(resource.Resource):
    """Every route of the simulated replica.

    :param die: ends the process; called by the fault of that name.
    """

    isLeaf = True

    def __init__(
        self, driver: Driver, identity: Identity, faults: Faults, timer: IReactorTime, die: Callable[[], None]
    ) -> None:
        super().__init__()
        #: Whether the model is loaded; 503 until then.
        self.loaded = False
        self._driver = driver
        self._identity = identity
        self._faults = faults
        self._timer = timer
        self._die = die
        self._script = Script(f"{identity.name} on device {identity.devices}")
        self._taken = 0
        self._shown: dict[bytes, Callable[[], bytes]] = {
            b"/metrics": lambda: status.metrics(driver.engine, identity.name),
            b"/sim": lambda: _json(
                status.snapshot(driver.engine, identity.name, identity.devices, self._taken)
                | {"pid": os.getpid()}
            ),
            b"/v1/models": lambda: _json(
                answers.models(identity.name, identity.root, identity.max_model_len, identity.created)
            ),
        }
        self._asked: dict[bytes, Callable[[server.Request], None]] = {
            b"/v1/chat/completions": self._chat,
            b"/v1/completions": self._completion,
            b"/v1/responses": self._responses,
            b"/v1/embeddings": self._embeddings,
            b"/v1/audio/transcriptions": self._transcription,
        }

    def render(self, request: server.Request) -> int:
        """Answer ``request``, now or as the engine gets to it."""
        try:
            self._route(request)
        except Refused as refused:
            body = _json(answers.problem(refused.message, refused.code, refused.param))
            _reply(request, refused.code, body)
        return server.NOT_DONE_YET

    def _route(self, request: server.Request) -> None:
        path = request.path
        if path in self._asked:
            if request.method != b"POST":
                raise Refused("Method Not Allowed", http.NOT_ALLOWED)
            self._take(request)
        elif self._hanging:
            return
        elif path == b"/health":
            self._timer.callLater(self._faults.slow_health, self._health, request)
        elif path == b"/reset_prefix_cache" and request.method == b"POST":
            self._driver.engine.cache.forget()
            _reply(request, http.OK, b"")
        elif path in self._shown:
            text = b"text/plain; version=0.0.4; charset=utf-8"
            kind = text if path == b"/metrics" else b"application/json"
            _reply(request, http.OK, self._shown[path](), kind)
        else:
            raise Refused("Not Found", http.NOT_FOUND)

    def _take(self, request: server.Request) -> None:
        if not self.loaded:
            raise Refused("The model is still loading", http.SERVICE_UNAVAILABLE)
        if self._taken == self._faults.die_after:
            self._die()
        if self._hanging:
            return
        self._taken += 1
        try:
            self._asked[request.path](request)
        except prompt.NotUnderstood as problem:
            raise Refused(str(problem)) from problem

    @property
    def _hanging(self) -> bool:
        return self._faults.hang_after is not None and self._taken >= self._faults.hang_after

    def _health(self, request: server.Request) -> None:
        well = self.loaded and not self._faults.fail_health
        if request.channel is not None:
            _reply(request, http.OK if well else http.SERVICE_UNAVAILABLE, b"")

    def _chat(self, request: server.Request) -> None:
        body = self._body(request)
        self._complete(request, body, prompt.chat(body), chat=True)

    def _completion(self, request: server.Request) -> None:
        body = self._body(request)
        self._complete(request, body, prompt.completion(body), chat=False)

    def _complete(self, request: server.Request, body: Body, text: bytes, chat: bool) -> None:
        if body.get("n", 1) not in (1, None):
            raise Refused("n: the simulated engine gives one choice", param="n")
        options = body.get("stream_options")
        dialect = Completions(
            chat=chat,
            id=("chatcmpl-" if chat else "cmpl-") + uuid.uuid4().hex,
            model=self._identity.name,
            created=int(time.time()),
            include_usage=isinstance(options, dict) and bool(options.get("include_usage")),
        )
        self._generate(request, body, text, dialect)

    def _responses(self, request: server.Request) -> None:
        body = self._body(request)
        dialect = Responses(f"resp_{uuid.uuid4().hex}", self._identity.name, int(time.time()))
        self._generate(request, body, prompt.responses(body), dialect)

    def _generate(self, request: server.Request, body: Body, text: bytes, dialect: Dialect) -> None:
        tokens = prompt.count(text)
        output, natural = self._length(body, tokens)
        work = Work(prompt.chain(text, self._driver.engine.limits.block_size), tokens, output)
        streamed = bool(body.get("stream"))
        request.setHeader(b"content-type", b"text/event-stream" if streamed else b"application/json")

        def whole(text: str, usage: Usage, finish: str) -> bytes:
            return _json(dialect.whole(text, usage, finish))

        self._start(request, work, whole, natural, dialect if streamed else None)

    def _embeddings(self, request: server.Request) -> None:
        body = self._body(request)
        texts = prompt.inputs(body)
        dimensions = _whole(body, "dimensions", EMBEDDING_DIMENSIONS)

        def whole(text: str, usage: Usage, finish: str) -> bytes:
            as_base64 = body.get("encoding_format") == "base64"
            spent = Usage(usage.prompt, usage.cached)
            return _json(answers.embeddings(texts, dimensions, as_base64, self._identity.name, spent))

        request.setHeader(b"content-type", b"application/json")
        self._start(request, Work((), sum(prompt.count(text) for text in texts), 1), whole)

    def _transcription(self, request: server.Request) -> None:
        content = _content(request)
        try:
            fields = parts(content, request.getHeader(b"content-type") or b"")
        except MultipartError as problem:
            raise Refused(str(problem)) from problem
        if "file" not in fields:
            raise Refused("file: missing", param="file")
        self._known(fields["model"].content.decode("utf-8", "replace") if "model" in fields else None)
        size = len(fields["file"].content)
        said = f"This transcription is simulated: {fields['file'].filename or 'a file'} has {size} bytes."
        plain = "response_format" in fields and fields["response_format"].content == b"text"

        def whole(text: str, usage: Usage, finish: str) -> bytes:
            return (
                said.encode() if plain else _json({"text": said, "usage": {"type": "duration", "seconds": 1}})
            )

        request.setHeader(b"content-type", b"text/plain; charset=utf-8" if plain else b"application/json")
        self._start(request, Work((), 1 + size // AUDIO_TOKEN_BYTES, prompt.count(said.encode())), whole)

    def _start(
        self,
        request: server.Request,
        work: Work,
        whole: Finisher,
        natural: int = 0,
        dialect: Dialect | None = None,
    ) -> None:
        exchange = Exchange(
            request,
            self._script,
            natural,
            whole,
            self._driver.abort,
            dialect,
            self._faults.cut_after,
            self._identity.stream_interval,
        )
        try:
            job = self._driver.submit(work, exchange)
        except DoesNotFit as problem:
            raise Refused(str(problem)) from problem

        def left(_: Failure) -> None:
            self._driver.abort(job)

        request.notifyFinish().addErrback(left)
        if dialect is not None:
            # A stream's head is sent at once, not with its first token.
            request.write(b"")

    def _length(self, body: Body, tokens: int) -> tuple[int, int]:
        """How many tokens the answer gets, and how many it would have by itself."""
        room = self._identity.max_model_len - tokens
        limit = next(
            (
                _whole(body, key, 1)
                for key in ("max_completion_tokens", "max_tokens", "max_output_tokens")
                if body.get(key) is not None
            ),
            None,
        )
        if room < (limit or 1):
            raise Refused(
                f"This model's maximum context length is {self._identity.max_model_len} tokens. However, you "
                f"requested {limit or 1} output tokens and your prompt contains {tokens} input tokens."
            )
        natural = max(self._identity.default_tokens, _whole(body, "min_tokens", 1))
        if body.get("ignore_eos") and limit is not None:
            natural = limit + 1
        return min(natural, limit or natural, room), natural

    def _body(self, request: server.Request) -> Body:
        try:
            body = json.loads(_content(request))
        except (ValueError, RecursionError) as problem:
            raise Refused(f"The body is not JSON: {problem}") from problem
        if not isinstance(body, dict):
            raise Refused("The body must be a JSON object")
        self._known(body.get("model"))
        return body

    def _known(self, model: object) -> None:
        if model not in (None, "", self._identity.name, self._identity.root):
            raise Refused(f"The model `{model}` does not exist.", http.NOT_FOUND, "model")


class QuietSite(server.Site):
    """A site without an access log."""

    def log(self, request: http.Request) -> None:
        """Nothing: the caller in front of this replica logs."""


def _content(request: server.Request) -> bytes:
    return cast(bytes, request.content.read()) if request.content is not None else b""


def _whole(body: Body, key: str, default: int) -> int:
    value = body.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise Refused(f"{key}: expected a whole number of at least 1, got {value!r}", param=key)
    return value


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _reply(request: server.Request, code: int, body: bytes, kind: bytes = b"application/json") -> None:
    request.setResponseCode(code)
    request.setHeader(b"content-type", kind)
    request.setHeader(b"content-length", b"%d" % len(body))
    request.write(body)
    request.finish()
