"""Half a surrogate pair in any text that a machine is given: strict decoders can read the events."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from openresponses_bridge.dialects.responses import Inbound
from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.events import Event
from tests.support.machines import WIRES

HALF = "a\ud800b"
MESSAGE = {"type": "message", "role": "assistant", "status": "completed"}
URL = {"type": "url_citation", "url": HALF, "title": HALF, "start_index": 0, "end_index": 1}
LOGPROB = {"token": HALF, "logprob": -1.0, "bytes": [1], "top_logprobs": []}

Calls = Callable[[ResponseStreamStateMachine], list[Event]]


def item(**fields: Any) -> Calls:
    return lambda machine: machine.item({"status": "completed", **fields})


def announced(machine: ResponseStreamStateMachine) -> list[Event]:
    fields = {"type": "image_generation_call", "id": HALF, "status": "in_progress", "prompt": HALF}
    events = machine.item_added(fields)
    events += machine.item_event(HALF, "response.image_generation_call.partial", {HALF: [{HALF: HALF}]})
    return events + machine.item({**fields, "status": "completed", "result": HALF})


def calling(machine: ResponseStreamStateMachine) -> list[Event]:
    events = machine.expect_item(HALF)
    events += machine.tool_call(0, HALF, HALF, f'{{"a":"{HALF}', namespace=HALF)
    return events + machine.tool_call(0, arguments='"}') + machine.tool_call_done(0)


CASES: dict[str, Calls] = {
    "text": lambda machine: machine.expect_item(HALF) + machine.text(HALF),
    "logprobs": lambda machine: machine.text("a", [LOGPROB]),
    "refusal": lambda machine: machine.refusal(HALF),
    "reasoning": lambda machine: machine.expect_item(HALF) + machine.reasoning(HALF),
    "summary": lambda machine: machine.reasoning_summary(HALF),
    "encrypted": lambda machine: machine.reasoning_encrypted(HALF),
    "annotation": lambda machine: machine.text("Hi") + machine.annotation(URL),
    "file citation": lambda machine: machine.annotation(
        {"type": "file_citation", "file_id": HALF, "index": 0}
    ),
    "call": calling,
    "custom call": lambda machine: machine.tool_call(0, HALF, HALF, HALF, "custom"),
    "extension": lambda machine: machine.extension_event("a:b", {HALF: [{HALF: HALF}], "text": HALF}),
    "announced item": announced,
    "hosted item": item(type="image_generation_call", id=HALF, result=HALF, **{HALF: HALF}),
    "item of a garbage type": item(type=f" {HALF}:\n:é", id="x"),
    "message": item(
        **MESSAGE, id=HALF, content=[{"type": "output_text", "text": HALF, "annotations": [URL]}]
    ),
    "function call": item(type="function_call", id=HALF, call_id=HALF, name=HALF, arguments=HALF),
    "custom tool call": item(type="custom_tool_call", id=HALF, call_id=HALF, name=HALF, input=HALF),
    "reasoning item": item(
        type="reasoning",
        id=HALF,
        summary=[{"type": "summary_text", "text": HALF}],
        content=[{"type": "reasoning_text", "text": HALF}],
        encrypted_content=HALF,
    ),
    "compaction": item(type="compaction", id=HALF, encrypted_content=HALF),
    "shell call": item(type="shell_call", id=HALF, call_id=HALF, action={"commands": [HALF]}),
    "reason": lambda machine: machine.finish(HALF, incomplete=True),
    "failure": lambda machine: machine.fail({"type": HALF, "code": HALF, "message": HALF, "param": HALF}),
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("case", CASES)
def test_whole_characters_leave_whatever_comes(case: str, wire: str) -> None:
    machine = ResponseStreamStateMachine("m", wire=wire)
    events = machine.start() + CASES[case](machine)
    machine.snapshot  # noqa: B018 - it can be built at any moment
    if case not in ("reason", "failure"):
        events += machine.finish("stop")
    for event in (*events, machine.snapshot):
        msgspec.json.decode(encode(event))


@pytest.mark.parametrize("wire", WIRES)
def test_an_adopted_response_leaves_in_whole_characters(wire: str) -> None:
    tools = [{"type": "function", "name": HALF, "parameters": {HALF: HALF}}, {"type": HALF}]
    begun = {"id": HALF, "model": HALF, "status": "in_progress", "metadata": {HALF: HALF}, "tools": tools}
    machine = ResponseStreamStateMachine(HALF, wire=wire)
    msgspec.json.decode(encode(machine.snapshot))
    frames = [
        {"type": "response.created", "response": {**begun, "instructions": HALF}},
        {"type": "response.completed", "response": {**begun, "status": "completed", "service_tier": HALF}},
    ]
    inbound = Inbound(machine, adopt=True)
    for frame in frames:
        for event in inbound.feed(json.dumps(frame).encode()):
            msgspec.json.decode(encode(event))
    assert (machine.snapshot.status, machine.snapshot.model) == ("completed", "a\ufffdb")
