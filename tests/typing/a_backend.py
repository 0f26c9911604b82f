"""What a user may write over the public names, for strict type checkers. Nothing here is run."""

import json
from collections.abc import AsyncIterator, Iterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response as HttpResponse
from starlette.routing import Route

from openresponses_bridge import (
    CreateResponse,
    Diagnostics,
    HttpError,
    LanguageModelTextPart,
    PartDecoder,
    Response,
    ResponseAccumulator,
    ResponseStreamStateMachine,
    SSEDecoder,
    StreamValidator,
    Usage,
    decode_event,
    encode_sse,
)
from openresponses_bridge.backend import (
    Finish,
    Output,
    Reasoning,
    Refusal,
    ToolCall,
    ToolCallDelta,
    chat_request,
    reply,
)
from openresponses_bridge.dialects import anthropic_messages, chat_completions
from openresponses_server.backend import BackendResponse, endpoint


async def generate(request: CreateResponse) -> AsyncIterator[Output]:
    body = chat_request(request)
    if not body["messages"]:
        raise HttpError(400, "There is nothing to answer.", param="input")
    yield Reasoning("A short one.")
    for word in ["It", "is", "18", "°C."]:
        yield word
    yield ToolCall("get_weather", {"city": "Paris"}, call_id="call_1")
    yield ToolCallDelta(0, name="get_weather")
    yield ToolCallDelta(0, json.dumps({"city": "Oslo"}))
    yield Refusal("No more.")
    yield Usage.of(12, 20, cached_tokens=3)
    yield Finish("length")


async def respond(request: Request) -> HttpResponse:
    response = BackendResponse(await request.body(), generate, dialect="chat", timeout=60)
    response.headers["x-request-id"] = "1"
    return response


routes = [
    Route("/v1/responses", endpoint(generate, keep_alive=5, max_body=1_000_000), methods=["POST"]),
    Route("/v1/chat/completions", respond, methods=["POST"]),
]
app = Starlette(routes=routes)


def said(_request: CreateResponse) -> Iterator[Output]:
    yield "Hello."


def whole(body: bytes) -> tuple[int, bytes]:
    answer = reply(body, said, dialect="anthropic", model="mine")
    return answer.status, b"".join(answer.body)


def translated(received: bytes) -> tuple[bytes, Diagnostics]:
    inbound = chat_completions.Inbound(ResponseStreamStateMachine(model="m"))
    outbound = anthropic_messages.Outbound()
    events = [event for frame in SSEDecoder().feed(received) for event in inbound.feed(frame.data)]
    chunks = [chunk for event in [*events, *inbound.close()] for chunk in outbound.feed(event)]
    return anthropic_messages.encode_sse([*chunks, *outbound.close()]), inbound.diagnostics


def read(stream: bytes) -> tuple[str, Response | None, list[str]]:
    decoder, accumulator, validator = PartDecoder(), ResponseAccumulator(), StreamValidator()
    texts: list[str] = []
    for frame in SSEDecoder().feed(stream):
        event = decode_event(frame.data)
        accumulator.feed(event)
        validator.feed(event)
        texts += [part.value for part in decoder.feed(event) if isinstance(part, LanguageModelTextPart)]
    problems = [f"{each.rule}: {each.message}" for each in validator.close()]
    assert encode_sse([]) == b""
    return "".join(texts), accumulator.response, problems
