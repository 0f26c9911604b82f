"""InvokeModel is Messages in another envelope: it reads and writes the same, however the bytes are divided,
and no other capture is recognised as it."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

import pytest
from anthropic.types.beta import beta_content_block_param
from anthropic.types.beta import message_create_params as params
from hypothesis import given, settings
from hypothesis import strategies as st

from openresponses_bridge.dialects import anthropic_messages, bedrock_invoke, responses
from openresponses_bridge.dialects.base import Asked, RequestHead, Surface
from openresponses_bridge.dialects.bedrock_converse import EventStreamDecoder, encode_event
from openresponses_bridge.dialects.bedrock_converse.event_stream import FramesOfMessages
from openresponses_bridge.dialects.bedrock_invoke import Inbound, Outbound, encode_events, encode_sse
from openresponses_bridge.dialects.bedrock_invoke import outbound as sent
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.errors import HttpError, InvalidRequestError, WireError
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.seal import Sealer
from openresponses_bridge.sse import SSEDecoder
from openresponses_bridge.testing import RandomStream, streams
from tests.support.converse import pieces_of
from tests.support.machines import machine
from tests.support.messages_fields import NAMED, bodies
from tests.support.scale import FACTOR
from tests.support.strict_converse import service_model
from tests.support.typed_fields import TypedFields

Json = dict[str, Any]
SEALER = Sealer(bytes(32), nonce=lambda: bytes(12))
HELLO: Json = {"max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]}
VERSION = {"anthropic_version": "bedrock-2023-05-31"}
METRICS = "amazon-bedrock-invocationMetrics"


def surface_of(dialect: Any) -> Surface:
    surface = dialect.DIALECT.surface
    assert isinstance(surface, Surface)
    return surface


MESSAGES, INVOKE = surface_of(anthropic_messages), surface_of(bedrock_invoke)


def read(body: Any, model: str = "m", *, stream: bool = False, **headers: str) -> Asked:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    head = RequestHead(sealer=SEALER, fields={"model": model}, stream=stream, headers=named)
    return INVOKE.read(json.dumps(body).encode(), head)


def count(given: Any) -> Any:
    assert INVOKE.count is not None
    body = json.dumps({"input": given}).encode()
    return INVOKE.count.read(body, RequestHead(sealer=SEALER, fields={"model": "m"}))


# ── requests ───────────────────────────────────────────────────────────────────────────────────────────
def of_messages(body: Json, *, stream: bool = False) -> Asked:
    named = {"model": "m", "stream": stream, **body}
    return MESSAGES.read(json.dumps(named).encode(), RequestHead(sealer=SEALER))


def test_each_field_of_messages_is_read_as_there() -> None:
    typed = TypedFields({}, {}, NAMED, whole=True)
    cases = list(
        bodies(
            typed.of(params.MessageCreateParamsBase),
            typed.of(beta_content_block_param.BetaContentBlockParam),
            [],
        )
    )
    assert len(cases) > 100
    for name, body in cases:
        bare = {field: value for field, value in body.items() if field != "model"}
        assert outcome(read, {**VERSION, **bare}) == outcome(of_messages, bare), name


def outcome(ask: Callable[[Json], Asked], body: Json) -> tuple[Any, Any]:
    """The request and its losses, or why it is refused and where."""
    try:
        result = ask(body)
    except InvalidRequestError as error:
        return error.message, error.param
    return result.request, list(result.losses or ())


@pytest.mark.parametrize("stream", [False, True])
def test_the_path_says_the_model_and_whether_to_stream(stream: bool) -> None:
    asked = read({**VERSION, **HELLO, "model": "of the body", "stream": not stream}, "a/b", stream=stream)
    assert (asked.request.model, asked.request.stream) == ("a/b", stream)


def test_betas_of_the_body_are_those_of_the_header() -> None:
    assert read({**VERSION, **HELLO}).headers == {}
    assert read({**VERSION, **HELLO, "anthropic_beta": []}).headers == {}
    both = read({**VERSION, **HELLO, "anthropic_beta": ["a-1", "b-2"]}, anthropic_beta="c-3")
    assert both.headers == {"anthropic-beta": "c-3,a-1,b-2"}
    assert "anthropic_beta" not in str(both.request.native)
    with pytest.raises(InvalidRequestError, match="anthropic_beta"):
        read({**VERSION, **HELLO, "anthropic_beta": [1]})
    with pytest.raises(InvalidRequestError, match="anthropic_beta"):
        read({**VERSION, **HELLO, "anthropic_beta": "a-1"})


FORMATS: dict[str, Json] = {
    "Titan": {"inputText": "Hello", "textGenerationConfig": {"maxTokenCount": 9}},
    "Llama": {"prompt": "Hello", "max_gen_len": 9},
    "Nova": {"schemaVersion": "messages-v1", "messages": [{"role": "user", "content": [{"text": "Hello"}]}]},
    "Messages without a version": HELLO,
    "a version that is none": {"anthropic_version": None, **HELLO},
    "nothing": {},
}


@pytest.mark.parametrize("name", FORMATS)
def test_other_formats_are_refused_with_the_one_that_is_taken(name: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read(FORMATS[name])
    assert caught.value.param == "anthropic_version"
    for word in ("Messages", "max_tokens", "Converse"):
        assert word in caught.value.message
    encoded = b64encode(json.dumps(FORMATS[name]).encode()).decode()
    with pytest.raises(InvalidRequestError, match="Messages"):
        count({"invokeModel": {"body": encoded}})


def test_what_bedrock_alone_knows_is_a_loss() -> None:
    asked = read(
        {**VERSION, **HELLO, "amazon-bedrock-guardrailConfig": {"streamProcessingMode": "SYNCHRONOUS"}},
        x_amzn_bedrock_guardrailidentifier="g1",
        x_amzn_bedrock_accept="application/json",
        x_amzn_bedrock_service_tier="priority",
    )
    assert asked.losses is not None
    lost = [case.where for case in asked.losses.of("loss")]
    assert lost == ["amazon-bedrock-guardrailConfig", "x-amzn-bedrock-guardrailidentifier"]
    assert asked.request.service_tier == "priority"
    assert "guardrail" not in str(asked.request.native)


def test_tokens_are_counted_of_either_api() -> None:
    encoded = b64encode(json.dumps({**VERSION, **HELLO}).encode()).decode()
    of_invoke, _ = count({"invokeModel": {"body": encoded}})
    of_converse, _ = count({"converse": {"messages": [{"role": "user", "content": [{"text": "Hello"}]}]}})
    assert of_invoke.model == of_converse.model == "m"
    without_limit = {**VERSION, "messages": HELLO["messages"]}
    encoded = b64encode(json.dumps(without_limit).encode()).decode()
    assert count({"invokeModel": {"body": encoded}})[0].input == of_invoke.input


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({}, "input"),
        ({"invokeModel": {}}, "input.invokeModel.body"),
        ({"invokeModel": {"body": "%"}}, "input.invokeModel.body"),
        ({"invokeModel": {"body": 7}}, "input.invokeModel.body"),
        ({"converse": 7}, "input.converse"),
        ({"invokeModel": {"body": b64encode(b"{").decode()}}, None),
    ],
)
def test_what_can_not_be_counted_is_refused_with_its_place(given: Json, place: str | None) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        count(given)
    assert caught.value.param == place


@pytest.mark.parametrize(
    ("authorization", "taken"),
    [
        ("AWS4-HMAC-SHA256 Credential=a", True),
        ("Bearer key", True),
        ("bearer key", True),
        ("Basic YTpi", False),
        ("", False),
    ],
)
def test_bodies_without_a_type_are_taken_of_who_is_no_page(authorization: str, taken: bool) -> None:
    assert INVOKE.takes_any_type({"authorization": authorization}) is taken
    assert MESSAGES.takes_any_type({"authorization": authorization}) is False


# ── answers ────────────────────────────────────────────────────────────────────────────────────────────
def events_of(stream: RandomStream) -> list[Event]:
    inbound = responses.Inbound(machine("openai"))
    frames = (decoder := SSEDecoder()).feed(stream.body) + decoder.close()
    return [event for frame in frames for event in inbound.feed(frame.data)] + inbound.close()


def spoken(events: list[Event]) -> list[Json]:
    outbound = Outbound(SEALER)
    return [chunk for event in events for chunk in outbound.feed(event)] + outbound.close()


def of_a_text() -> list[Event]:
    state_machine = ResponseStreamStateMachine("m", clock=lambda: 5.0)
    return (
        state_machine.start()
        + state_machine.text("Hel")
        + state_machine.text("lo")
        + state_machine.finish("stop")
    )


def within(payload: bytes) -> Json:
    chunk: Json = json.loads(b64decode(json.loads(payload)["bytes"], validate=True))
    return chunk


@given(streams(), st.integers(0, 1000))
@settings(max_examples=60 * FACTOR, deadline=None)
def test_botocore_reads_the_stream_of_messages(stream: RandomStream, seed: int) -> None:
    """In any pieces, with keep-alives between: the chunks are the events that Messages has, the last one with
    metrics, and a failure is an exception."""
    eventstream = pytest.importorskip("botocore.eventstream")
    from botocore.parsers import EventStreamJSONParser

    shape = service_model().operation_model("InvokeModelWithResponseStream").output_shape.members["body"]
    events = events_of(stream)
    plain = anthropic_messages.Outbound(SEALER)
    chunks = [chunk for event in events for chunk in plain.feed(event)] + plain.close()
    frames = SSEDecoder().feed(anthropic_messages.encode_sse(chunks))
    expected = [json.loads(frame.data) for frame in frames]
    buffer, messages = eventstream.EventStreamBuffer(), []
    data = b"".join(encode_events([body]) + INVOKE.keep_alive for body in spoken(events))
    for piece in pieces_of(data, seed):
        buffer.add_data(piece)
        messages += [each.to_response_dict() for each in buffer]
    payloads = [each for each in messages if each["headers"].get(":event-type") != "keepAlive"]
    assert len(messages) == 2 * len(payloads)
    got = [json.loads(EventStreamJSONParser().parse(each, shape)["chunk"]["bytes"]) for each in payloads[:-1]]
    assert without_envelopes(got) == without_envelopes(expected[:-1])
    if expected[-1]["type"] == "error":
        error = EventStreamJSONParser().parse(payloads[-1], shape)["Error"]
        assert error["Message"] == expected[-1]["error"]["message"]
        assert error["Code"] in shape.members
    else:
        last = json.loads(EventStreamJSONParser().parse(payloads[-1], shape)["chunk"]["bytes"])
        assert last.pop(METRICS)["invocationLatency"] >= 0
        assert last == expected[-1] == {"type": "message_stop"}


def without_envelopes(chunks: list[Json]) -> list[Json]:
    """The chunks with one word for each signature that is made here, of which no two are the same."""
    text = json.dumps(chunks)
    for chunk in chunks:
        for value in (*chunk.get("delta", {}).values(), *chunk.get("content_block", {}).values()):
            if isinstance(value, str) and value.startswith("or1."):
                text = text.replace(value, "sealed")
    result: list[Json] = json.loads(text)
    return result


@given(streams())
@settings(max_examples=60 * FACTOR, deadline=None)
def test_a_capture_is_read_as_one_of_messages(stream: RandomStream) -> None:
    events = events_of(stream)
    plain = anthropic_messages.Outbound(SEALER)
    chunks = [chunk for event in events for chunk in plain.feed(event)] + plain.close()
    snapshots = []
    for inbound_of, data in (
        (anthropic_messages.Inbound, anthropic_messages.encode_sse(chunks)),
        (Inbound, encode_sse(spoken(events))),
    ):
        state_machine = machine("openai")
        inbound = inbound_of(state_machine, SEALER)
        for frame in SSEDecoder().feed(data):
            inbound.feed(frame.data, frame.event)
        inbound.close()
        snapshots.append(
            (
                state_machine.snapshot.status,
                state_machine.snapshot.output_text,
                len(state_machine.snapshot.output),
            )
        )
    assert snapshots[0] == snapshots[1]


def test_the_metrics_are_those_of_the_usage() -> None:
    state_machine = ResponseStreamStateMachine("m", clock=iter([5.0, *[8.0] * 99]).__next__)
    events = state_machine.start() + state_machine.text("Hello")
    state_machine.usage(
        {
            "input_tokens": 10,
            "output_tokens": 3,
            "total_tokens": 13,
            "input_tokens_details": {"cached_tokens": 4},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
    )
    last = spoken(events + state_machine.finish("stop"))[-1]["chunk"]
    assert last == {
        "type": "message_stop",
        METRICS: {
            "inputTokenCount": 6,
            "outputTokenCount": 3,
            "cacheReadInputTokenCount": 4,
            "cacheWriteInputTokenCount": 0,
            "invocationLatency": 3000,
        },
    }


FAILURES = [
    ("rate_limit_exceeded", "throttlingException"),
    ("server_is_overloaded", "serviceUnavailableException"),
    ("context_length_exceeded", "validationException"),
    ("upstream_error", "modelStreamErrorException"),
]


@pytest.mark.parametrize(("code", "name"), FAILURES)
def test_a_failure_within_the_stream_is_an_exception(code: str, name: str) -> None:
    state_machine = ResponseStreamStateMachine("m")
    events = (
        state_machine.start()
        + state_machine.text("Hel")
        + state_machine.fail(HttpError(500, "No more.", code=code))
    )
    last = spoken(events)[-1]
    assert list(last) == [name]
    assert "No more." in last[name]["message"]
    (message,) = EventStreamDecoder().feed(encode_events([last]))
    assert message.headers[":message-type"] == "exception"


def test_a_stream_that_ends_early_ends_with_an_exception() -> None:
    state_machine = ResponseStreamStateMachine("m")
    assert list(spoken(state_machine.start() + state_machine.text("Hel"))[-1]) == [
        "modelStreamErrorException"
    ]


def test_a_refusal_has_the_words_and_details_that_clients_of_messages_know() -> None:
    error = HttpError(400, "maximum context length is 9 tokens", code="context_length_exceeded")
    error.native = {"anthropic": {"details": {"error_code": "x"}}}
    body = json.loads(INVOKE.error(error))
    assert body["message"].startswith("prompt is too long")
    assert body["details"] == {"error_code": "x"}
    assert "type" not in body
    assert INVOKE.error_headers(error) == {"x-amzn-errortype": "ValidationException"}


def test_a_text_that_is_too_long_for_one_event_is_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent, "_LONGEST_EVENT", 150)
    long = "é" * 300
    state_machine = ResponseStreamStateMachine("m")
    events = [
        *state_machine.start(),
        *state_machine.reasoning(long),
        *state_machine.text(long),
        *state_machine.tool_call(0, "a", "f", f'"{long}"'),
    ]
    events += state_machine.finish("tool_calls")
    chunks = [within(message.payload) for message in EventStreamDecoder().feed(encode_events(spoken(events)))]
    deltas = [chunk["delta"] for chunk in chunks if chunk["type"] == "content_block_delta"]
    assert len(deltas) > 9
    for name in ("thinking", "text", "partial_json"):
        assert long in "".join(delta.get(name, "") for delta in deltas)
    assert (
        max(len(json.dumps(delta, ensure_ascii=False).encode()) for delta in deltas if "type" in delta) < 200
    )


# ── the bytes ──────────────────────────────────────────────────────────────────────────────────────────
WHOLE = encode_events(spoken(of_a_text()))


def test_a_stream_is_read_however_it_is_cut() -> None:
    whole = EventStreamDecoder().feed(WHOLE)
    assert within(whole[-1].payload)["type"] == "message_stop"
    for at in range(len(WHOLE) + 1):
        decoder = EventStreamDecoder()
        assert decoder.feed(WHOLE[:at]) + decoder.feed(WHOLE[at:]) == whole
        decoder.close()


@pytest.mark.untraced
def test_a_stream_that_is_cut_before_its_stop_reason_is_no_whole_answer() -> None:
    for at in range(len(encode_events(spoken(of_a_text())[:-1]))):
        state_machine = machine("openai")
        inbound, reader = Inbound(state_machine), FramesOfMessages()
        for frame in SSEDecoder().feed(reader.feed(WHOLE[:at])):
            inbound.feed(frame.data, frame.event)
        inbound.close()
        assert state_machine.snapshot.status == "failed", at


def test_a_byte_that_is_another_is_found() -> None:
    first = encode_events(spoken(of_a_text())[:1])
    for at in range(len(first)):
        spoiled = first[:at] + bytes([first[at] ^ 0x10]) + first[at + 1 :]
        with pytest.raises(WireError, match="checksum"):
            FramesOfMessages().feed(spoiled)


ODD = {
    "no base64": b'{"chunk":{"bytes":"%%%"}}',
    "no text": b'{"chunk":{"bytes":7}}',
    "no JSON within": b'{"chunk":{"bytes":"' + b64encode(b"{") + b'"}}',
    "a list within": b'{"chunk":{"bytes":"' + b64encode(b"[]") + b'"}}',
    "another model's": b'{"chunk":{"bytes":"' + b64encode(b'{"outputText":"Hi"}') + b'"}}',
    "no object": b'{"chunk":[]}',
    "no JSON": b"{",
}


@pytest.mark.parametrize("name", ODD)
def test_a_chunk_that_is_none_of_messages_is_no_answer(name: str) -> None:
    state_machine = machine("openai")
    inbound = Inbound(state_machine)
    inbound.feed(ODD[name])
    inbound.close()
    assert state_machine.snapshot.status == "failed"
    capture = bedrock_invoke.DIALECT.capture
    if name != "no JSON":
        assert not capture.recognises(json.loads(ODD[name]))


def test_a_chunk_may_have_its_name_beside_it() -> None:
    """As an event of the stream and as boto3 gives it."""
    state_machine = machine("openai")
    inbound = Inbound(state_machine)
    for message in EventStreamDecoder().feed(WHOLE):
        inbound.feed(message.payload, "chunk")
    inbound.close()
    assert (state_machine.snapshot.status, state_machine.snapshot.output_text) == ("completed", "Hello")


def test_an_exception_in_a_capture_fails_its_response() -> None:
    data = encode_events(spoken(of_a_text())[:3])
    data += encode_event("throttlingException", b'{"message":"Slow down."}', message="exception")
    state_machine = machine("openai")
    inbound = Inbound(state_machine)
    for frame in SSEDecoder().feed(FramesOfMessages().feed(data)):
        inbound.feed(frame.data, frame.event)
    inbound.close()
    assert state_machine.snapshot.status == "failed"
    assert state_machine.snapshot.error is not None
    assert "Slow down." in state_machine.snapshot.error.message
