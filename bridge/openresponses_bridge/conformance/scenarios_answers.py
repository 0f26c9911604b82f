"""Transport, schema and order: one request, one answer."""

from __future__ import annotations

from typing import Any, Final

from openresponses_bridge.conformance.scenario import (
    HttpRequest,
    NotOffered,
    Play,
    ServerUnderTest,
    expect,
    expect_marker,
    expect_refusal,
    expect_stream,
    expect_whole,
    items,
    need_support,
    object_in,
    scenario,
    text_of,
)
from openresponses_bridge.sse import is_done

LONG_STORY: Final = "Write a story of 300 words about a lighthouse."
_PIXEL: Final = (  # one grey pixel
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mNoAAAAggCB2kUI"
    "OwAAAABJRU5ErkJggg=="
)
_TRIP: Final = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


@scenario("HTTP")
def transport_whole(target: ServerUnderTest) -> Play:
    """Without `stream` the answer is one JSON response, completed, with text."""
    response = expect_whole((yield target.create()), target)
    expect(text_of(response), "the output has no text")


@scenario("HTTP")
def transport_streamed(target: ServerUnderTest) -> Play:
    """With `stream` the answer is server-sent events that end with the literal [DONE]."""
    answer = yield target.create(stream=True)
    expect_stream(answer, target)
    expect_marker(answer, target)
    named = [frame.event for frame in answer.frames if not is_done(frame)]
    expect(named == answer.types, "an SSE `event` differs from its data's `type`")


@scenario("HTTP")
def transport_line_ends(target: ServerUnderTest) -> Play:
    """Lines end with LF, since the parsers of widespread clients look for blank lines of that kind."""
    answer = yield target.create(stream=True)
    expect_stream(answer, target)
    expect(b"\r" not in answer.body, "the stream holds carriage returns")


@scenario("OpenAI's API reference")
def transport_models(target: ServerUnderTest) -> Play:
    """If the server has a list of models, each model in it has an id."""
    answer = yield HttpRequest(path="/models", method="GET")
    if answer.status != 200:
        raise NotOffered(f"GET /models: status {answer.status}")
    page = answer.json if isinstance(answer.json, dict) else {}
    expect(page.get("object") == "list", f"object is {page.get('object')!r}, not 'list'")
    expect(isinstance(page.get("data"), list), "`data` is not a list")
    for model in page["data"]:
        named = isinstance(model, dict) and isinstance(model.get("id"), str)
        expect(named and model.get("object") == "model", f"an entry that is not a model: {model!r:.80}")


@scenario("schema CreateResponseBody")
def schema_input_forms(target: ServerUnderTest) -> Play:
    """Input may be a string, messages with strings, or messages with parts, with every role and phase."""
    part = {"type": "input_text", "text": "Say hello."}
    answer = {"type": "message", "role": "assistant", "phase": "final_answer", "content": "Hello."}
    forms: list[Any] = [
        "Say hello.",
        [{"type": "message", "role": "user", "content": "Say hello."}],
        [{"type": "message", "role": "user", "content": [part]}],
        [
            {"type": "message", "role": "system", "content": "Be brief."},
            {"type": "message", "role": "developer", "content": "Be kind."},
            {"type": "message", "role": "user", "content": "Say hello."},
            answer,
            {"type": "message", "role": "user", "content": "Again."},
        ],
    ]
    for form in forms:
        expect_whole((yield target.create(input=form)), target)


@scenario("schema InputImageContentParamAutoParam")
def schema_image_input(target: ServerUnderTest) -> Play:
    """A user's message may contain an image as a data URL."""
    parts = [
        {"type": "input_text", "text": "Which colour is this?"},
        {"type": "input_image", "image_url": _PIXEL},
    ]
    answer = yield target.create(input=[{"type": "message", "role": "user", "content": parts}])
    need_support(answer, "images")
    expect_whole(answer, target)


@scenario("schema ResponseResource")
def schema_echo(target: ServerUnderTest) -> Play:
    """The response repeats the request's instructions, metadata, limits and `store`."""
    fields: dict[str, Any] = {
        "instructions": "Answer briefly.",
        "metadata": {"purpose": "conformance"},
        "max_output_tokens": 4096,
        "store": False,
    }
    response = expect_whole((yield target.create(**fields)), target)
    for name, value in fields.items():
        expect(response.get(name) == value, f"{name} is {response.get(name)!r:.80}, asked was {value!r}")


@scenario("schema ResponseResource")
def schema_ids(target: ServerUnderTest) -> Play:
    """Each response has its own id, and so have its items."""
    first = expect_whole((yield target.create(store=False)), target)
    second = expect_whole((yield target.create(store=False)), target)
    expect(first["id"] != second["id"], f"two responses have the id {first['id']!r}")
    shared = {item.get("id") for item in first["output"]} & {item.get("id") for item in second["output"]}
    expect(not shared - {None}, f"items of two responses have one id: {', '.join(map(str, shared))}")


@scenario("schema JsonSchemaResponseFormatParam")
def schema_json_output(target: ServerUnderTest) -> Play:
    """With `text.format` json_schema the text is JSON, and the response repeats the format."""
    form = {"type": "json_schema", "name": "trip", "schema": _TRIP, "strict": True}
    answer = yield target.create(input="A trip to Oslo. Answer as JSON.", text={"format": form})
    need_support(answer, "text.format json_schema")
    if answer.response.get("status") == "failed":
        raise NotOffered("the model did not keep to the format, and the server says so")
    response = expect_whole(answer, target)
    text = text_of(response)
    echoed = (response.get("text") or {}).get("format") or {}
    for name in ("type", "name"):
        expect(echoed.get(name) == form[name], f"text.format.{name} is {echoed.get(name)!r:.80}")
    expect(isinstance((object_in(text) or {}).get("city"), str), f"not the JSON asked for: {text!r:.120}")


@scenario("Streaming")
def order_stream(target: ServerUnderTest) -> Play:
    """The events come in order: created, in_progress, output_item.added, the item's content, and the terminal
    event last."""
    answer = yield target.create(stream=True)
    expect_stream(answer, target)
    kinds = answer.types
    expect(kinds[0] == "response.created", f"the first event is {kinds[0]}")
    expect("response.in_progress" in kinds, "there is no response.in_progress")
    output = [kind for kind in kinds if not kind.startswith("response.") or kind.count(".") > 1]
    expect(
        output and output[0] == "response.output_item.added", "output does not begin with output_item.added"
    )
    expect(kinds[-1] == "response.completed", f"the last event is {kinds[-1]}")


@scenario("Streaming")
def order_agreement(target: ServerUnderTest) -> Play:
    """The text deltas add up to the text of the terminal response."""
    answer = yield target.create(stream=True, input=LONG_STORY)
    response = expect_stream(answer, target, "completed", "incomplete")
    kind = "response.output_text.delta"
    deltas = "".join(event["delta"] for event in answer.events if event.get("type") == kind)
    expect(deltas == text_of(response), "the deltas are not the text of the terminal response")


@scenario("Items")
def order_incomplete(target: ServerUnderTest) -> Play:
    """An answer that max_output_tokens cuts off ends as incomplete, and so does its last item."""
    answer = yield target.create(stream=True, input=LONG_STORY, max_output_tokens=16)
    _expect_cut(expect_stream(answer, target, "completed", "incomplete"))


@scenario("Items")
def order_incomplete_whole(target: ServerUnderTest) -> Play:
    """An answer that is cut off has the status incomplete even if it is not streamed."""
    fields = {"input": LONG_STORY, "max_output_tokens": 16}
    streamed = expect_stream((yield target.create(stream=True, **fields)), target, "completed", "incomplete")
    if streamed["status"] == "completed":
        raise NotOffered("max_output_tokens did not cut the answer")
    _expect_cut(expect_whole((yield target.create(**fields)), target, "incomplete"))


def _expect_cut(response: dict[str, Any]) -> None:
    if response["status"] == "completed":
        raise NotOffered("max_output_tokens did not cut the answer")
    reason = (response.get("incomplete_details") or {}).get("reason")
    expect(reason == "max_output_tokens", f"the reason is {reason!r}")
    for message in items(response, "message"):
        expect(message.get("status") == "incomplete", "the message that was cut is not incomplete")


@scenario("Errors")
def errors_malformed_json(target: ServerUnderTest) -> Play:
    """A body that is not JSON is refused with 400."""
    expect_refusal((yield HttpRequest(body=b'{"model": ')), 400)


@scenario("Errors")
def errors_wrong_type(target: ServerUnderTest) -> Play:
    """A field of a wrong type is refused, and `param` names it."""
    error = expect_refusal((yield target.create(input=5)), 400, 422)
    expect(str(error.get("param")).startswith("input"), f"param is {error.get('param')!r}, not 'input'")


@scenario("schema CreateResponseBody")
def errors_out_of_range(target: ServerUnderTest) -> Play:
    """A number outside its range is refused, and `param` names it."""
    error = expect_refusal((yield target.create(max_output_tokens=1)), 400, 422)
    expect(error.get("param") == "max_output_tokens", f"param is {error.get('param')!r}")


@scenario("Errors")
def errors_unknown_model(target: ServerUnderTest) -> Play:
    """An unknown model is refused, unless the server accepts every name."""
    answer = yield HttpRequest(body={"model": "no-such-model-conformance", "input": "Hello"})
    if answer.status == 200:
        raise NotOffered("every model name is served")
    error = expect_refusal(answer, 400, 404)
    expect(error.get("message"), "the refusal says nothing")


@scenario("Errors")
def errors_before_the_stream(target: ServerUnderTest) -> Play:
    """A request for a stream is refused with a status, not within a stream."""
    expect_refusal((yield target.create(stream=True, input=5)), 400, 422)


@scenario("Errors")
def errors_output_without_call(target: ServerUnderTest) -> Play:
    """A tool's output without its call is refused."""
    orphan = {"type": "function_call_output", "call_id": "call_conformance_none", "output": "12"}
    expect_refusal((yield target.create(input=[orphan])), 400, 404, 422)


@scenario("Errors")
def errors_leave_the_server_well(target: ServerUnderTest) -> Play:
    """The request after a refusal is answered."""
    expect_refusal((yield HttpRequest(body=b"[]")), 400, 422)
    expect_whole((yield target.create()), target)
