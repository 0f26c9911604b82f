"""What engines on one's own machine do differently, as they were seen to: one table, a row for each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from msgspec import Struct

from openresponses_bridge.seal import Sealer
from openresponses_server.errors import UpstreamError
from openresponses_server.settings import Retries, Settings, UpstreamSettings
from openresponses_server.upstreams.refusals import output_room
from tests.support.serving import call, respond, serving, stream, violations
from tests.support.shared import shared_root
from tests.support.upstream import Script, ScriptedUpstream, Step, chunk, frame, refusal, text

Json = dict[str, Any]
# what an engine sent → its dialect; the kinds of items, the status and the text's end that a client gets
CAPTURES: dict[str, tuple[str, list[str], str, str]] = {
    "llamacpp-chat-error-in-stream": ("chat", ["message"], "failed", "@vided"),
    "llamacpp-messages-no-message-start": ("anthropic", ["message"], "incomplete", "na\u00efve caf\u00e9 "),
    "llamacpp-responses-created-again": ("responses", ["message"], "completed", "\u4e16\u754c na\u00ef"),
    "transformers-responses-text-and-calls": (
        "responses",
        ["message", "function_call", "function_call"],
        "completed",
        "I will call two tools.",
    ),
}
TOOL = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
NAMED = {"name": "n", "schema": SCHEMA}
FORMAT = {"format": {"type": "json_schema", **NAMED}}
IMAGE = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,iVBORw0KGgo="}
SEALED = Sealer(b"k" * 32).seal(b"{}", "raw-reasoning")
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAAB-of-another"}


def responses(*items: Json, **fields: Any) -> list[Step]:
    """A stream of these items, each told at its end only, with usage for one token of output."""
    usage = {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4, **fields.pop("usage", {})}
    head = {"id": "resp_u", "object": "response", "created_at": 1, "model": "m"}
    events: list[Json] = [{"type": "response.created", "response": {**head, "status": "in_progress"}}]
    for index, item in enumerate(items):
        events += [{"type": "response.output_item.done", "output_index": index, "item": item}]
    whole = {**head, "status": "completed", "output": list(items), "usage": usage, **fields}
    return frames([*events, {"type": "response.completed", "response": whole}])


def frames(events: Sequence[Json]) -> list[Step]:
    return [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]


def said(words: str, id: str = "msg_1") -> Json:
    content = [{"type": "output_text", "text": words, "annotations": []}]
    return {"type": "message", "id": id, "role": "assistant", "status": "completed", "content": content}


def spoken(*pieces: str, **fields: Any) -> list[Step]:
    """A message in these deltas."""
    item = said("".join(pieces))
    deltas = [
        {"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0}
        | {"delta": piece, "logprobs": []}
        for piece in pieces
    ]
    begun = {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}}
    first, *rest = responses(item, **fields)
    return [first, *frames([begun, *deltas]), *rest]


def called(id: str, name: str = "get_weather") -> Json:
    item = {"type": "function_call", "id": f"fc_{id}", "call_id": f"call_{id}", "status": "completed"}
    return {**item, "name": name, "arguments": "{}"}


def messages(
    *blocks: Json, start: bool = True, usage: Json | None = None, stop: str = "end_turn"
) -> list[Step]:
    """A stream of the Messages API."""
    counted = usage or {"input_tokens": 3}
    head = {
        "id": "msg_u",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "usage": counted,
    }
    events: list[Json] = [{"type": "message_start", "message": head}] if start else []
    for index, block in enumerate(blocks):
        events += [{"type": "content_block_start", "index": index, "content_block": block}]
        events += [{"type": "content_block_stop", "index": index}]
    ended = {"delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 2}}
    events += [{"type": "message_delta", **ended}, {"type": "message_stop"}]
    return [b"event: " + e["type"].encode() + b"\ndata: " + json.dumps(e).encode() + b"\n\n" for e in events]


class Quirk(Struct, frozen=True):
    """What an engine does: its answers in order, what it has to be sent in the last request, and what a
    client gets. Paths are of keys and indexes, joined by dots."""

    engine: str
    dialect: str
    answers: Sequence[Script | list[Step]]
    asked: Mapping[str, Any] = {}
    sent: Mapping[str, Any] = {}
    """Path → value, None for one that is not there."""
    got: Mapping[str, Any] = {}
    """Path in the response → value."""
    losses: str = ""
    listed: Mapping[str, Any] = {}
    """What it lists of its model."""


def without_reasoning(changed: Json, losses: str) -> Quirk:
    """Reasoning between two messages that such an engine can't read, so that it is left out."""
    first, second = ({"role": "user", "content": text} for text in "ab")
    request = {"input": [first, THOUGHT | changed, second]}
    sent = {"input.1.role": "user", "input.2": None}
    return Quirk("vllm", "responses", [responses(said("Hi"))], request, sent, losses=losses)


LIMIT_OF_VLLM = "max_completion_tokens=8192 cannot be greater than max_model_len=4096. Please request fewer."
COUNTED = (
    "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is "
    "4096 tokens and your request has 17 input tokens (32000 > 4096 - 17)."
)
QUIRKS: dict[str, Quirk] = {
    "no limit named, a small context listed": Quirk(
        "vllm",
        "anthropic",
        [messages({"type": "text", "text": "Hi"})],
        sent={"max_tokens": 1024},
        listed={"max_model_len": 4096},
    ),
    "no limit named, a shorter answer listed": Quirk(
        "litellm",
        "anthropic",
        [messages({"type": "text", "text": "Hi"})],
        sent={"max_tokens": 500},
        listed={"context_length": 100_000, "max_output_tokens": 500},
    ),
    "no limit named, the refusal names one": Quirk(
        "vllm",
        "anthropic",
        [refusal(400, message=LIMIT_OF_VLLM), messages({"type": "text", "text": "Hi"})],
        got={"output.0.content.0.text": "Hi"},
    ),
    "a limit above the context, which the refusal names": Quirk(
        "vllm",
        "chat",
        [refusal(400, message=COUNTED), text("Hi")],
        {"max_output_tokens": 32_000},
        {"max_completion_tokens": 4079},
        {"output.0.content.0.text": "Hi", "status": "completed"},
        "max_output_tokens: lowered to 4079",
    ),
    "encrypted reasoning in the input": without_reasoning({}, "encrypted reasoning"),
    "what another bridge sealed": without_reasoning(
        {"encrypted_content": SEALED}, "another server or another key sealed it"
    ),
    "thinking as text": Quirk(
        "vllm",
        "responses",
        [spoken("<thi", "nk>Hm.", " So.</thi", "nk>\n\nHi", " there")],
        got={
            "output.0.type": "reasoning",
            "output.0.content.0.text": "Hm. So.",
            "output.1.type": "message",
            "output.1.content.0.text": "Hi there",
            "output.2": None,
        },
    ),
    "thinking as text, whole": Quirk(
        "llamacpp",
        "responses",
        [responses(said("<think>Hm.</think>Hi"))],
        got={"output.0.content.0.text": "Hm.", "output.1.content.0.text": "Hi", "output.2": None},
    ),
    "thinking in tags of Bedrock": Quirk(
        "bedrock-mantle",
        "chat",
        [text("<reaso", "ning>Hm.", "</reason", "ing>Hi", " there")],
        got={
            "output.0.type": "reasoning",
            "output.0.content.0.text": "Hm.",
            "output.1.content.0.text": "Hi there",
            "output.2": None,
        },
    ),
    "thinking that is all": Quirk(
        "transformers",
        "responses",
        [spoken("<think>", "Hm.")],
        got={"output.0.type": "reasoning", "output.0.content.0.text": "Hm.", "output.1": None},
    ),
    "text that only looks so": Quirk(
        "vllm",
        "responses",
        [spoken("<th", "e answer> <think>")],
        got={"output.0.content.0.text": "<the answer> <think>", "output.1": None},
    ),
    "truncation is not done there": Quirk(
        "vllm",
        "responses",
        [responses(said("Hi"))],
        {"truncation": "auto"},
        {"truncation": None},
    ),
    "parallel calls that were not wanted": Quirk(
        "llamacpp",
        "responses",
        [responses(called("1"), called("2"))],
        {"tools": [TOOL], "parallel_tool_calls": False},
        {"parallel_tool_calls": False},
        {"output.0.call_id": "call_1", "output.1": None, "status": "completed"},
    ),
    "a named tool that was not called": Quirk(
        "llamacpp",
        "responses",
        [responses(said("No."))],
        {"tools": [TOOL], "tool_choice": {"type": "function", "name": "get_weather"}},
        {"tool_choice.name": "get_weather"},
        {"status": "failed", "error.code": "model_error"},
    ),
    "a required tool that was not called": Quirk(
        "llamacpp",
        "responses",
        [responses(said("No."))],
        {"tools": [TOOL], "tool_choice": "required"},
        {"tool_choice": "required"},
        {"status": "failed", "error.code": "model_error"},
    ),
    "a schema that is ignored": Quirk(
        "transformers",
        "responses",
        [responses(said("No.")), responses(said("No!"))],  # asked for once more
        {"text": FORMAT},
        {"text.format.type": "text"},
        {"status": "failed", "error.code": "model_error"},
    ),
    "a schema that is followed": Quirk(
        "transformers",
        "responses",
        [responses(said('{"n": 1}'))],
        {"text": FORMAT},
        got={"status": "completed", "output.0.content.0.text": '{"n": 1}'},
    ),
    "a schema that Chat ignores": Quirk(
        "transformers",
        "chat",
        [text("No."), text("No!")],
        {"text": FORMAT},
        {"response_format.type": "json_object"},
        {"status": "failed", "error.code": "model_error"},
    ),
    "log probabilities that never come": Quirk(
        "transformers",
        "chat",
        [text("Hi")],
        {"top_logprobs": 2},
        {"logprobs": None, "top_logprobs": None},
        losses="logprobs: the upstream does not accept it",
    ),
    "a schema under another name": Quirk(
        "llamacpp",
        "responses",
        [responses(said('{"n": 1}'))],
        {"text": FORMAT},
        {"text.format.type": "json_schema", "response_format": {"type": "json_schema", "json_schema": NAMED}},
    ),
    "any JSON under another name": Quirk(
        "llamacpp",
        "responses",
        [responses(said("{}"))],
        {"text": {"format": {"type": "json_object"}}},
        {"response_format": {"type": "json_object"}},
    ),
    "an answer that was cut, told as finished": Quirk(
        "llamacpp",
        "responses",
        [spoken("One two", usage={"output_tokens": 16})],
        {"max_output_tokens": 16},
        got={"status": "incomplete", "incomplete_details.reason": "max_output_tokens"},
    ),
    "an answer that was not cut": Quirk(
        "llamacpp",
        "responses",
        [spoken("One two", usage={"output_tokens": 15})],
        {"max_output_tokens": 16},
        got={"status": "completed"},
    ),
    "a call at the limit": Quirk(
        "llamacpp",
        "responses",
        [responses(said("Yes."), called("1"), usage={"output_tokens": 16})],
        {"max_output_tokens": 16, "tools": [TOOL]},
        got={"status": "completed", "output.1.call_id": "call_1"},
    ),
    "log probabilities need two fields": Quirk(
        "llamacpp",
        "chat",
        [text("Hi")],
        {"top_logprobs": 2, "include": ["message.output_text.logprobs"]},
        {"logprobs": True, "top_logprobs": 2},
    ),
    "content that has to be a list": Quirk(
        "llamacpp",
        "responses",
        [responses(said("Hi"))],
        {
            "input": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": "b"},
                {"role": "user", "content": "c"},
            ]
        },
        {
            "input.0.content.0.type": "input_text",
            "input.1.content.0.type": "output_text",
            "input.2.content.0.text": "c",
        },
    ),
    "an image is a server's error": Quirk(
        "llamacpp",
        "chat",
        [
            refusal(
                500, message="image input is not supported - hint: if this is unexpected, provide the mmproj"
            ),
            text("Hi"),
        ],
        {"input": [{"role": "user", "content": [IMAGE, {"type": "input_text", "text": "What is it?"}]}]},
        got={"output.0.content.0.text": "Hi"},
        losses="images, which the model can't see",
    ),
    "an error within an accepted stream": Quirk(
        "llamacpp",
        "chat",
        [
            [
                chunk(role="assistant", content=None),
                chunk(content='{"b"'),
                frame(error={"code": 500, "message": "does not match", "type": "server_error"}),
            ]
        ],
        got={"status": "failed", "error.message": "does not match", "output.0.content.0.text": '{"b"'},
    ),
    "a message that does not begin": Quirk(
        "llamacpp",
        "anthropic",
        [messages({"type": "text", "text": "Hi"}, start=False, stop="max_tokens")],
        got={"status": "incomplete", "output.0.content.0.text": "Hi", "usage.output_tokens": 2},
    ),
    "input that is counted in parts": Quirk(
        "llamacpp",
        "anthropic",
        [messages({"type": "text", "text": "Hi"}, usage={"input_tokens": 2, "cache_read_input_tokens": 15})],
        got={
            "usage.input_tokens": 17,
            "usage.input_tokens_details.cached_tokens": 15,
            "usage.total_tokens": 19,
        },
    ),
    "a message again behind its calls": Quirk(
        "transformers",
        "responses",
        [
            [
                *responses(said("I call."), called("1"))[:-1],
                *frames(
                    [
                        {
                            "type": "response.output_item.added",
                            "output_index": 1,
                            "item": {**said(""), "content": []},
                        },
                        {
                            "type": "response.output_text.done",
                            "output_index": 1,
                            "item_id": "msg_1",
                            "content_index": 0,
                        }
                        | {"text": "I call.", "logprobs": []},
                        {"type": "response.output_item.done", "output_index": 1, "item": said("I call.")},
                    ]
                ),
                responses(said("I call."), called("1"))[-1],
            ]
        ],
        {"tools": [TOOL]},
        got={"output.0.type": "message", "output.1.type": "function_call", "output.2": None},
    ),
    "two messages under one id": Quirk(
        "transformers",
        "responses",
        [
            [
                *responses(said("One."))[:-1],
                *frames(
                    [
                        {
                            "type": "response.output_item.added",
                            "output_index": 1,
                            "item": {**said(""), "content": []},
                        },
                        {"type": "response.output_item.done", "output_index": 1, "item": said("Two.")},
                    ]
                ),
                responses(said("One."), said("Two."))[-1],
            ]
        ],
        got={"output.0.content.0.text": "One.", "output.1.content.0.text": "Two.", "output.2": None},
    ),
    "no counts at all": Quirk(
        "litellm",
        "anthropic",
        [
            messages(
                {"type": "text", "text": "Hello there, and more."},
                usage={"input_tokens": 0, "output_tokens": 0},
            )
        ],
        got={"usage.estimated": True},
    ),
}


@pytest.fixture(scope="module")
def engine() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as scripted:
        yield scripted


@pytest.fixture(scope="module")
def bridged(engine: ScriptedUpstream) -> Iterator[str]:
    """A server over each engine in each dialect of its profile."""
    spoken_by = sorted({(each.engine, each.dialect) for each in QUIRKS.values()})
    upstreams = [
        UpstreamSettings(
            name=f"{name}-{dialect}",
            profile=name,
            dialect=dialect,
            url=engine.url.removesuffix("/v1") if dialect == "anthropic" else engine.url,
            models=[f"{name}-{dialect}-*"],
            retries=Retries(times=1, first_wait=0.001),
        )
        for name, dialect in spoken_by
    ]
    listed = [(name, stream, quirk.listed) for name, quirk in QUIRKS.items() for stream in (True, False)]
    engine.models = [{"id": model_of(name, stream), **facts} for name, stream, facts in listed if facts]
    with serving(Settings(upstreams=upstreams)) as base:
        assert call(base, "GET", "/v1/models").status == 200
        yield base


def model_of(name: str, stream: bool) -> str:
    """Its name in the requests of a row."""
    quirk = QUIRKS[name]
    return f"{quirk.engine}-{quirk.dialect}-{list(QUIRKS).index(name)}-{stream}"


def at(value: Any, path: str) -> Any:
    """The value at a path, None where there is none."""
    for name in path.split("."):
        if isinstance(value, list):
            value = value[int(name)] if int(name) < len(value) else None
        elif isinstance(value, dict):
            value = value.get(name)
        else:
            return None
    return value


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("name", QUIRKS)
def test_a_client_of_an_engine_gets_what_it_should(
    name: str, streamed: bool, bridged: str, engine: ScriptedUpstream
) -> None:
    quirk = QUIRKS[name]
    model = model_of(name, streamed)
    engine.scripts[model] = [each if isinstance(each, Script) else Script(each) for each in quirk.answers]
    before = len(engine.received)
    reply = respond(bridged, model=model, stream=streamed, **{"store": False, **quirk.asked})
    assert reply.status == 200, reply.body
    assert not streamed or violations(reply) == []
    response = reply.final if streamed else reply.json
    requests = engine.received[before:]
    assert len(requests) == len(quirk.answers)
    body = requests[-1].body
    assert {path: at(body, path) for path in quirk.sent} == quirk.sent
    assert {path: at(response, path) for path in quirk.got} == quirk.got
    assert quirk.losses in reply.headers.get("openresponses-losses", "")


@pytest.mark.parametrize("name", CAPTURES)
def test_a_capture_is_read_to_its_end(name: str, bridged: str, engine: ScriptedUpstream) -> None:
    shared = shared_root()
    captured = None if shared is None else shared / "engines" / "captures" / f"{name}.sse"
    if captured is None or not captured.is_file():
        pytest.skip("needs the captures of engines, beside the shared fixtures")
    dialect, kinds, status, text = CAPTURES[name]
    model = f"{name.partition('-')[0]}-{dialect}-{name}"
    engine.scripts[model] = Script([captured.read_bytes()])
    response = stream(bridged, model=model, tools=[TOOL], store=False).final
    assert ([item["type"] for item in response["output"]], response["status"]) == (kinds, status)
    assert response["output"][0]["content"][0]["text"].endswith(text)
    assert response["usage"]["input_tokens"] > 0
    assert response["usage"]["output_tokens"] > 0


BODY = b'{"model":"m","max_tokens":8192,"messages":[]}'


@pytest.mark.parametrize(
    ("message", "room"),
    [
        (LIMIT_OF_VLLM, 4096 - len(BODY) // 3),
        (COUNTED, 4079),
        (
            "This model's maximum context length is 4097 tokens. However, you requested 8209 tokens (17 in "
            "the messages, 8192 in the completion). Please reduce the length of the messages or completion.",
            4080,
        ),
        (
            "Requested token count exceeds the model's maximum context length of 4,096 tokens. You requested "
            "a total of 8209 tokens: 17 tokens from the input messages and 8192 tokens for the completion.",
            4079,
        ),
        ("max_tokens is too large: 8192. This model supports at most 4,096 completion tokens.", 4096),
        (
            "max_tokens: 8192 > 4096, which is the maximum allowed number of output tokens for m-2024-08-06",
            4096,
        ),
        ("input length and `max_tokens` exceed context limit: 195000 + 8192 > 200000, decrease it", 5000),
        ("Invalid max_tokens value, the valid range of max_tokens is [1,4096]", 4096),
        ("`max_tokens` must be less than or equal to `4096`", 4096),
        # nothing to learn from
        ("max_tokens is too large", None),
        ("max_tokens must be at least 100000", None),
        ("This model's maximum context length is 4096 tokens. Your prompt has 5000.", None),
        ("max_tokens: this model's maximum context length is 4096 tokens, of 5000 input tokens", None),
        ("prompt is too long: 210000 tokens > 200000 maximum", None),
        ("max_tokens " + "9" * 100_000, None),
        ("max_tokens " + "1," * 50_000, 1),
        ("max_tokens " + "0 " * 50_000, None),
        ("\u0661\u0662 max_tokens \u0661\u0662", 12),
    ],
)
def test_a_refusal_says_how_long_an_answer_may_be(message: str, room: int | None) -> None:
    assert output_room(UpstreamError(400, message), BODY) == room
    assert output_room(UpstreamError(429, message), BODY) is None
    assert output_room(UpstreamError(400, message), b'{"model":"m","messages":[]}') is None
