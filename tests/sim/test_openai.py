"""OpenAI's own Python client, as it is, against the simulated replica."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import TestCase

from tests.programs import start

CLIENT = """
import io, json, sys, urllib.request
import openai

url = sys.argv[1]
client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
messages = [{"role": "user", "content": "Tell me about caches, and about prefix caches in particular."}]
tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
chat = lambda **more: client.chat.completions.create(model="m", messages=messages, max_tokens=3, **more)
told = {}

told["chat"] = chat().choices[0].message.content
told["cached"] = chat().usage.prompt_tokens_details.cached_tokens
told["tools"] = chat(tools=[tool], tool_choice="auto").choices[0].finish_reason
chunks = list(chat(stream=True, stream_options={"include_usage": True}))
told["stream"] = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
told["usage"] = chunks[-1].usage.completion_tokens
told["completion"] = client.completions.create(model="m", prompt="abc", max_tokens=1).choices[0].text
told["embedding"] = len(client.embeddings.create(model="m", input="abc").data[0].embedding)
told["audio"] = client.audio.transcriptions.create(model="m", file=("a.wav", io.BytesIO(b"R" * 10))).text
told["models"] = [model.id for model in client.models.list()]
told["response"] = client.responses.create(model="m", input="Hi", max_output_tokens=2).output_text
with client.responses.stream(model="m", input="Hi", max_output_tokens=2) as stream:
    told["response stream"] = stream.get_final_response().output_text
try:
    client.chat.completions.create(model="other", messages=messages)
except openai.NotFoundError as error:
    told["error"] = (error.param, error.code)

left = client.chat.completions.create(
    model="m", messages=messages, max_tokens=10000, extra_body={"ignore_eos": True}, stream=True
)
next(iter(left))
left.close()
aborted = 0
while not aborted:
    aborted = json.load(urllib.request.urlopen(url + "/sim"))["aborted"]
told["aborted"] = aborted
print(json.dumps(told))
"""


class OpenAITests(TestCase):
    """What the client makes of the answers."""

    timeout = 60

    async def told(self) -> dict[str, Any]:
        flags = ("--port", "0", "--model", "m", "--step-ms", "1")
        sim = start(self, "-m", "twisted_router.sim", *flags)
        await sim.wrote(b"(simulated m)")
        client = start(self, "-c", CLIENT, sim.out.split(b"ready on ")[1].split()[0].decode())
        self.assertEqual((await client.ended, client.err), (0, b""))
        return dict(json.loads(client.out))

    async def test_client(self) -> None:
        """Every kind of call gives what it should; leaving a stream ends the sequence."""
        self.assertEqual(
            await self.told(),
            {
                "chat": "This answer ",
                "cached": 16,
                "tools": "length",
                "stream": "This answer ",
                "usage": 3,
                "completion": "This",
                "embedding": 16,
                "audio": "This transcription is simulated: a.wav has 10 bytes.",
                "models": ["m"],
                "response": "This ans",
                "response stream": "This ans",
                "error": ["model", "404"],
                "aborted": 1,
            },
        )
