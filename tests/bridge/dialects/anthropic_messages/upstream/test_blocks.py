"""Anthropic streams → events, block by block."""

import json

import pytest

from openresponses_bridge.seal import Sealer
from tests.support.anthropic import (
    calls,
    closed,
    delta,
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


# ── text ─────────────────────────────────────────────────────────────────────────────────────────────
def test_text_streams_as_it_comes():
    fed = run(start(), text(0, "Hel", "lo"), stop())
    assert kinds(fed.events)[2:6] == [
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
    ]
    assert fed.response.output_text == "Hello"
    assert fed.response.status == "completed"
    assert len(fed.inbound.diagnostics) == 0


def test_adjacent_text_blocks_are_one_message():
    fed = run(start(), text(0, "a"), text(1, "b"), stop())
    assert [item["type"] for item in fed.output] == ["message"]
    assert fed.response.output_text == "ab"


def test_e6_empty_text_block_and_empty_deltas_emit_nothing():
    fed = run(start(), text(0), text(1, ""), stop())
    assert fed.output == []
    assert fed.response.status == "completed"


def test_case_14_text_tool_text_is_two_messages():
    fed = run(start(), text(0, "a"), tool(1, "t1", "f", "{}"), text(2, "b"), stop())
    assert [item["type"] for item in fed.output] == ["message", "function_call", "message"]


def test_an_emoji_split_over_two_deltas_is_joined():
    halves = [b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\\ud83d"}}']
    halves += [b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\\ude00"}}']
    fed = run(start(), opened(0, "text", text=""), halves, closed(0), stop())
    assert fed.response.output_text == "😀"


# ── thinking ─────────────────────────────────────────────────────────────────────────────────────────
def test_case_30_each_thinking_block_is_an_item_with_its_own_signature():
    fed = run(
        start(),
        thinking(0, "on", "e", signature="s1"),
        thinking(1, "two", signature="s2"),
        text(2, "x"),
        stop(),
    )
    first, second, _ = fed.output
    assert [part["text"] for part in first["content"]] == ["one"]
    assert sealed(first) == ("anthropic-thinking", {"type": "thinking", "thinking": "one", "signature": "s1"})
    assert sealed(second) == (
        "anthropic-thinking",
        {"type": "thinking", "thinking": "two", "signature": "s2"},
    )


def test_case_30_redacted_thinking_is_kept_verbatim_with_no_text():
    fed = run(start(), opened(0, "redacted_thinking", data="EqkE+/=="), closed(0), text(1, "x"), stop())
    item = fed.output[0]
    assert (item["type"], item["summary"], item.get("content")) == ("reasoning", [], None)
    assert sealed(item) == ("anthropic-redacted", {"type": "redacted_thinking", "data": "EqkE+/=="})


def test_a_signature_in_pieces_and_unknown_fields_come_back_whole():
    fed = run(
        start(),
        opened(0, "thinking", thinking="", signature="", novelty={"a": 1}),
        delta(0, "thinking_delta", thinking="hm"),
        delta(0, "signature_delta", signature="ab"),
        delta(0, "signature_delta", signature="cd"),
        closed(0),
        stop(),
    )
    expected = {"type": "thinking", "thinking": "hm", "signature": "abcd", "novelty": {"a": 1}}
    assert sealed(fed.output[0])[1] == expected


def test_thinking_that_is_not_shown_still_carries_its_signature():
    fed = run(start(), thinking(0, signature="only"), text(1, "x"), stop())
    assert "content" not in fed.output[0]
    assert sealed(fed.output[0])[1]["signature"] == "only"


def test_case_32_thinking_without_a_signature_is_not_put_into_encrypted_content():
    fed = run(start(), thinking(0, "plain", signature=""), text(1, "x"), stop())
    assert "encrypted_content" not in fed.output[0]
    assert fed.output[0]["status"] == "completed"


def test_two_unsigned_thinking_blocks_are_two_items():
    fed = run(start(), thinking(0, "a", signature=""), thinking(1, "b", signature=""), text(2, "x"), stop())
    assert [item["type"] for item in fed.output] == ["reasoning", "reasoning", "message"]


def test_case_16_empty_thinking_emits_nothing():
    fed = run(start(), thinking(0, signature=""), text(1, "x"), stop())
    assert [item["type"] for item in fed.output] == ["message"]


def test_case_24_thinking_cut_by_the_limit_is_kept_and_incomplete():
    fed = run(start(), thinking(0, "and so", signature=""), stop("max_tokens"))
    assert [(item["type"], item["status"]) for item in fed.output] == [("reasoning", "incomplete")]
    assert fed.response.incomplete_details.reason == "max_output_tokens"


def test_thinking_with_half_a_surrogate_is_sealed_and_comes_back_joined():
    halves = [
        b'{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"\\ud83d"}}',
        b'{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"\\ude00"}}',
    ]
    signed = delta(0, "signature_delta", signature="s")
    fed = run(start(), opened(0, "thinking", thinking=""), halves, signed, closed(0), text(1, "x"), stop())
    assert sealed(fed.output[0])[1]["thinking"] == "😀"


def test_thinking_is_sealed_with_the_injected_key():
    sealer = Sealer(b"k" * 32)
    fed = run(start(), thinking(0, "a"), text(1, "b"), stop(), sealer=sealer)
    assert fed.output[0]["encrypted_content"].startswith("orb1.s.anthropic-thinking.")
    assert sealed(fed.output[0], sealer)[1]["thinking"] == "a"


# ── tool calls ───────────────────────────────────────────────────────────────────────────────────────
def test_tool_input_streams_under_its_call():
    fed = run(start(), tool(0, "toolu_1", "f", '{"a"', ":1}"), stop("tool_use"))
    assert calls(fed) == [("toolu_1", "f", '{"a":1}', "completed")]
    assert kinds(fed.events).count("function_call_arguments.delta") == 2


def test_case_01_parallel_calls_stay_apart():
    fed = run(start(), tool(0, "t1", "f", '{"a":1}'), tool(1, "t2", "f", '{"a":2}'), stop("tool_use"))
    assert [call[0::2] for call in calls(fed)] == [("t1", '{"a":1}'), ("t2", '{"a":2}')]


def test_interleaved_deltas_go_to_their_blocks():
    fed = run(
        start(),
        opened(0, "tool_use", id="t1", name="f", input={}),
        opened(1, "tool_use", id="t2", name="g", input={}),
        delta(0, "input_json_delta", partial_json='{"x":'),
        delta(1, "input_json_delta", partial_json='{"y":2}'),
        delta(0, "input_json_delta", partial_json="1}"),
        closed(1),
        closed(0),
        stop("tool_use"),
    )
    assert [call[1:3] for call in calls(fed)] == [("f", '{"x":1}'), ("g", '{"y":2}')]


@pytest.mark.parametrize("pieces", [(), ("",), ("", " ")])
def test_case_06_a_call_without_arguments_has_an_empty_object(pieces):
    fed = run(start(), tool(0, "t1", "f", *pieces), stop("tool_use"))
    assert json.loads(calls(fed)[0][2]) == {}
    assert calls(fed)[0][3] == "completed"
    assert "function_call_arguments.done" in kinds(fed.events)


def test_case_25_a_call_that_the_limit_cut_before_its_arguments_is_not_run():
    fed = run(start(), tool(0, "t1", "f"), stop("max_tokens"))
    assert calls(fed) == [("t1", "f", "", "incomplete")]
    assert "function_call_arguments.done" not in kinds(fed.events)


@pytest.mark.parametrize("reason", ["tool_use", "max_tokens", "refusal"])
def test_case_25_truncated_arguments_are_incomplete_whatever_the_reason(reason):
    fed = run(start(), tool(0, "t1", "f", '{"a": "x'), stop(reason))
    assert calls(fed)[0][3] == "incomplete"
    assert fed.response.status == "incomplete"


def test_an_empty_call_is_whole_when_another_block_follows():
    fed = run(start(), tool(0, "t1", "f"), tool(1, "t2", "g", '{"a":'), stop("max_tokens"))
    assert [call[2:] for call in calls(fed)] == [("{}", "completed"), ('{"a":', "incomplete")]


def test_input_given_whole_at_the_start_is_used_when_no_delta_comes():
    block = opened(0, "tool_use", id="t1", name="f", input={"a": [1]})
    assert calls(run(start(), block, closed(0), stop("tool_use")))[0][2] == '{"a":[1]}'
    pieces = [delta(0, "input_json_delta", partial_json='{"b":2}')]
    assert calls(run(start(), block, pieces, closed(0), stop("tool_use")))[0][2] == '{"b":2}'


def test_a_call_that_never_got_a_name_leaves_the_message_incomplete():
    fed = run(start(), text(0, "a"), tool(1, "t1", "", '{"a":1}'), stop("tool_use"))
    assert fed.response.status == "incomplete"
    assert fed.response.incomplete_details.reason == "incomplete_tool_call"
    assert fed.response.output_text == "a"


def test_n1_fields_of_a_call_that_have_no_place_stand_beside_it():
    block = opened(0, "tool_use", id="t1", name="f", input={}, caller={"type": "direct"})
    fed = run(start(), block, closed(0), stop("tool_use"))
    (call,) = fed.output
    assert call["openresponses-bridge:native"] == {"anthropic": {"caller": {"type": "direct"}}}
    assert fed.notes("loss") == []


# ── order ────────────────────────────────────────────────────────────────────────────────────────────
def test_case_10_to_13_output_indexes_follow_the_blocks():
    fed = run(
        start(),
        thinking(0, "t"),
        tool(1, "t1", "f", '{"a"', ":1}"),
        tool(2, "t2", "g", "{}"),
        text(3, "x"),
        stop(),
    )
    done = [event for event in fed.events if event.type == "response.output_item.done"]
    assert [event.output_index for event in done] == [0, 1, 2, 3]
    assert [plain(event.item) for event in done] == fed.output
