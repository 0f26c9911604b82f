"""Code that the upstream runs, from a client of Gemini at upstreams of Responses, and its results back."""

from __future__ import annotations

from typing import Any

import pytest

from openresponses_bridge.dialects import responses
from openresponses_bridge.dialects.gemini import Outbound, answer, encode_chunk, from_gemini, to_gemini
from openresponses_bridge.dialects.responses import ResponsesOptions, to_responses
from openresponses_bridge.protocol.codec import decode_json, encode
from tests.support.machines import machine

Json = dict[str, Any]
HELLO: Json = {"role": "user", "parts": [{"text": "Hello"}]}
LOGS: Json = {"type": "logs", "logs": "1"}
CALL: Json = {
    "type": "code_interpreter_call", "id": "ci_1", "status": "completed", "code": "print(1)",
    "container_id": "c", "outputs": [LOGS, LOGS],
}  # fmt: skip


RAN: list[Json] = [
    {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
    {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
]


def asked(settings: Json, **options: Any) -> Json:
    request, _ = from_gemini(encode({"contents": [HELLO], "tools": [{"codeExecution": settings}]}))
    body: Json = to_responses(request, model="m", options=ResponsesOptions(**options))[0]
    return body


def test_code_execution_is_the_code_interpreter_with_its_outputs() -> None:
    body = asked({})
    assert body["tools"] == [{"type": "code_interpreter", "container": {"type": "auto"}}]
    assert "code_interpreter_call.outputs" in body["include"]


def test_n1_what_it_has_of_its_own_goes_to_gemini_alone() -> None:
    assert "tools" not in asked({"ofTomorrow": 1})
    for settings in ({"ofTomorrow": 1}, {}):
        tools = [{"codeExecution": settings}]
        request, _ = from_gemini(encode({"contents": [HELLO], "tools": tools}))
        body, lost = to_gemini(request, model="gemini-3-pro")
        assert body["tools"] == tools
        assert lost.of("loss") == []


def test_what_was_run_before_is_a_loss_at_the_next_turn() -> None:
    turn = {"role": "model", "parts": [*RAN, {"text": "1"}]}
    request, _ = from_gemini(encode({"contents": [HELLO, turn, HELLO]}))
    body, lost = to_responses(request, model="m")
    assert [item["role"] for item in body["input"]] == ["user", "assistant", "user"]
    assert len(lost.of("loss")) == len(RAN)


def test_a_server_of_the_published_protocol_is_not_asked_for_outputs() -> None:
    body = asked({}, supersets=False)
    assert "code_interpreter_call.outputs" not in body.get("include", [])


@pytest.mark.parametrize("wire", ["openai", "openresponses"])
@pytest.mark.parametrize(
    ("change", "outcome", "output", "lost"),
    [
        ({}, "OUTCOME_OK", "11", 1),
        ({"status": "failed", "outputs": None, "container_id": ""}, "OUTCOME_FAILED", "", 0),
        ({"outputs": [LOGS, {"type": "image", "url": "u"}]}, "OUTCOME_OK", "1", 2),
    ],
)
def test_what_the_interpreter_ran_is_gemini_s_parts(
    wire: str, change: Json, outcome: str, output: str, lost: int
) -> None:
    stream = machine(wire, unknown_fields=False)
    inbound = responses.Inbound(stream)
    item = CALL | change
    head = {"id": "resp_9", "object": "response", "created_at": 1, "model": "m"}
    frames: list[Json] = [
        {"type": "response.created", "response": {**head, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": item | {"status": "in_progress"}},
        {"type": "response.code_interpreter_call.interpreting", "output_index": 0, "item_id": "ci_1"},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {**head, "status": "completed", "output": [item]}},
    ]
    outbound = Outbound()
    events = [
        event
        for number, frame in enumerate(frames)
        for event in inbound.feed(encode({**frame, "sequence_number": number}))
    ]
    sent = [decode_json(encode_chunk(chunk)) for event in events for chunk in outbound.feed(event)]
    parts = [RAN[0], {"codeExecutionResult": {"outcome": outcome, "output": output}}]
    assert sent[0]["candidates"][0]["content"]["parts"] == parts
    whole = decode_json(encode_chunk(answer([stream.snapshot])))
    assert whole["candidates"][0]["content"]["parts"] == parts
    assert len(outbound.diagnostics.of("loss")) == lost
    assert outbound.diagnostics.of("ignored") == []
