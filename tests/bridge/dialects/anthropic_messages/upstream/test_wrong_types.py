"""Fields of other types than Anthropic's, in a message that begins with content: each is named in a loss."""

from __future__ import annotations

import json
from typing import Any

import pytest

from openresponses_bridge.dialects.anthropic_messages import Inbound
from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import check_event, encode

LOSSES: dict[str, tuple[Any, str]] = {
    "a text": ("Hi", "message_start.content: can't be read: str"),
    "a number": (7, "message_start.content: can't be read: int"),
    "an object": ({"type": "text", "text": "Hi"}, "message_start.content: can't be read: dict"),
    "a number among blocks": ([7], "content_block_start: a block without a type"),
    "null among blocks": ([None], "content_block_start: a block without a type"),
    "a type that is a number": ([{"type": 5}], "content_block_start: a block without a type"),
    "text that is a number": ([{"type": "text", "text": 7}], "text.text: can't be read: int"),
    "thinking that is a number": (
        [{"type": "thinking", "thinking": 5}],
        "thinking.thinking: can't be read: int",
    ),
    "a signature that is a list": (
        [{"type": "thinking", "thinking": "Hm", "signature": [1]}],
        "thinking.signature: can't be read: list",
    ),
    "a call's id that is a number": (
        [{"type": "tool_use", "id": 7, "name": "look", "input": {}}],
        "tool_use.id: can't be read: int",
    ),
}


def fed(content: Any) -> ResponseStreamStateMachine:
    machine = ResponseStreamStateMachine("m")
    inbound = Inbound(machine)
    events = []
    for frame in (
        {"type": "message_start", "message": {"id": "msg_1", "content": content}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ):
        events += inbound.feed(json.dumps(frame).encode())
    for event in events:
        check_event(encode(event))
    return machine


@pytest.mark.parametrize("case", LOSSES)
def test_content_of_another_type_is_a_loss_by_name(case: str) -> None:
    content, loss = LOSSES[case]
    machine = fed(content)
    assert machine.snapshot.status == "completed"
    assert f"loss: {loss}" in map(str, machine.diagnostics)


def test_a_call_whose_name_is_not_a_text_has_none() -> None:
    machine = fed([{"type": "tool_use", "id": "toolu_1", "name": 7, "input": {}}])
    assert machine.snapshot.status == "incomplete"
    assert "loss: tool_call: never got a name" in map(str, machine.diagnostics)


@pytest.mark.parametrize("kind", ["", ":", "a b:c\nd", "é", "x" * 5000, "a:b:c", "\ud800", "openai:x"])
@pytest.mark.parametrize("wire", ["openresponses", "openai"])
def test_a_block_of_a_garbage_type_has_a_legal_type(kind: str, wire: str) -> None:
    machine = ResponseStreamStateMachine("m", wire=wire)
    inbound = Inbound(machine)
    frames: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "msg_1", "content": [{"type": kind}]}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
    ]
    events = [event for frame in frames for event in inbound.feed(json.dumps(frame).encode())]
    for event in events + inbound.close():
        check_event(encode(event))
    (item,) = machine.snapshot.output
    slug, _, name = item.type.partition(":")
    assert slug == "anthropic"
    assert name.replace("_", "").isascii()
    assert name
