"""The HTTP side of the simulated replica, in memory and on a clock."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any, cast

from attrs import define, evolve, field
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http import HTTPChannel

from twisted_router.sim.driver import Driver
from twisted_router.sim.engine import CostModel, Engine, Limits
from twisted_router.sim.routes import Faults, Identity, QuietSite, Replica

IDENTITY = Identity(
    name="qwen", root="/m/qwen", devices="0,1", max_model_len=200, default_tokens=6, created=1000
)
HELLO = {"messages": [{"role": "user", "content": "Hello there, what is a prefix cache good for?"}]}


class Died(Exception):
    """Instead of the end of the process."""


def die() -> None:
    raise Died


@define
class Client:
    """One HTTP/1.0 connection: an answer ends where the connection does."""

    clock: Clock
    channel: HTTPChannel
    transport: StringTransport = field(factory=StringTransport)

    def send(self, method: str, path: str, body: bytes, kind: str) -> None:
        head = f"{method} {path} HTTP/1.0\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.channel.makeConnection(self.transport)
        self.channel.dataReceived(head.encode() + body)

    def leave(self) -> None:
        from twisted.internet.error import ConnectionLost
        from twisted.python.failure import Failure

        self.channel.connectionLost(Failure(ConnectionLost()))

    @property
    def status(self) -> int:
        return int(self.transport.value().split(b" ")[1])

    @property
    def head(self) -> bytes:
        return self.transport.value().partition(b"\r\n\r\n")[0].lower()

    @property
    def body(self) -> bytes:
        return self.transport.value().partition(b"\r\n\r\n")[2]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The data of each server-sent event but ``[DONE]``."""
        lines = [line[6:] for line in self.body.split(b"\n") if line.startswith(b"data: ")]
        return [json.loads(line) for line in lines if line != b"[DONE]"]


class ReplicaCase(SynchronousTestCase):
    """A replica whose steps take one second each."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.replica = self.make()

    def make(self, stream_interval: int = 1, **faults: Any) -> Replica:
        limits = Limits(kv_tokens=3200, max_num_seqs=2)
        cost = CostModel(step=1.0, prefill_rate=1e30)
        self.driver = Driver(Engine(limits, cost), self.clock, self.clock.seconds)
        identity = evolve(IDENTITY, stream_interval=stream_interval)
        replica = Replica(self.driver, identity, Faults(**faults), self.clock, die)
        replica.loaded = True
        self.site = QuietSite(replica, reactor=self.clock, timeout=None)
        return replica

    def ask(
        self, path: str, body: object = None, method: str | None = None, kind: str = "application/json"
    ) -> Client:
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        client = Client(self.clock, cast(HTTPChannel, self.site.buildProtocol(None)))
        client.send(method or ("GET" if body is None else "POST"), path, data, kind)
        return client

    def run_out(self) -> None:
        self.clock.pump([1.0] * 30)


class ChatTests(ReplicaCase):
    """``/v1/chat/completions``."""

    def test_whole(self) -> None:
        """One object with text, finish reason, usage and the simulated mark."""
        client = self.ask("/v1/chat/completions", {"model": "qwen", **HELLO})
        self.assertEqual(client.body, b"")
        self.run_out()
        answer = client.json
        self.assertEqual(answer["choices"][0]["message"]["content"], "This answer is simulated")
        self.assertEqual(answer["choices"][0]["finish_reason"], "stop")
        self.assertEqual((answer["object"], answer["system_fingerprint"]), ("chat.completion", "simulated"))
        self.assertEqual(answer["usage"]["completion_tokens"], 6)

    def test_stream(self) -> None:
        """The head at once, the role with the first token, a chunk a step, then the reason and [DONE]."""
        client = self.ask("/v1/chat/completions", {"stream": True, "max_tokens": 2, **HELLO})
        self.assertIn(b"text/event-stream", client.head)
        self.clock.advance(1.1)
        self.assertEqual(len(client.events), 2)
        self.run_out()
        deltas = [event["choices"][0]["delta"] for event in client.events]
        self.assertEqual(
            deltas, [{"role": "assistant", "content": ""}, {"content": "This"}, {"content": " ans"}, {}]
        )
        self.assertEqual(client.events[-1]["choices"][0]["finish_reason"], "length")
        self.assertTrue(client.body.endswith(b"data: [DONE]\n\n"))

    def test_stream_interval(self) -> None:
        """The first token comes alone, then so many an event; the last event has what is left."""
        self.replica = self.make(stream_interval=3)
        client = self.ask("/v1/chat/completions", {"stream": True, "max_tokens": 6, **HELLO})
        self.clock.pump([1.0] * 4)
        self.assertEqual(len(client.events), 3)
        self.run_out()
        said = [event["choices"][0]["delta"].get("content") for event in client.events]
        self.assertEqual(said, ["", "This", " answer is s", "imulated", None])

    def test_usage_in_stream(self) -> None:
        """``include_usage`` adds one chunk without choices."""
        options = {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": 2}
        client = self.ask("/v1/chat/completions", {**options, **HELLO})
        self.run_out()
        self.assertEqual(client.events[-1]["choices"], [])
        self.assertEqual(client.events[-1]["usage"]["completion_tokens"], 2)

    def test_second_turn_is_cached(self) -> None:
        """The second turn of a conversation finds the first one's blocks."""
        first = self.ask("/v1/chat/completions", HELLO)
        self.run_out()
        said = first.json["choices"][0]["message"]
        more = [*HELLO["messages"], said, {"role": "user", "content": "Say more"}]
        second = self.ask("/v1/chat/completions", {"messages": more})
        self.run_out()
        cached = [turn.json["usage"]["prompt_tokens_details"]["cached_tokens"] for turn in (first, second)]
        self.assertEqual(cached, [0, 16])

    def test_reset_prefix_cache(self) -> None:
        """POST /reset_prefix_cache forgets what nobody uses; a GET of it does not exist."""
        self.ask("/v1/chat/completions", HELLO)
        self.run_out()
        self.assertEqual(self.ask("/reset_prefix_cache").status, 404)
        self.assertEqual(self.driver.engine.cache.idle, 1)
        self.assertEqual(self.ask("/reset_prefix_cache", method="POST").status, 200)
        self.assertEqual(self.driver.engine.cache.idle, 0)

    def test_lengths(self) -> None:
        """``max_tokens`` bounds, ``min_tokens`` stretches, ``ignore_eos`` fills; the reason says which."""
        for options, expected in (
            ({"max_tokens": 3}, (3, "length")),
            ({"max_completion_tokens": 50}, (6, "stop")),
            ({"min_tokens": 9}, (9, "stop")),
            ({"max_tokens": 12, "ignore_eos": True}, (12, "length")),
        ):
            client = self.ask("/v1/chat/completions", {**options, **HELLO})
            self.run_out()
            answer = client.json
            got = (answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"])
            self.assertEqual(got, expected)

    def test_queue(self) -> None:
        """A third request waits while two run."""
        clients = [self.ask("/v1/chat/completions", {"stream": True, **HELLO}) for _ in range(3)]
        self.clock.pump([1.0, 1.0, 1.0])
        self.assertEqual([bool(client.events) for client in clients], [True, True, False])
        self.run_out()
        self.assertTrue(clients[2].body.endswith(b"data: [DONE]\n\n"))


class OtherRoutesTests(ReplicaCase):
    """The rest of ``/v1``."""

    def test_completion(self) -> None:
        """Text completions have text, whole and streamed."""
        whole = self.ask("/v1/completions", {"prompt": "abc", "max_tokens": 1})
        streamed = self.ask("/v1/completions", {"prompt": "abc", "max_tokens": 1, "stream": True})
        self.run_out()
        self.assertEqual(whole.json["choices"][0]["text"], "This")
        self.assertEqual([event["choices"][0]["text"] for event in streamed.events], ["This", ""])

    def test_responses(self) -> None:
        """A streamed response counts its events from 0 and completes with the whole text."""
        client = self.ask("/v1/responses", {"input": "Hi", "max_output_tokens": 2, "stream": True})
        self.run_out()
        self.assertEqual([event["sequence_number"] for event in client.events], list(range(9)))
        last = client.events[-1]
        self.assertEqual(last["type"], "response.completed")
        self.assertEqual(last["response"]["output"][0]["content"][0]["text"], "This ans")

    def test_embeddings(self) -> None:
        """Floats and base64 carry the same numbers, one vector a text."""
        plain = self.ask("/v1/embeddings", {"input": ["a", "b"], "dimensions": 4})
        coded = self.ask("/v1/embeddings", {"input": "a", "dimensions": 4, "encoding_format": "base64"})
        self.run_out()
        numbers = struct.unpack("<4f", base64.b64decode(coded.json["data"][0]["embedding"]))
        vectors = [item["embedding"] for item in plain.json["data"]]
        self.assertEqual([round(x, 5) for x in numbers], [round(x, 5) for x in vectors[0]])
        self.assertNotEqual(vectors[0], vectors[1])

    def test_transcription(self) -> None:
        """An upload is answered with its name and size."""
        form = (
            b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nqwen\r\n'
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF\r\n--b--\r\n'
        )
        client = self.ask("/v1/audio/transcriptions", form, kind="multipart/form-data; boundary=b")
        self.run_out()
        self.assertEqual(client.json["text"], "This transcription is simulated: a.wav has 4 bytes.")

    def test_models(self) -> None:
        """The served name and the context length."""
        (model,) = self.ask("/v1/models").json["data"]
        self.assertEqual((model["id"], model["max_model_len"]), ("qwen", 200))

    def test_metrics(self) -> None:
        """The names of vLLM, with what the engine does now."""
        for _ in range(3):
            self.ask("/v1/chat/completions", HELLO)
        lines = self.ask("/metrics").body.decode().splitlines()
        labels = '{engine="0",model_name="qwen"}'
        for line in (
            f"vllm:num_requests_running{labels} 1",
            f"vllm:num_requests_waiting{labels} 2",
            f"vllm:prefix_cache_queries_total{labels} 24",
            f"vllm:prefix_cache_hits_total{labels} 0",
            f"vllm:kv_cache_usage_perc{labels} 0.01",
            'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="200"} 1',
        ):
            self.assertIn(line, lines)


class ErrorTests(ReplicaCase):
    """Errors have vLLM's shape."""

    def assert_error(self, client: Client, code: int, kind: str, param: str | None = None) -> None:
        error = client.json["error"]
        self.assertEqual(
            (client.status, error["code"], error["type"], error["param"]), (code, code, kind, param)
        )

    def test_unknown_model(self) -> None:
        """Another model's name is 404, the path it was loaded from is not."""
        self.assert_error(
            self.ask("/v1/chat/completions", {"model": "x", **HELLO}), 404, "NotFoundError", "model"
        )
        good = self.ask("/v1/chat/completions", {"model": "/m/qwen", **HELLO})
        self.run_out()
        self.assertEqual(good.status, 200)

    def test_bodies(self) -> None:
        """Whatever is no request is 400, however hostile."""
        for body in (b"", b"{", b"[]", b'{"messages":7}', b"[" * 100_000, b"\xff", b"9" * 5000):
            self.assert_error(self.ask("/v1/chat/completions", body), 400, "BadRequestError")

    def test_too_long(self) -> None:
        """Prompt and answer beyond the context length are refused."""
        self.assert_error(
            self.ask("/v1/chat/completions", {"max_tokens": 190, **HELLO}), 400, "BadRequestError"
        )
        self.assert_error(self.ask("/v1/completions", {"prompt": "x" * 800}), 400, "BadRequestError")

    def test_values(self) -> None:
        """A value of the wrong kind names its parameter."""
        self.assert_error(
            self.ask("/v1/chat/completions", {"max_tokens": "3", **HELLO}),
            400,
            "BadRequestError",
            "max_tokens",
        )
        self.assert_error(self.ask("/v1/chat/completions", {"n": 2, **HELLO}), 400, "BadRequestError", "n")

    def test_routes(self) -> None:
        """An unknown path is 404, a wrong method 405."""
        self.assert_error(self.ask("/v1/nothing"), 404, "NotFoundError")
        self.assert_error(self.ask("/v1/chat/completions"), 405, "MethodNotAllowedError")


class LeavingTests(ReplicaCase):
    """Clients that leave."""

    def test_running(self) -> None:
        """A client that leaves mid-stream ends its sequence at once."""
        client = self.ask("/v1/chat/completions", {"stream": True, **HELLO})
        self.clock.advance(1.1)
        client.leave()
        status = self.ask("/sim").json
        self.assertEqual((status["running"], status["aborted"], status["blocks_in_use"]), (0, 1, 0))
        self.run_out()

    def test_waiting(self) -> None:
        """One that leaves before its answer began leaves the line, and the others are served."""
        clients = [self.ask("/v1/chat/completions", HELLO) for _ in range(3)]
        clients[0].leave()
        self.run_out()
        self.assertEqual([client.status for client in clients[1:]], [200, 200])
        self.assertEqual(self.ask("/sim").json["finished"], 2)


class FaultTests(ReplicaCase):
    """Faults on demand."""

    def test_loading(self) -> None:
        """While the model loads, health and requests are 503."""
        self.replica.loaded = False
        self.assertEqual(self.ask("/v1/chat/completions", HELLO).status, 503)
        health = self.ask("/health")
        self.clock.advance(0)
        self.assertEqual(health.status, 503)

    def test_health(self) -> None:
        """Healthy at once; slow or failing on demand."""
        for faults, seconds, status in (
            ({}, 0, 200),
            ({"slow_health": 2}, 2, 200),
            ({"fail_health": True}, 0, 503),
        ):
            self.make(**faults)
            client = self.ask("/health")
            if seconds:
                self.clock.advance(seconds - 0.1)
                self.assertEqual(client.transport.value(), b"")
            self.clock.advance(0.1)
            self.assertEqual(client.status, status)

    def test_slow_health_without_client(self) -> None:
        """A prober that leaves before a slow answer does no harm."""
        self.make(slow_health=2)
        self.ask("/health").leave()
        self.clock.advance(2)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_cut_stream(self) -> None:
        """A stream breaks off after so many tokens, without an end, and its sequence is over."""
        self.make(cut_after=2)
        client = self.ask("/v1/chat/completions", {"stream": True, **HELLO})
        self.run_out()
        self.assertTrue(client.transport.disconnecting)
        self.assertEqual(len(client.events), 3)
        self.assertNotIn(b"[DONE]", client.body)

    def test_cut_whole(self) -> None:
        """An answer in one piece stops half way through its declared length."""
        self.make(cut_after=2)
        client = self.ask("/v1/chat/completions", HELLO)
        self.run_out()
        length = int(client.head.split(b"content-length: ")[1].split(b"\r\n")[0])
        self.assertTrue(client.transport.disconnecting)
        self.assertEqual(len(client.body), length // 2)

    def test_hang(self) -> None:
        """After so many requests nothing is answered, health included."""
        self.make(hang_after=1)
        clients = [self.ask("/v1/chat/completions", HELLO) for _ in range(2)]
        health = self.ask("/health")
        self.run_out()
        self.assertEqual(clients[0].status, 200)
        self.assertEqual([clients[1].transport.value(), health.transport.value()], [b"", b""])

    def test_die(self) -> None:
        """The request after so many ends the process."""
        self.make(die_after=1)
        self.ask("/v1/chat/completions", HELLO)
        self.run_out()
        self.ask("/v1/chat/completions", HELLO)
        self.assertEqual(len(self.flushLoggedErrors(Died)), 1)
