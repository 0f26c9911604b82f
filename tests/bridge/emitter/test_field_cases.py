"""Field cases of the machine: mistakes in the events of other bridges."""

from __future__ import annotations

import json

import pytest

from openresponses_bridge import (
    ResponseAccumulator,
    ResponseStreamStateMachine,
    StreamValidator,
    decode_event,
    encode_sse,
)
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.events import ErrorEvent, OutputItemAdded, ResponseFailed
from openresponses_bridge.protocol.items import Message
from openresponses_bridge.sse import SSEDecoder

WIRES = pytest.mark.parametrize("wire", ["openresponses", "openai"])


@WIRES
def test_case_19_message_is_added_with_empty_content_and_every_id_and_index_present(wire: str) -> None:
    machine = ResponseStreamStateMachine(model="m", wire=wire)
    created, *_ = machine.start()
    added, part_added, delta = machine.text("x")
    assert isinstance(added, OutputItemAdded)
    assert isinstance(added.item, Message)
    assert (added.item.content, added.item.status, added.output_index) == ([], "in_progress", 0)
    sent = json.loads(encode(created))["response"]
    assert sent["created_at"] > 0
    assert sent["model"] == "m"
    for event in (part_added, delta):
        value = json.loads(encode(event))
        assert (value["item_id"], value["output_index"], value["content_index"]) == (added.item.id, 0, 0)


@WIRES
def test_case_21_error_events_number_is_the_next_one(wire: str) -> None:
    machine = ResponseStreamStateMachine(model="m", wire=wire)
    events = machine.start() + machine.text("x") + machine.fail({"code": "c", "message": "m"})
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert isinstance(events[-2], ErrorEvent)


@WIRES
def test_case_28_an_error_is_always_followed_by_response_failed(wire: str) -> None:
    """Codex does not read `event: error`."""
    machine = ResponseStreamStateMachine(model="m", wire=wire)
    machine.start()
    sent, failed = machine.fail({"code": "rate_limit_exceeded", "message": "slow down"})
    assert isinstance(sent, ErrorEvent)
    assert isinstance(failed, ResponseFailed)
    assert failed.response.error is not None
    assert failed.response.error.code == sent.payload.code == "rate_limit_exceeded"


@pytest.mark.parametrize("seen", range(-1, 12))
def test_case_42_what_follows_a_number_can_be_sent_again_and_adds_up(seen: int) -> None:
    """`starting_after=n` gives n+1 and on; with what was seen before, the snapshot can be rebuilt."""
    machine = ResponseStreamStateMachine(model="m")
    events = machine.start() + machine.text("Hel") + machine.text("lo") + machine.finish("stop")
    frames = SSEDecoder().feed(encode_sse(events))
    again = [decode_event(frame.data) for frame in frames[seen + 1 :]]
    assert [event.sequence_number for event in again] == list(range(seen + 1, len(events)))
    accumulator, validator = ResponseAccumulator(), StreamValidator("openresponses")
    for event in events[: seen + 1] + again:
        accumulator.feed(event)
        assert validator.feed(event) == []
    assert accumulator.response == machine.snapshot
