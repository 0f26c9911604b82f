"""The response itself: its start, its snapshot, its echo of the request, adopted ones (laws E1, E2, E3)."""

import re
from typing import Any

import msgspec
import pytest

from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import (
    decode_json,
    decode_request,
    decode_response,
    encode,
    encode_sse,
)
from openresponses_bridge.protocol.response import RESPONSE_DEFAULTS, Response
from openresponses_bridge.protocol.usage import Usage
from openresponses_bridge.sse import SSEDecoder
from openresponses_bridge.state import ResponseStreamPhase
from tests.support.machines import CLOCK, Run, machine, plain
from tests.support.schema import violations


# ── beginning ────────────────────────────────────────────────────────────────────────────────────────
def test_e2_case_18_case_20_a_stream_begins_with_created_and_in_progress(wire: str) -> None:
    run = Run(wire)
    first, second = (plain(event) for event in run.events)
    assert [first["type"], second["type"]] == ["response.created", "response.in_progress"]
    assert [first["sequence_number"], second["sequence_number"]] == [0, 1]
    assert first["response"] == second["response"]
    assert first["response"]["status"] == "in_progress"
    assert first["response"] | {"id": "", "model": "", "created_at": 0} == {
        **plain(RESPONSE_DEFAULTS), "id": "", "model": "", "created_at": 0, "status": "in_progress",
    }  # fmt: skip


def test_the_machine_says_who_it_is(wire: str) -> None:
    subject = machine(wire)
    assert (subject.wire, subject.response_id, subject.phase) == (wire, "resp_0", ResponseStreamPhase.IDLE)
    assert plain(subject.snapshot) | {"output": []} == plain(subject.snapshot)
    assert subject.snapshot.status == "queued"
    assert (subject.snapshot.model, subject.snapshot.created_at) == ("m", CLOCK)


def test_ids_and_clock_of_its_own() -> None:
    one, two = ResponseStreamStateMachine("m"), ResponseStreamStateMachine("m")
    assert re.fullmatch(r"resp_[0-9a-f]{32}", one.response_id)
    assert one.response_id != two.response_id
    assert one.snapshot.created_at > CLOCK
    one.start()
    one.text("a")
    assert re.fullmatch(r"msg_[0-9a-f]{32}", one.snapshot.output[0].id)


def test_injected_ids_name_the_response_too() -> None:
    subject = ResponseStreamStateMachine("m", ids=lambda prefix: f"{prefix}_z")
    assert subject.response_id == "resp_z"


# ── usage ────────────────────────────────────────────────────────────────────────────────────────────
FULL = {
    "input_tokens": 3, "output_tokens": 4, "total_tokens": 7,
    "input_tokens_details": {"cached_tokens": 1}, "output_tokens_details": {"reasoning_tokens": 2},
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (FULL, FULL),
        (Usage.of(3, 4, cached_tokens=1, reasoning_tokens=2, total_tokens=7), FULL),
        (Usage.of(3, 4), plain(Usage.of(3, 4, total_tokens=7))),
        ({}, plain(Usage.of(100, 0))),
        ({"input_tokens": "3", "output_tokens": None, "input_tokens_details": None}, plain(Usage.of(3, 0))),
        (None, None),
    ],
    ids=["mapping", "struct", "sum", "empty", "partial", "none"],
)
def test_e1_usage_makes_no_event_and_shows_in_the_terminal_one(wire: str, given: Any, sent: Any) -> None:
    run = Run(wire)
    assert run("usage", {"input_tokens": 100}) == []
    assert run("usage", given) == []
    run("text", "a")
    assert run.machine.snapshot.usage is None
    run("finish")
    assert run.terminal["usage"] == sent


# ── snapshot ─────────────────────────────────────────────────────────────────────────────────────────
def test_e1_a_snapshot_is_not_changed_by_what_comes_later(wire: str) -> None:
    run = Run(wire)
    run("text", "a")
    run("tool_call", 0, "c", "f", "{")
    taken = run.machine.snapshot
    before = plain(taken)
    run("tool_call", 0, arguments="}")
    run("text", "b")
    run("annotation", {"type": "url_citation", "url": "u", "start_index": 0, "end_index": 1, "title": ""})
    run("finish")
    assert plain(taken) == before
    for event in run.events[:5]:
        assert plain(event) == plain(decode_json(encode(event)))


def test_e1_output_text_joins_the_text_of_all_messages(wire: str) -> None:
    run = Run(wire)
    for call, argument in (("text", "a"), ("refusal", "no"), ("reasoning", "r"), ("text", "b")):
        run(call, argument)
    assert run.machine.snapshot.output_text == "ab"


def test_e2_encoded_stream_reads_back_as_the_same_events(wire: str) -> None:
    run = Run(wire)
    run("reasoning", "r")
    run("text", "a\nb😀")
    run("tool_call", 0, "c", "f", "{}")
    run("extension_event", "acme:note", {"a": 1})
    run("finish")
    frames = SSEDecoder().feed(encode_sse(run.events))
    assert [decode_json(frame.data) for frame in frames] == [plain(event) for event in run.events]
    assert [frame.event for frame in frames] == [event.type for event in run.events]


# ── echo ─────────────────────────────────────────────────────────────────────────────────────────────
FUNCTION = {
    "type": "function",
    "name": "f",
    "description": "d",
    "parameters": {"type": "object"},
    "strict": True,
}
BARE = {"type": "function", "name": "f", "description": None, "parameters": None, "strict": None}
CUSTOM = {"type": "custom", "name": "patch", "description": "d", "format": {"type": "text"}}
AS_FUNCTION = {
    "type": "function", "name": "patch", "description": "d", "strict": None,
    "parameters": {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
}  # fmt: skip
SCHEMA = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
CHOICE = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]}
SAME = object()

# request fields, what the openresponses wire echoes, what the openai wire echoes
ECHOES: list[tuple[str, Any, Any, Any]] = [
    ("previous_response_id", "resp_1", SAME, SAME),
    ("instructions", "be brief", SAME, SAME),
    ("truncation", "auto", SAME, SAME),
    ("parallel_tool_calls", False, SAME, SAME),
    ("temperature", 0.25, SAME, SAME),
    ("top_p", 0.5, SAME, SAME),
    ("presence_penalty", 1.5, SAME, SAME),
    ("frequency_penalty", -1.5, SAME, SAME),
    ("top_logprobs", 20, SAME, SAME),
    ("max_output_tokens", 16, SAME, SAME),
    ("max_tool_calls", 1, SAME, SAME),
    ("store", False, SAME, SAME),
    ("background", True, SAME, SAME),
    ("service_tier", "flex", SAME, SAME),
    ("metadata", {"a": "b"}, SAME, SAME),
    ("safety_identifier", "user-1", SAME, SAME),
    ("prompt_cache_key", "key", SAME, SAME),
    *((name, None, RESPONSE_DEFAULTS[name], RESPONSE_DEFAULTS[name]) for name in (
        "temperature", "top_p", "store", "metadata", "truncation", "service_tier", "top_logprobs", "tools",
        "tool_choice")),
    ("reasoning", {"effort": "high", "summary": "auto"}, SAME, SAME),
    ("reasoning", {"effort": "minimal", "summary": "long"}, {"effort": "low", "summary": None}, SAME),
    ("reasoning", {"effort": "max", "summary": "auto"}, {"effort": "xhigh", "summary": "auto"}, SAME),
    ("reasoning", {"effort": "odd", "summary": "auto"}, {"effort": None, "summary": "auto"}, SAME),
    ("reasoning", {}, {"effort": None, "summary": None}, {"effort": None, "summary": None}),
    ("reasoning", None, None, None),
    ("text", None, {"format": {"type": "text"}}, {"format": {"type": "text"}}),
    ("text", {"verbosity": "low"}, {"format": {"type": "text"}, "verbosity": "low"},
     {"format": {"type": "text"}, "verbosity": "low"}),
    ("text", {"format": {"type": "json_object"}}, SAME, SAME),
    ("text", {"format": SCHEMA}, {"format": {**SCHEMA, "description": None, "schema": None, "strict": False}},
     {"format": {**SCHEMA, "description": None, "strict": False}}),
    ("text", {"format": {**SCHEMA, "description": "d", "strict": True}},
     {"format": {**SCHEMA, "description": "d", "schema": None, "strict": True}},
     {"format": {**SCHEMA, "description": "d", "strict": True}}),
    ("text", {"format": {"type": "grammar", "syntax": "lark"}}, {"format": {"type": "text"}}, SAME),
    ("tools", [FUNCTION, {"type": "function", "name": "f"}], [FUNCTION, BARE], [FUNCTION, BARE]),
    ("tools", [CUSTOM], [AS_FUNCTION], SAME),
    ("tools", [{"type": "web_search", "filters": {"a": 1}}],
     [{"type": "openai:web_search", "filters": {"a": 1}}], SAME),
    ("tools", [{"type": "acme:tool", "x": 1}], SAME, SAME),
    ("tools", [{"type": "shell"}, {"type": "local_shell"}, {"type": "apply_patch"}],
     [{"type": "openai:shell"}, {"type": "openai:local_shell"}, {"type": "openai:apply_patch"}], SAME),
    ("tools", [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}],
     [{"type": "openai:namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}], SAME),
    ("tool_choice", "required", SAME, SAME),
    ("tool_choice", {"type": "function", "name": "f"}, SAME, SAME),
    ("tool_choice", CHOICE, SAME, SAME),
    ("tool_choice", {**CHOICE, "mode": "auto", "tools": [{"type": "custom", "name": "p"},
     {"type": "web_search"}]},
     {**CHOICE, "mode": "auto", "tools": [{"type": "function", "name": "p"}, {"type": "function"}]}, SAME),
    ("tool_choice", {"type": "custom", "name": "patch"}, {"type": "function", "name": "patch"}, SAME),
    ("tool_choice", {"type": "web_search"}, "required", SAME),
]  # fmt: skip


@pytest.mark.parametrize(
    ("field", "asked", "published", "openai"), ECHOES, ids=[f"{i}_{case[0]}" for i, case in enumerate(ECHOES)]
)
def test_e3_the_request_is_echoed(wire: str, field: str, asked: Any, published: Any, openai: Any) -> None:
    request = decode_request(encode({field: asked}))
    run = Run(wire, request=request)
    run("finish")
    expected = published if wire == "openresponses" else openai
    assert run.terminal[field] == (asked if expected is SAME else plain(expected))
    others = {name for name in RESPONSE_DEFAULTS if name not in (field, "output", "completed_at")}
    assert {name: run.terminal[name] for name in others} == {
        name: plain(RESPONSE_DEFAULTS[name]) for name in others
    }


def test_e3_the_openresponses_echo_is_valid_as_a_response_resource() -> None:
    """Extensions' tools aside, which the schema does not name."""
    for field, value, _, _ in ECHOES:
        subject = machine(request=decode_request(encode({field: value})))
        response = plain(subject.snapshot)
        response["tools"] = [tool for tool in response["tools"] if ":" not in tool["type"]]
        assert violations("ResponseResource", response) == [], (field, value)


def test_fields_of_a_request_that_a_response_does_not_have_are_not_echoed(wire: str) -> None:
    request = decode_request(
        b'{"user": "u", "client_metadata": {"a": 1}, "include": [], "stream": true, "input": "x"}'
    )
    echoed = plain(machine(wire, request=request).snapshot)
    assert set(echoed) == set(Response.__struct_fields__) - {
        "extra",
        "stop_sequence",
        "upstream_model",
        "native",
    }


# ── adopted responses ────────────────────────────────────────────────────────────────────────────────
def upstreams(**changes: Any) -> Response:
    base = plain(machine().snapshot) | {
        "id": "resp_up",
        "model": "up-1",
        "created_at": 5,
        "status": "in_progress",
    }
    return decode_response(encode(base | changes))


def test_adopt_before_start_takes_the_upstreams_response_as_it_is(wire: str) -> None:
    run = Run(wire, started=False)
    response = upstreams(temperature=0.5, usage=FULL, status="completed", completed_at=9, output=[
        {"type": "compaction", "id": "x", "encrypted_content": "y"}
    ])  # fmt: skip
    assert run("adopt", response) == []
    assert run.machine.response_id == "resp_up"
    run("start")
    sent = plain(run.events[0])["response"]
    assert sent == plain(response) | {
        "status": "in_progress",
        "usage": None,
        "completed_at": None,
        "output": [],
    }


FOREIGN = {
    "tools": [FUNCTION, CUSTOM, {"type": "web_search"}],
    "tool_choice": {"type": "custom", "name": "patch"},
    "reasoning": {"effort": "minimal", "summary": "auto"},
    "text": {"format": {**SCHEMA, "description": None, "strict": True}, "verbosity": "low"},
}


def test_e10_adopted_fields_are_spelled_as_the_wire_has_them(wire: str) -> None:
    run = Run(wire, started=False)
    run("adopt", upstreams(**FOREIGN))
    run("start")
    sent = plain(run.events[0])["response"]
    if wire == "openai":
        assert {name: sent[name] for name in FOREIGN} == FOREIGN
    else:
        assert sent["tools"] == [FUNCTION, AS_FUNCTION, {"type": "openai:web_search"}]
        assert sent["tool_choice"] == {"type": "function", "name": "patch"}
        assert sent["reasoning"] == {"effort": "low", "summary": "auto"}
        assert sent["text"] == {
            "format": {**SCHEMA, "schema": None, "description": None, "strict": True}, "verbosity": "low",
        }  # fmt: skip


def test_e10_an_adopted_format_that_is_not_published_is_text(wire: str) -> None:
    run = Run(wire, started=False)
    grammar = {"type": "grammar", "syntax": "lark"}
    run("adopt", upstreams(text={"format": grammar}))
    run("start")
    sent = plain(run.events[0])["response"]["text"]["format"]
    assert sent == (grammar if wire == "openai" else {"type": "text"})


def test_adopt_before_finish_takes_what_only_the_end_may_tell(wire: str) -> None:
    run = Run(wire)
    run("adopt", upstreams(id="resp_other", service_tier="priority", completed_at=1_700_000_077))
    assert run.machine.snapshot.service_tier == "default"
    run("finish")
    assert (run.terminal["id"], run.terminal["service_tier"], run.terminal["completed_at"]) == (
        "resp_0",
        "priority",
        1_700_000_077,
    )


@pytest.mark.parametrize("end", [("finish", "length"), ("cancel",), ("fail", "down")])
def test_adopt_does_not_complete_what_did_not_complete(wire: str, end: tuple[str, ...]) -> None:
    run = Run(wire)
    run("adopt", upstreams(completed_at=1_700_000_077))
    run(*end)
    assert run.terminal["completed_at"] is None


def test_adopt_without_a_time_of_completion_leaves_the_clocks(wire: str) -> None:
    run = Run(wire)
    run("adopt", upstreams())
    run("finish")
    assert run.terminal["completed_at"] == CLOCK


def test_structs_are_frozen_so_that_events_stay_what_they_were() -> None:
    run = Run()
    with pytest.raises(AttributeError):
        run.events[0].response.status = "completed"
    assert msgspec.structs.replace(run.events[0].response, status="x") is not run.events[0].response
