"""Events of the Interactions API → events: whole answers, streams, and streams that contradict themselves."""

import json
from typing import Any

import pytest

from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.dialects.interactions import Inbound
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.protocol.response import Response

USAGE = {"total_input_tokens": 3, "total_output_tokens": 2, "total_thought_tokens": 4, "total_tokens": 9}
OUTPUT = {"type": "model_output"}
HELLO = {"type": "text", "text": "Hello"}
SIGNED = {"type": "thought_signature", "signature": "s"}
CONTEXT = {"type": "url_context_call", "arguments": {"urls": ["https://a.example"]}}
CALL = {"type": "function_call", "id": "c", "name": "f"}


def event(kind: str, **fields: Any) -> bytes:
    return json.dumps({"event_type": kind, **fields}).encode()


def created(**fields: Any) -> bytes:
    return event("interaction.created", interaction={"id": "v1_a", "status": "in_progress", **fields})


def completed(status: str = "completed", **fields: Any) -> bytes:
    return event(
        "interaction.completed", interaction={"id": "v1_a", "status": status, "usage": USAGE, **fields}
    )


def step(index: int, started: dict[str, Any], *deltas: dict[str, Any]) -> list[bytes]:
    return [
        event("step.start", index=index, step=started),
        *(event("step.delta", index=index, delta=delta) for delta in deltas),
        event("step.stop", index=index),
    ]


def test_a_call_whose_step_never_began_is_left_out_alone() -> None:
    response = read(
        created(),
        event("step.start", index=0, step=CALL),
        event("step.delta", index=2, delta={"type": "arguments_delta", "arguments": '{"b":1}'}),
        event("step.stop", index=2),
        completed("requires_action"),
    )
    assert (response.status, [item.type for item in response.output]) == ("incomplete", ["function_call"])


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def read(*frames: bytes, close: bool = True) -> Response:
    """What these frames say; the stream that they make is valid."""
    machine = ResponseStreamStateMachine(model="m", wire="openai")
    inbound, validator = Inbound(machine), StreamValidator()
    events = [each for frame in frames for each in inbound.feed(frame)]
    events += inbound.close() if close else []
    violations = [violation for each in events for violation in validator.feed(each)]
    assert [*violations, *validator.close()] == []
    return machine.snapshot


def test_text_thoughts_and_calls() -> None:
    response = read(
        created(model="gemini-3"),
        event("interaction.status_update", interaction_id="v1_a", status="in_progress"),
        *step(
            0,
            {"type": "thought"},
            {"type": "thought_summary", "content": text("Hm")},
            {"type": "thought_summary", "content": text(".")},
            {"type": "thought_signature", "signature": "c2ln"},
        ),
        *step(1, OUTPUT, text("Hel"), text("lo")),
        *step(
            2,
            {"type": "function_call", "id": "c1", "name": "look", "arguments": {}},
            {"type": "arguments_delta", "arguments": '{"a":'},
            {"type": "arguments_delta", "arguments": " 1}"},
        ),
        completed("requires_action"),
    )
    thought, message, call = response.output
    assert (thought.type, thought.summary[0].text) == ("reasoning", "Hm.")  # type: ignore[union-attr]
    assert (message.type, response.output_text) == ("message", "Hello")
    assert (call.name, call.arguments, call.status) == ("look", '{"a": 1}', "completed")  # type: ignore[union-attr]
    assert (response.status, response.upstream_model) == ("completed", "gemini-3")
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (
        3,
        6,
        9,
    )


def test_what_a_step_begins_with_counts() -> None:
    response = read(
        created(),
        *step(
            0,
            {"type": "thought", "summary": [text("First.")]},
            {"type": "thought_signature", "signature": "s"},
        ),
        *step(1, {"type": "model_output", "content": [text("Hel")]}, text("lo")),
        *step(2, {"type": "function_call", "id": "c", "name": "f", "arguments": {"a": 1}}),
        completed(),
    )
    assert response.output[0].summary[0].text == "First."  # type: ignore[union-attr]
    assert response.output_text == "Hello"
    assert response.output[2].arguments == '{"a":1}'  # type: ignore[union-attr]


def test_a_whole_one_is_read_as_its_stream() -> None:
    steps = [{"type": "user_input", "content": [text("Hi")]}, {"type": "model_output", "content": [HELLO]}]
    whole = {"id": "v1_a", "object": "interaction", "status": "completed", "steps": steps, "usage": USAGE}
    response = read(json.dumps(whole).encode())
    assert (response.status, response.output_text, len(response.output)) == ("completed", "Hello", 1)
    listed = read(created(), completed(steps=steps))
    assert listed.output_text == "Hello"


def test_a_search_code_and_a_call_of_a_server_are_items_of_their_own() -> None:
    response = read(
        created(),
        *step(0, {"type": "google_search_call", "id": "s", "arguments": {"queries": ["a", "b"]}}),
        *step(1, {"type": "google_search_result", "call_id": "s", "result": [{"search_suggestions": "<b>"}]}),
        *step(2, {"type": "code_execution_call", "id": "x", "arguments": {"code": "1"}}),
        *step(3, {"type": "code_execution_result", "call_id": "x", "result": "1\n"}),
        *step(
            4, {"type": "mcp_server_tool_call", "id": "m", "name": "f", "server_name": "s", "arguments": {}}
        ),
        *step(5, {"type": "mcp_server_tool_result", "call_id": "m", "result": "done"}),
        *step(
            6,
            {"type": "url_context_call", "id": "u", "arguments": {}},
            {"type": "url_context_call", "arguments": {"urls": ["https://a.example"]}},
        ),
        *step(7, OUTPUT, HELLO),
        completed(),
    )
    search, code, call, context, message = (
        each.raw if hasattr(each, "raw") else each for each in response.output
    )
    assert (search["type"], search["action"]["queries"]) == ("web_search_call", ["a", "b"])
    assert (code["type"], code["code"], code["outputs"][0]["logs"]) == ("code_interpreter_call", "1", "1\n")
    assert (call["type"], call["server_label"], call["output"]) == ("mcp_call", "s", "done")
    assert context["type"] == "interactions:url_context_call"
    assert context["interactions:steps"][0]["arguments"] == {"urls": ["https://a.example"]}
    assert message.type == "message"


def test_places_of_citations_are_bytes() -> None:
    cited = {
        "type": "url_citation",
        "url": "https://a.example",
        "title": "A",
        "start_index": 3,
        "end_index": 6,
    }
    annotations = {"type": "text_annotation_delta", "annotations": [cited]}
    response = read(created(), *step(0, OUTPUT, text("é x"), text("yz"), annotations), completed())
    (citation,) = response.output[0].content[0].annotations  # type: ignore[union-attr]
    assert (citation.start_index, citation.end_index, citation.title) == (2, 5, "A")


@pytest.mark.parametrize(
    ("status", "ends", "reason"),
    [
        ("completed", "completed", None),
        ("requires_action", "completed", None),
        ("incomplete", "incomplete", "max_output_tokens"),
        ("budget_exceeded", "incomplete", "max_output_tokens"),
        ("requires_continuation", "incomplete", "max_output_tokens"),
        ("failed", "failed", None),
        ("a new one", "completed", None),
    ],
)
def test_each_end(status: str, ends: str, reason: str | None) -> None:
    response = read(created(), *step(0, OUTPUT, HELLO), completed(status))
    details = response.incomplete_details
    assert (response.status, details and details.reason) == (ends, reason)


def test_one_that_was_cancelled() -> None:
    assert read(created(), *step(0, OUTPUT, HELLO), completed("cancelled")).status == "cancelled"


@pytest.mark.parametrize(
    "error", [{"code": "429", "message": "Slow."}, "Slow.", {"message": {"a": "Slow."}}, None]
)
def test_an_error_in_the_stream_fails_it(error: Any) -> None:
    response = read(created(), *step(0, OUTPUT, text("Hel")), event("error", error=error))
    assert (response.status, response.output_text) == ("failed", "Hel")
    assert response.error is not None


def test_a_status_alone_ends_it() -> None:
    ended = event("interaction.status_update", interaction_id="v1_a", status="budget_exceeded")
    assert read(created(), *step(0, OUTPUT, HELLO), ended).status == "incomplete"


GOOD = [
    created(),
    *step(0, {"type": "thought", "summary": [text("Hm.")]}, SIGNED),
    *step(1, OUTPUT, text("Hel"), text("lo")),
    *step(2, {"type": "google_search_call", "id": "s", "arguments": {"queries": ["a"]}}),
    *step(3, {"type": "google_search_result", "call_id": "s", "result": []}),
    *step(
        4, {"type": "function_call", "id": "c", "name": "f"}, {"type": "arguments_delta", "arguments": "{}"}
    ),
    completed("requires_action"),
]


@pytest.mark.parametrize("kept", range(len(GOOD)))
def test_cut_behind_each_event(kept: int) -> None:
    response = read(*GOOD[:kept])
    assert response.status == "failed"
    assert response.error is not None
    assert response.error.code == "upstream_cut"


@pytest.mark.parametrize("at", range(len(GOOD) - 1))
def test_without_each_event(at: int) -> None:
    expected = "incomplete" if b"step.start" in GOOD[at] and b"function_call" in GOOD[at] else "completed"
    assert read(*GOOD[:at], *GOOD[at + 1 :]).status == expected


@pytest.mark.parametrize("at", range(len(GOOD)))
def test_each_event_twice(at: int) -> None:
    response = read(*GOOD[: at + 1], *GOOD[at:])
    assert response.status in ("completed", "failed")


@pytest.mark.parametrize("at", range(len(GOOD) - 1))
def test_two_events_in_the_other_order(at: int) -> None:
    swapped = [*GOOD[:at], GOOD[at + 1], GOOD[at], *GOOD[at + 2 :]]
    assert read(*swapped).status in ("completed", "incomplete")


def test_nothing_follows_the_end() -> None:
    response = read(
        *GOOD, *step(7, OUTPUT, text("more")), event("error", error={"message": "late"}), completed()
    )
    assert (response.status, response.output_text) == ("completed", "Hello")


@pytest.mark.parametrize("index", [-1, "0", None, 2**70, 1.5, True, [0]])
def test_an_index_that_is_none_is_repaired(index: Any) -> None:
    frames = [event("step.start", index=index, step=OUTPUT), event("step.delta", index=index, delta=HELLO)]
    assert read(created(), *frames, completed()).output_text == "Hello"


def test_steps_side_by_side() -> None:
    starts = [
        event("step.start", index=n, step={"type": "function_call", "id": f"c{n}", "name": "f"})
        for n in (0, 1)
    ]
    deltas = [
        event("step.delta", index=n, delta={"type": "arguments_delta", "arguments": piece})
        for piece in ('{"a"', ": 1}")
        for n in (0, 1)
    ]
    stops = [event("step.stop", index=n) for n in (1, 0)]
    response = read(created(), *starts, *deltas, *stops, completed("requires_action"))
    assert [each.arguments for each in response.output] == ['{"a": 1}'] * 2  # type: ignore[union-attr]


def test_a_delta_of_another_kind_of_step_is_a_loss() -> None:
    machine = ResponseStreamStateMachine(model="m")
    inbound = Inbound(machine)
    for frame in (created(), *step(0, OUTPUT, {"type": "arguments_delta", "arguments": "{}"}), completed()):
        inbound.feed(frame)
    assert [each.where for each in machine.diagnostics.of("loss")] == ["step.delta.arguments_delta"]


def test_arguments_that_end_early_are_cut() -> None:
    call = {"type": "function_call", "id": "c", "name": "f"}
    response = read(
        created(), *step(0, call, {"type": "arguments_delta", "arguments": '{"a'}), completed("incomplete")
    )
    assert (response.status, response.output[0].status) == ("incomplete", "incomplete")  # type: ignore[union-attr]


UNREADABLE = ["Hi", 7, ["Hi"], True, None]


def read_with_losses(*frames: bytes) -> tuple[Response, list[str]]:
    machine = ResponseStreamStateMachine(model="m", wire="openai")
    inbound = Inbound(machine)
    for frame in frames:
        inbound.feed(frame)
    inbound.close()
    return machine.snapshot, [str(each) for each in machine.diagnostics.of("loss")]


@pytest.mark.parametrize("odd", UNREADABLE, ids=repr)
@pytest.mark.parametrize("streamed", [True, False], ids=["at the end", "whole"])
def test_a_step_that_is_not_an_object_is_a_loss(odd: Any, streamed: bool) -> None:
    fields = {"status": "completed", "steps": [odd, {**OUTPUT, "content": [odd, HELLO, odd]}, odd]}
    whole = json.dumps({"object": "interaction", "id": "v1_a", **fields}).encode()
    frames = [created(), completed(steps=fields["steps"])] if streamed else [whole]
    response, lost = read_with_losses(*frames)
    assert (response.status, response.output_text) == ("completed", "Hello")
    kind = type(odd).__name__
    assert lost == [f"loss: {name}: can't be read: {kind} (×2)" for name in ("steps", "content")]


@pytest.mark.parametrize("odd", UNREADABLE[:-1], ids=repr)
def test_what_stands_in_the_place_of_an_array_of_objects_is_a_loss(odd: Any) -> None:
    kind, where = type(odd).__name__, "can't be read"
    fields = {"object": "interaction", "id": "v1_a", "status": "completed"}
    inner_kind = "str" if isinstance(odd, list) else kind  # the array has one
    _, lost = read_with_losses(json.dumps({**fields, "steps": odd}).encode())
    if isinstance(odd, list):  # else it is no interaction
        assert lost == [f"loss: steps: {where}: {inner_kind}"]
    thought, output = {"type": "thought", "summary": odd}, {**OUTPUT, "content": odd}
    _, lost = read_with_losses(created(), *step(0, thought), *step(1, output), completed())
    assert lost == [f"loss: summary: {where}: {inner_kind}", f"loss: content: {where}: {inner_kind}"]
    annotated = {"type": "text_annotation_delta", "annotations": [odd]}
    response, lost = read_with_losses(created(), *step(0, OUTPUT, text("Hi"), annotated), completed())
    assert (response.output_text, lost) == ("Hi", [f"loss: annotations: {where}: {kind}"])
    begun = event("step.start", index=0, step=OUTPUT)
    delta = event("step.delta", index=0, delta=odd)
    response, lost = read_with_losses(created(), begun, delta, *step(0, OUTPUT, text("Hi")), completed())
    assert (response.output_text, lost) == ("Hi", [f"loss: step.delta: {where}: {kind}"])
