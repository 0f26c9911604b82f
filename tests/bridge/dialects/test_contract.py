"""The contract of every dialect's `DIALECT`: the same calls, whatever the dialect."""

import inspect
import json
from contextlib import suppress
from importlib import import_module
from typing import Any, is_typeddict

import pytest
from msgspec.structs import replace

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.conformance.validator import StreamValidator
from openresponses_bridge.dialects.base import (
    AnswerContext,
    AnswerForm,
    Asked,
    Dialect,
    FormContext,
    RequestContext,
    RequestHead,
    Traits,
)
from openresponses_bridge.dialects.responses import Inbound as ResponsesInbound
from openresponses_bridge.dialects.table import TABLE, dialects
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.errors import HttpError, InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.protocol.events import Event, OutputTextDelta
from openresponses_bridge.seal import Sealer
from openresponses_bridge.sse import SSEDecoder
from tests.support.model_frames import frames
from tests.support.model_scripts import SCRIPTS
from tests.support.shared import REPOSITORY

ENTRIES = list(dialects().values())
UPSTREAMS = [entry for entry in ENTRIES if entry.upstream is not None]
CLIENTS = [entry for entry in ENTRIES if entry.client is not None]
ASKED = [entry for entry in ENTRIES if entry.surface is not None]
FRAMINGS = {
    entry.upstream.endpoint.framing.content_type: entry.upstream.endpoint.framing
    for entry in ENTRIES
    if entry.upstream and entry.upstream.endpoint and entry.upstream.endpoint.framing
}
PLAIN = (
    {"model": "m", "input": "Hi"},
    {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9},
    {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
    {"model": "m", "messages": [{"role": 1, "content": "Hi"}]},
    {"model": "m", "said": ["Hi"]},
    {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]},
    {"anthropic_version": "v", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]},
)
SENT = {each.name: frames(each.package, SCRIPTS["text"]) for each in TABLE}


def machine() -> ResponseStreamStateMachine:
    return ResponseStreamStateMachine("m", wire="openai")


def name_of(entry: Dialect) -> str:
    return entry.name


def of_text(events: list[Event]) -> str:
    return "".join(event.delta for event in events if isinstance(event, OutputTextDelta))


def test_a_line_of_the_table_says_what_its_entry_does() -> None:
    lines = [(each.name, each.client) for each in TABLE]
    assert lines == [(entry.name, entry.client is not None) for entry in ENTRIES]
    packages = {
        path.parent.name for path in REPOSITORY.glob("bridge/openresponses_bridge/dialects/*/dialect.py")
    } - {"base"}
    assert sorted(each.package for each in TABLE) == sorted(packages)
    assert len({entry.title for entry in ENTRIES}) == len(ENTRIES)


@pytest.mark.parametrize("entry", UPSTREAMS, ids=name_of)
def test_a_server_of_it_has_an_endpoint_and_traits(entry: Dialect) -> None:
    assert entry.upstream is not None
    assert isinstance(entry.upstream.traits(entry.upstream.options()), Traits)
    endpoint = entry.upstream.endpoint
    if endpoint is not None:
        assert endpoint.path.startswith("/")
        assert endpoint.key_header == endpoint.key_header.lower()
        assert all(name == name.lower() for name in endpoint.headers)


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_a_capture_is_recognised_by_its_own_dialect(entry: Dialect) -> None:
    first = json.loads(SENT[entry.name][0])
    assert next(each.name for each in ENTRIES if each.capture.recognises(first)) == entry.name
    assert not entry.capture.recognises({})
    entry.capture.head(first)


@pytest.mark.parametrize("named", [False, True], ids=["data alone", "with the event's name"])
@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_each_inbound_is_fed_alike(entry: Dialect, named: bool) -> None:
    stream = machine()
    inbound = entry.capture.inbound(stream)
    validator, events = StreamValidator("openai"), []
    for frame in SENT[entry.name]:
        kind = json.loads(frame).get("type", "") if frame.startswith(b"{") else ""
        events += inbound.feed(frame, kind) if named else inbound.feed(frame)
    events += inbound.close()
    assert [violation for event in events for violation in validator.feed(event)] == []
    assert events[-1].type == "response.completed"
    assert inbound.diagnostics is stream.diagnostics
    assert inbound.close() == []


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b'"a"', b"\xff", b'{"type":7}', b"[DONE]", b"[" * 5000]
)
@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_no_frame_makes_an_inbound_raise(entry: Dialect, data: bytes) -> None:
    inbound = entry.capture.inbound(machine())
    events = inbound.feed(data, "none") + inbound.feed(data) + inbound.close()
    assert events[0].type == "response.created"
    assert sum(event.type in ("response.completed", "response.failed") for event in events) == 1


@pytest.mark.parametrize("entry", UPSTREAMS, ids=name_of)
def test_a_request_goes_out_and_asks_for_a_stream_or_a_whole_answer(entry: Dialect) -> None:
    assert entry.upstream is not None
    context = RequestContext([], "its-name", entry.upstream.options(), Sealer(), ToolIdentityMap())
    request = decode_request(b'{"model":"m","input":"Hi"}')
    body, diagnostics = entry.upstream.request(request, context)
    sent: dict[str, Any] = json.loads(body)
    outcomes = entry.upstream.outcomes(context.options)
    # else it is always a stream, or the path says it
    named, says = (outcomes[field].kind == "sent" for field in ("model", "stream"))
    outcome = (sent.get("model"), sent.get("stream"), list(diagnostics))
    assert outcome == ("its-name" if named else None, says or None, [])
    endpoint = entry.upstream.endpoint
    assert named or endpoint is None or "its-name" in endpoint.path_of("its-name")
    whole, _ = entry.upstream.request(request, context._replace(stream=False))
    assert not json.loads(whole).get("stream")
    with pytest.raises(InvalidRequestError):
        entry.upstream.request(replace(request, input=[]), context)


@pytest.mark.parametrize("entry", UPSTREAMS, ids=name_of)
def test_a_name_of_a_model_is_one_segment_of_a_path_or_is_refused(entry: Dialect) -> None:
    assert entry.upstream is not None
    endpoint = entry.upstream.endpoint
    if endpoint is None or "{model}" not in endpoint.path:
        return
    for name in (".", ".."):
        with pytest.raises(InvalidRequestError, match="model: "):
            endpoint.path_of(name)
    slashes = endpoint.path_of("m").count("/")
    for name in ("\ud800", "../a", "a?b#c", "a\r\nb: c", "..%2F"):
        path = endpoint.path_of(name)
        assert path.isascii()
        assert path.isprintable()
        assert (path.count("/"), path.count("?"), "#" in path) == (slashes, endpoint.path.count("?"), False)


@pytest.mark.parametrize("entry", UPSTREAMS, ids=name_of)
def test_an_upstream_is_read(entry: Dialect) -> None:
    assert entry.upstream is not None
    inbound = entry.upstream.inbound(
        machine(), AnswerContext(entry.upstream.options(), Sealer(), ToolIdentityMap())
    )
    events = [event for frame in SENT[entry.name] for event in inbound.feed(frame)] + inbound.close()
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")


@pytest.mark.parametrize("entry", CLIENTS, ids=name_of)
def test_what_a_client_gets_is_read_again(entry: Dialect) -> None:
    """Through the entry alone: events → chunks → bytes, which its own inbound reads as the same text."""
    assert entry.client is not None
    stream = machine()
    outbound = entry.client.outbound()
    events = stream.start() + stream.text("Hel") + stream.text("lo") + stream.finish("stop")
    chunks = [chunk for event in events for chunk in outbound.feed(event)] + outbound.close()
    data = entry.client.encode(chunks)
    assert data == b"".join(entry.client.encode([chunk]) for chunk in chunks)
    lines = [line.removeprefix(b"data: ") for line in data.splitlines() if line[:1] in b"{d" and line]
    inbound = entry.capture.inbound(machine())
    read = [event for line in lines for event in inbound.feed(line)] + inbound.close()
    assert (of_text(read), read[-1].type) == ("Hello", "response.completed")
    assert list(outbound.diagnostics) == []


def read_by(entry: Dialect) -> Asked:
    """The first of the plain requests that this API reads with an input."""
    assert entry.surface is not None
    for body in PLAIN:
        with suppress(InvalidRequestError):
            asked = entry.surface.read(encode(body), RequestHead(sealer=Sealer()))
            if asked.request.input:
                return asked
    raise AssertionError(f"{entry.name} reads none of the requests")


@pytest.mark.parametrize("entry", ASKED, ids=name_of)
def test_an_api_answers_in_a_stream_or_with_one_body(entry: Dialect) -> None:
    assert entry.surface is not None
    asked, bad, stream = read_by(entry), machine(), machine()
    bad.start(), bad.fail("broken")
    events = stream.start() + stream.text("Hel") + stream.text("lo") + stream.finish("stop")

    def form() -> AnswerForm:
        return asked.form(FormContext(so_far=lambda: stream.snapshot, sealer=Sealer()))

    (encode_events,), ends = form().encoders, form()
    pieces = [*map(ends.encoders[0], ([event] for event in events)), ends.end()]
    assert b"".join(pieces[:-1]) == encode_events(events)
    framing = FRAMINGS.get(ends.stream_type.decode())
    if framing is None:
        assert b"Hel" in b"".join(pieces)
        assert entry.surface.keep_alive.endswith(b"\n")
    else:  # bytes of its own: whole ones, of which those of a keep-alive say nothing
        for data, expected in ((b"".join(pieces), "Hello"), (entry.surface.keep_alive * 2, "")):
            read, inbound = framing.reader(), entry.capture.inbound(machine())
            read_frames = SSEDecoder().feed(read.feed(data))
            read.close()
            got = [event for frame in read_frames for event in inbound.feed(frame.data, frame.event)]
            assert of_text(got) == expected
    assert ends.stream_type.decode().partition("/")[2]
    if asked.request.stream is not True:
        assert b"Hello" in (form().whole(stream.snapshot) or b"")
        if not ends.is_protocol:
            assert form().whole(bad.snapshot) is None
    refused = entry.surface.error(HttpError(429, "Not now.", headers={"retry-after": "7"}))
    assert b"Not now." in refused
    assert all(place.header == place.header.lower() for place in entry.surface.keys)
    assert all(at.path.startswith("/") for at in entry.surface.paths)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'"{}"', b'{"messages":7,"input":7}', b'{"model":7,"messages":7}']
)
@pytest.mark.parametrize("entry", ASKED, ids=name_of)
def test_a_client_is_refused_with_the_place(entry: Dialect, body: bytes) -> None:
    assert entry.surface is not None
    with pytest.raises(InvalidRequestError) as caught:
        entry.surface.read(body, RequestHead(sealer=Sealer()))
    assert caught.value.code


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_no_option_is_of_any_name(entry: Dialect) -> None:
    """Public signatures say which options there are: `**options` are typed by name, never Any."""
    folder = next(each.package for each in TABLE if each.name == entry.name)
    package = import_module(f"openresponses_bridge.dialects.{folder}")
    for name in package.__all__:
        public = getattr(package, name)
        has_signature = callable(public) and not is_typeddict(public)
        for parameter in inspect.signature(public).parameters.values() if has_signature else ():
            open_ended = parameter.kind is inspect.Parameter.VAR_KEYWORD
            assert not open_ended or str(parameter.annotation).startswith("Unpack["), (name, parameter)


NOT_A_NUMBER = {
    "chat": b'{"choices":[{"index":0,"delta":{"content":"Hi"}}],"time":NaN}',
    "anthropic": b'{"type":"content_block_delta","index":0,"delta":{"text":"Hi"},"t":NaN}',
    "gemini": b'{"candidates":[{"content":{"parts":[{"text":"Hi"}]},"avgLogprobs":-Infinity}]}',
    "responses": b'{"type":"response.output_text.delta","output_index":0,"item_id":"m","content_index":0,'
    b'"delta":"Hi","logprobs":[],"sequence_number":NaN}',
}


@pytest.mark.parametrize("entry", [each for each in UPSTREAMS if each.name in NOT_A_NUMBER], ids=name_of)
def test_a_number_that_json_does_not_have_loses_no_text(entry: Dialect) -> None:
    assert entry.upstream is not None
    own = machine()
    inbound = entry.upstream.inbound(
        own, AnswerContext(entry.upstream.options(), Sealer(), ToolIdentityMap())
    )
    inbound.feed(NOT_A_NUMBER[entry.name])
    assert own.snapshot.output_text == "Hi"


def test_usage_of_responses_under_the_names_of_chat_is_read() -> None:
    own = machine()
    inbound = ResponsesInbound(own)
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "completion_tokens_details": {"reasoning_tokens": 1}}
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": []}
    inbound.feed(
        encode({"type": "response.completed", "response": {**head, "status": "completed", "usage": usage}})
    )
    assert own.snapshot.usage is not None
    counts = own.snapshot.usage
    assert (counts.input_tokens, counts.output_tokens, counts.total_tokens) == (5, 2, 7)
    assert counts.output_tokens_details.reasoning_tokens == 1
