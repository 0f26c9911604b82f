"""A Chat Completions server behind the Responses API, by hand: `UPSTREAM=http://… uvicorn chat_upstream:app`.

`openresponses-bridge serve --upstream URL` does this with all of its cases; here is what it comes down to.
"""

import json
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
from starlette.applications import Starlette
from starlette.routing import Route

from openresponses_bridge import CreateResponse, HttpError, SSEDecoder
from openresponses_bridge.backend import Finish, Output, Reasoning, ToolCallDelta, Usage, chat_request
from openresponses_bridge.sse import is_done
from openresponses_server.backend import endpoint


async def generate(request: CreateResponse) -> AsyncIterator[Output]:
    body = {**chat_request(request), "stream": True, "stream_options": {"include_usage": True}}
    address = f"{os.environ['UPSTREAM']}/chat/completions"
    frames = SSEDecoder()
    async with (
        httpx2.AsyncClient(timeout=None) as client,
        client.stream("POST", address, json=body) as answer,
    ):
        if answer.status_code != 200:
            raise HttpError(502, f"The upstream answered {answer.status_code}.")
        async for data in answer.aiter_bytes():
            for frame in frames.feed(data):
                if is_done(frame):
                    return
                for output in outputs_of(json.loads(frame.data)):
                    yield output
    raise HttpError(502, "The upstream's stream was cut.")


def outputs_of(chunk: dict[str, Any]) -> Iterator[Output]:
    """What one chunk brings: pieces of text, reasoning and calls, the reason to stop, the token counts."""
    for choice in chunk.get("choices", ()):
        delta = choice.get("delta", {})
        if delta.get("reasoning_content"):
            yield Reasoning(delta["reasoning_content"])
        if delta.get("content"):
            yield delta["content"]
        for call in delta.get("tool_calls") or ():
            function = call.get("function", {})
            pieces = function.get("arguments") or "", function.get("name"), call.get("id")
            yield ToolCallDelta(call["index"], *pieces)
        if choice.get("finish_reason"):
            yield Finish(choice["finish_reason"])
    if usage := chunk.get("usage"):
        yield Usage.of(usage["prompt_tokens"], usage["completion_tokens"])


app = Starlette(routes=[Route("/v1/responses", endpoint(generate), methods=["POST"])])
