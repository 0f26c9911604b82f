"""From the Interactions API to itself: answers of an upstream and requests of a client arrive unchanged."""

import json
from typing import Any

import pytest

from openresponses_bridge.dialects.interactions import Inbound, Outbound, from_interactions, interaction
from openresponses_bridge.dialects.interactions.client.interaction import Folding
from openresponses_bridge.dialects.interactions.hosted import steps_of
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.seal import Sealer

SEALER = Sealer(bytes(32))
PNG = "iVBORw0KGgo="
CITED = {"type": "url_citation", "url": "https://a.example", "title": "A", "start_index": 0, "end_index": 2}
PLACE = {"type": "place_citation", "place_id": "p1", "name": "A place", "start_index": 0, "end_index": 2}
STEPS: list[dict[str, Any]] = [
    {"type": "thought", "summary": [{"type": "text", "text": "Hm."}], "signature": "c2ln"},
    {"type": "thought", "signature": "c2ln"},
    {"type": "google_search_call", "id": "s", "arguments": {"queries": ["a"]}, "signature": "eA=="},
    {"type": "google_search_result", "call_id": "s", "result": [{"search_suggestions": "<b>"}]},
    {"type": "code_execution_call", "id": "x", "arguments": {"language": "python", "code": "1"}},
    {"type": "code_execution_result", "call_id": "x", "result": "1\n", "is_error": True},
    {"type": "url_context_call", "id": "u", "arguments": {"urls": ["https://a.example"]}},
    {"type": "url_context_result", "call_id": "u", "result": [{"url": "a", "status": "paywall"}]},
    {"type": "google_maps_call", "id": "g", "arguments": {"queries": ["b"]}},
    {"type": "file_search_call", "id": "f"},
    {"type": "mcp_server_tool_call", "id": "m", "name": "f", "server_name": "s", "arguments": {"a": 1}},
    {"type": "mcp_server_tool_result", "call_id": "m", "name": "f", "server_name": "s", "result": {"b": 2}},
    {"type": "of_tomorrow", "id": "t", "more": [1]},
    {
        "type": "model_output",
        "content": [
            {"type": "text", "text": "é x", "annotations": [CITED, PLACE]},
            {"type": "image", "data": PNG, "mime_type": "image/png", "resolution": "high"},
            {"type": "audio", "data": "AAAA", "mime_type": "audio/wav", "sample_rate": 24000},
            {"type": "text", "text": "after"},
        ],
    },
    {"type": "function_call", "id": "c1", "name": "look", "arguments": {"a": [1, {"b": None}]}},
    {"type": "function_call", "id": "c2", "name": "look", "arguments": {}, "signature": "c2ln"},
]
END = {
    "id": "v1_a",
    "object": "interaction",
    "status": "requires_action",
    "environment_id": "e1",
    "service_tier": "priority",
    "usage": {
        "total_input_tokens": 3,
        "total_output_tokens": 2,
        "total_thought_tokens": 4,
        "total_cached_tokens": 1,
        "total_tool_use_tokens": 5,
        "total_tokens": 14,
        "input_tokens_by_modality": [{"modality": "text", "tokens": 3}],
        "grounding_tool_count": [{"type": "google_search", "count": 1}],
    },
}


def streamed(steps: list[dict[str, Any]]) -> list[bytes]:
    """These steps as the events of an upstream."""
    frames: list[dict[str, Any]] = [{"event_type": "interaction.created", "interaction": {}}]
    for index, step in enumerate(steps):
        frames += [
            {"event_type": "step.start", "index": index, "step": step},
            {"event_type": "step.stop", "index": index},
        ]
    frames.append({"event_type": "interaction.completed", "interaction": END})
    return [json.dumps(each).encode() for each in frames]


def read(frames: list[bytes]) -> tuple[Response, list[Event]]:
    machine = ResponseStreamStateMachine(model="m", wire="openai")
    inbound = Inbound(machine, SEALER)
    events = [event for frame in frames for event in inbound.feed(frame)] + inbound.close()
    return machine.snapshot, events


def ordered(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The steps with the annotations of each content in one order."""
    result: list[dict[str, Any]] = json.loads(json.dumps(steps))
    for step in result:
        for content in step.get("content", ()):
            content.get("annotations", []).sort(key=lambda each: str(each["type"]), reverse=True)
    return result


@pytest.mark.parametrize("form", ["stream", "whole"])
def test_all_that_an_upstream_says_arrives(form: str) -> None:
    whole = json.dumps({**END, "steps": STEPS}).encode()
    response, events = read(streamed(STEPS) if form == "stream" else [whole])
    answer = interaction(response, SEALER, thoughts=True)
    assert ordered(answer["steps"]) == ordered(STEPS)
    for name in END.keys() - {"id"}:
        assert answer[name] == END[name], name
    outbound = Outbound(SEALER, thoughts=True)
    folding = Folding(outbound.diagnostics)
    for event in events:
        folding.feed(outbound.feed(event))
    assert ordered(folding.steps) == ordered(STEPS)
    assert not outbound.diagnostics.of("loss")


def test_each_step_alone_arrives() -> None:
    for step in STEPS:
        response, _ = read(streamed([step]))
        assert ordered(interaction(response, SEALER, thoughts=True)["steps"]) == ordered([step])


def test_the_reasoning_of_another_upstream_is_found_again() -> None:
    machine = ResponseStreamStateMachine(model="m")
    machine.start()
    machine.reasoning_summary("Hm.")
    machine.reasoning_encrypted("of-another-upstream")
    machine.text("Hello")
    machine.finish("stop")
    steps = interaction(machine.snapshot, SEALER)["steps"]
    assert [step["type"] for step in steps] == ["thought", "model_output"]
    assert "summary" not in steps[0]
    request, losses = from_interactions({"model": "m", "input": steps}, SEALER)
    reasoning, message = request.input  # type: ignore[misc]
    assert (reasoning.encrypted_content, reasoning.summary[0].text) == ("of-another-upstream", "Hm.")  # type: ignore[union-attr]
    assert message.role == "assistant"  # type: ignore[union-attr]
    assert not losses.of("loss")
    stranger, lost = from_interactions({"model": "m", "input": steps}, Sealer(bytes(range(32))))
    assert len(stranger.input or ()) == 1
    assert [each.where for each in lost.of("loss")] == ["input[0].signature"]


def test_what_another_upstream_ran_is_steps() -> None:
    items: list[dict[str, Any]] = [
        {
            "type": "web_search_call",
            "id": "w",
            "status": "completed",
            "action": {"type": "search", "query": "q"},
        },
        {
            "type": "code_interpreter_call",
            "id": "c",
            "status": "completed",
            "code": "1",
            "outputs": [{"type": "logs", "logs": "1"}],
        },
        {
            "type": "mcp_call",
            "id": "m",
            "status": "completed",
            "server_label": "s",
            "name": "f",
            "arguments": "{}",
            "output": "done",
        },
    ]
    machine = ResponseStreamStateMachine(model="m", wire="openai")
    machine.start()
    for item in items:
        machine.item(item)
    machine.finish("stop")
    steps = interaction(machine.snapshot)["steps"]
    assert [step["type"] for step in steps] == [
        "google_search_call",
        "google_search_result",
        "code_execution_call",
        "code_execution_result",
        "mcp_server_tool_call",
        "mcp_server_tool_result",
    ]
    request, _ = from_interactions({"model": "m", "input": steps})
    assert [item.type for item in request.input or ()] == [item["type"] for item in items]  # type: ignore[union-attr]
    assert [step for item in request.input or () for step in steps_of(item) or ()] == steps


def test_the_input_of_one_turn_is_its_items() -> None:
    image = {"type": "image", "data": PNG, "mime_type": "image/png"}
    turn = [{"type": "text", "text": "What?"}, image, *STEPS]
    request, losses = from_interactions({"model": "m", "input": turn}, SEALER)
    kinds = [item.type for item in request.input or ()]  # type: ignore[union-attr]
    assert kinds[:3] == ["message", "reasoning", "reasoning"]
    assert kinds.count("message") == 2
    assert [step for item in request.input or () for step in steps_of(item) or ()] == STEPS[2:13]
    assert not losses.of("loss")


def test_ids_of_events_are_the_same_for_all_who_read() -> None:
    _, events = read(streamed(STEPS))
    first, again = Outbound(SEALER), Outbound(SEALER)
    ids = [each["event_id"] for event in events for each in first.feed(event)]
    assert ids == [each["event_id"] for event in events for each in again.feed(event)]
    assert len(set(ids)) == len(ids)
