"""Anthropic streams → events: invalid frames, and messages that are not streamed."""

import json

import msgspec
import pytest

from openresponses_bridge.protocol.codec import encode
from tests.support.anthropic import (
    CheckedAnthropic,
    calls,
    closed,
    delta,
    frame,
    opened,
    run,
    sealed,
    start,
    stop,
    text,
    thinking,
    tool,
)
from tests.support.machines import kinds, plain


# ── frames that are not as they should be ────────────────────────────────────────────────────────────
def untyped(payload):
    value = json.loads(payload)
    return json.dumps({name: each for name, each in value.items() if name != "type"}).encode(), value["type"]


def test_a_type_that_is_missing_comes_from_the_events_name():
    frames = [start(), *thinking(0, "t"), *text(1, "x"), *stop()]
    named, bare = CheckedAnthropic(frames).close(), CheckedAnthropic(map(untyped, frames)).close()
    assert bare.events == named.events
    assert bare.notes("repair") == ["frame.type"]


def test_a_frame_of_no_type_at_all_is_a_loss():
    fed = run(start(), b'{"hello":1}', text(0, "x"), stop())
    assert fed.response.output_text == "x"
    assert fed.notes("loss") == ["event"]


def test_a_delta_without_type_is_known_by_its_field():
    bare = frame("content_block_delta", index=0, delta={"text": "x"})
    assert run(start(), opened(0, "text", text=""), bare, closed(0), stop()).response.output_text == "x"


@pytest.mark.parametrize("given", [None, "text", {}, {"type": 7}])
def test_a_delta_that_is_none_is_skipped(given):
    fed = run(start(), opened(0, "text", text=""), frame("content_block_delta", index=0, delta=given), stop())
    assert fed.response.status == "completed"


def test_null_and_wrong_fields_are_skipped():
    odd = [
        delta(0, "text_delta", text=None),
        delta(0, "text_delta", text=7),
        frame("content_block_delta", index="0", delta={"type": "text_delta", "text": "x"}),
        frame("message_delta", delta=None, usage="many"),
        frame("message_start", message=None),
    ]
    fed = run(start(), opened(0, "text", text=""), odd, closed(0), stop())
    assert fed.response.output_text == "x"
    assert set(fed.notes("loss")) == {"text_delta.text", "message_delta.usage"}


@pytest.mark.parametrize("index", [{}, {"index": None}, {"index": "zero"}])
def test_case_03_a_missing_index_means_the_open_block(index):
    def bare(kind, **fields):
        return frame(kind, **index, **fields)

    fed = run(
        start(),
        bare("content_block_start", content_block={"type": "tool_use", "id": "t1", "name": "f", "input": {}}),
        bare("content_block_delta", delta={"type": "input_json_delta", "partial_json": '{"a":1}'}),
        bare("content_block_stop"),
        bare("content_block_start", content_block={"type": "text", "text": ""}),
        bare("content_block_delta", delta={"type": "text_delta", "text": "x"}),
        bare("content_block_stop"),
        stop(),
    )
    assert calls(fed) == [("t1", "f", '{"a":1}', "completed")]
    assert fed.response.output_text == "x"


def test_a_block_that_never_started_is_made_from_its_delta():
    fed = run(start(), delta(0, "thinking_delta", thinking="t"), delta(1, "text_delta", text="x"), stop())
    assert [item["type"] for item in fed.output] == ["reasoning", "message"]
    assert fed.notes("repair") == ["content_block_start"]


def test_tool_input_of_no_block_is_a_loss():
    fed = run(start(), delta(4, "input_json_delta", partial_json="{}"), text(0, "x"), stop())
    assert fed.notes("loss") == ["content_block_delta.InputJsonDelta"]


def test_a_block_that_never_stopped_is_whole_when_the_message_ends_well():
    unclosed = [
        opened(0, "tool_use", id="t1", name="f", input={}),
        delta(0, "input_json_delta", partial_json="{}"),
    ]
    assert calls(run(start(), unclosed, stop("tool_use"))) == [("t1", "f", "{}", "completed")]


def test_a_block_that_never_stopped_ends_where_another_starts_on_its_index():
    fed = run(start(), opened(0, "thinking", thinking="t", signature="s"), text(0, "x"), stop())
    assert sealed(fed.output[0])[1]["signature"] == "s"


def test_stops_of_unknown_blocks_and_blocks_without_type_do_nothing():
    fed = run(start(), closed(9), frame("content_block_start", index=0, content_block={"text": "?"}), stop())
    assert fed.output == []
    assert fed.notes("loss") == ["content_block_start"]


@pytest.mark.parametrize(
    "kind", ["text", "thinking", "redacted_thinking", "tool_use", "compaction", "server_tool_use"]
)
def test_a_delta_in_the_wrong_block_is_sent_all_the_same(kind):
    wrong = "text_delta" if kind != "text" else "thinking_delta"
    block = opened(0, kind, id="t1", name="f", data="d", text="", thinking="", input={})
    said_twice = [delta(0, wrong, text="x", thinking="x")] * 2
    fed = run(start(), block, *said_twice, closed(0), stop())
    assert f"{kind}.{'TextDelta' if kind != 'text' else 'ThinkingDelta'}" in fed.notes("repair")
    texts = [part["text"] for item in fed.output for part in item.get("content") or ()]
    assert "xx" in texts


def test_lone_surrogates_outside_of_deltas_become_replacement_characters():
    content = b'["\\ud83d",{"\\ud83d":1}]'
    block = opened(0, "x_result", content="?").replace(b'"?"', content)
    fed = run(start(), block, closed(0), stop())
    assert fed.output[0]["block"]["content"] == ["\ufffd", {"\ufffd": 1}]


# ── whole messages ───────────────────────────────────────────────────────────────────────────────────
def whole(**fields):
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
    return json.dumps({**head, "usage": {"input_tokens": 3, "output_tokens": 9}, **fields}).encode()


def test_a_message_that_was_not_streamed_gives_the_same_response():
    blocks = [
        {"type": "thinking", "thinking": "t", "signature": "sig"},
        {"type": "text", "text": "x"},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
    ]
    streamed = run(start(), thinking(0, "t"), text(1, "x"), tool(2, "t1", "f", '{"a":1}'), stop("tool_use"))
    at_once = run(whole(content=blocks, stop_reason="tool_use"))
    assert plain(at_once.response) == plain(streamed.response)


def test_a_whole_message_without_type_is_known_by_its_fields():
    bare = json.loads(whole(content=[{"type": "text", "text": "x"}]))
    del bare["type"]
    assert run(json.dumps(bare).encode()).response.output_text == "x"


def test_a_whole_error_is_a_failure():
    body = frame("error", error={"type": "not_found_error", "message": "model: x"}, request_id="req_1")
    assert run(body).response.error.code == "not_found_error"


def test_the_end_of_a_whole_message_is_sent_too():
    details = {"type": "refusal", "explanation": "No."}
    fed = run(
        whole(
            content=[], stop_reason="refusal", stop_details=details, context_management={"applied_edits": []}
        )
    )
    assert fed.response.status == "incomplete"
    assert fed.output[0]["content"][0]["refusal"] == "No."
    assert fed.response.native == {"anthropic": {"context_management": {"applied_edits": []}}}


def test_a_text_in_the_place_of_blocks_is_one():
    assert run(whole(content="words")).output[0]["content"][0]["text"] == "words"


@pytest.mark.parametrize("content", [[1], None])
def test_a_whole_message_with_odd_content_has_none(content):
    assert run(whole(content=content)).output == []


# ── the other wire ───────────────────────────────────────────────────────────────────────────────────
def test_e10_the_openai_wire_spells_reasoning_its_way():
    fed = run(start(), thinking(0, "t"), text(1, "x"), stop(), wire="openai")
    assert "reasoning_text.delta" in kinds(fed.events)


def test_every_event_can_be_encoded():
    fed = run(start(), thinking(0, "t"), tool(1, "t1", "f", "{}"), stop())
    for event in fed.events:
        assert msgspec.json.decode(encode(event))["type"] == event.type
