"""Requests of ours → the Messages API: system prompt, turns, calls and their results, opaque items."""

import pytest

from openresponses_bridge.dialects.anthropic_messages import MessagesOptions, to_messages
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.seal import Sealer
from tests.support.anthropic_requests import (
    PNG,
    F,
    call,
    out,
    output,
    reasoning,
    refused,
    request,
    roles,
    said,
    user,
    words,
)
from tests.support.anthropic_rules import violations


# ── system ───────────────────────────────────────────────────────────────────────────────────────────
def test_instructions_and_system_messages_are_the_system_prompt_in_order():
    items = [said("developer", "B"), said("system", "C"), said("user", "x")]
    body, lost = out(items, instructions="A")
    assert [block["text"] for block in body["system"]] == ["A", "B", "C"]
    assert lost == []


def test_case_59_later_words_of_the_system_are_a_reminder_in_their_place():
    parts = [{"type": "input_text", "text": text} for text in "BC"]
    later = {"type": "message", "role": "developer", "content": parts}
    body, lost = out([said("developer", "A"), said("user", "x"), later, said("user", "y")])
    assert [block["text"] for block in body["system"]] == ["A"]
    texts = [block["text"] for block in body["messages"][0]["content"]]
    assert texts == ["x", "<system-reminder>\nB", "C\n</system-reminder>", "y"]
    assert lost == []


def test_case_59_a_reminder_comes_behind_the_outputs_of_calls():
    body, _ = out([said("user", "x"), call("c1"), said("developer", "B"), output("c1")])
    kinds = [block["type"] for block in body["messages"][-1]["content"]]
    assert kinds == ["tool_result", "text"]


def test_images_in_system_messages_are_losses():
    picture = {"type": "input_image", "image_url": "https://a/b.png"}
    items = [{"type": "message", "role": "system", "content": [picture, {"type": "input_text", "text": "T"}]}]
    body, lost = out([*items, said("user", "x")])
    assert [block["text"] for block in body["system"]] == ["T"]
    assert lost == ["message.system"]


# ── turns ────────────────────────────────────────────────────────────────────────────────────────────
def test_turns_of_one_role_are_merged():
    items = [
        said("user", "a"),
        said("user", "b"),
        said("assistant", "c"),
        said("assistant", "d"),
        said("user", "e"),
    ]
    assert roles(out(items)[0]) == [("user", ["text"] * 2), ("assistant", ["text"] * 2), ("user", ["text"])]


def test_blank_words_are_left_out_and_a_turn_of_nothing_too():
    items = [
        said("user", "a"),
        said("assistant", " \n"),
        user(words("")),
        said("user", "b"),
    ]
    assert roles(out(items)[0]) == [("user", ["text", "text"])]


def test_the_assistant_can_not_begin():
    body, _ = out([said("assistant", "hello"), said("user", "x")])
    assert [role for role, _ in roles(body)] == ["user", "assistant", "user"]


def test_the_assistants_last_words_do_not_end_with_white_space():
    body, _ = out([said("user", "x"), said("assistant", "The answer is \n")])
    assert body["messages"][-1]["content"][-1]["text"] == "The answer is"


@pytest.mark.parametrize("input", [None, "", " ", [], [said("system", "only")]])
def test_nothing_to_answer_is_refused(input):
    assert refused(input) == ("invalid_value", "input")


def test_refusals_and_annotations_of_earlier_answers():
    cited = {"type": "url_citation", "url": "https://a", "title": "A", "start_index": 0, "end_index": 1}
    part = {"type": "output_text", "text": "cited", "annotations": [cited]}
    content = [part, {"type": "refusal", "refusal": "No."}, {"type": "refusal", "refusal": " "}]
    answer = {"type": "message", "role": "assistant", "phase": "final_answer", "content": content}
    body, lost = out([said("user", "x"), answer, said("user", "y")])
    assert [block["text"] for block in body["messages"][1]["content"]] == ["cited", "No."]
    assert lost == ["content.annotations", "message.phase"]


def test_an_item_reference_is_refused_with_its_place():
    assert refused([said("user", "x"), {"type": "item_reference", "id": "msg_1"}]) == (
        "invalid_value",
        "input[1]",
    )


def test_items_that_have_no_block_are_losses():
    items = [
        said("user", "x"),
        {"type": "file_search_call", "id": "fs_1"},
        {"type": "anthropic:odd", "block": 1},
    ]
    assert out(items)[1] == ["item.file_search_call", "item.anthropic:odd"]


# ── calls ────────────────────────────────────────────────────────────────────────────────────────────
def test_parallel_calls_and_their_results():
    items = [said("user", "x"), call("a"), call("b"), output("b", "2"), output("a", "1"), said("user", "y")]
    body, _ = out(items, tools=[F])
    calls, sent = body["messages"][1]["content"], body["messages"][2]["content"]
    assert [block["id"] for block in calls] == ["a", "b"]
    assert [(block.get("tool_use_id"), block["type"]) for block in sent] == [
        ("a", "tool_result"),
        ("b", "tool_result"),
        (None, "text"),
    ]


def test_a_result_moves_up_to_its_call():
    items = [said("user", "x"), call("a"), call("b"), output("a"), said("assistant", "so"), output("b")]
    body, noted = to_messages(request(items, tools=[F]))
    assert violations(body) == []
    assert [case.where for case in noted.of("repair")] == ["input[5]"]


def test_words_of_the_user_before_the_result_come_after_it():
    items = [said("user", "x"), call("a"), said("user", "wait"), output("a")]
    body, _ = out(items, tools=[F])
    assert roles(body)[-1] == ("user", ["tool_result", "text"])


def test_ids_are_legal_and_used_once():
    items = [
        said("user", "x"),
        call("a.b"),
        output("a.b"),
        call("a.b"),
        output("a.b"),
        call("a_b"),
        output("a_b"),
    ]
    body, _ = out(items, tools=[F])
    ids = [
        block["id"]
        for message in body["messages"]
        for block in message["content"]
        if block["type"] == "tool_use"
    ]
    assert ids == ["a_b", "a_b_2", "a_b_3"]


@pytest.mark.parametrize(
    ("items", "param"),
    [
        ([said("user", "x"), call("a")], "input[1]"),
        ([said("user", "x"), output("a")], "input[1]"),
        ([said("user", "x"), call("a"), output("a"), output("a")], "input[3]"),
    ],
)
def test_case_45_unpaired_calls_are_refused(items, param):
    assert refused(items, tools=[F]) == ("unpaired_tool_call", param)


def test_unpaired_calls_of_earlier_turns_are_laid_to_the_link():
    history = request([said("user", "x"), call("a")]).input
    with pytest.raises(InvalidRequestError) as caught:
        to_messages(request("y"), history=history)
    assert caught.value.param == "previous_response_id"


def test_case_40_an_output_alone_finds_its_call_in_the_history():
    history = request([said("user", "x"), call("a")]).input
    body, _ = out([output("a")], history=history, tools=[F])
    assert roles(body)[-1] == ("user", ["tool_result"])


def test_a_call_that_was_cut_is_left_out_with_a_loss():
    items = [said("user", "x"), call("a", arguments='{"a', status="incomplete"), said("user", "again")]
    body, lost = out(items, tools=[F])
    assert roles(body) == [("user", ["text", "text"])]
    assert lost == ["input[1]"]


def test_malformed_arguments_are_sent_back_under_their_own_name():
    body, _ = out([said("user", "x"), call(arguments="{nope}"), output()], tools=[F])
    assert body["messages"][1]["content"][0]["input"] == {"INVALID_JSON": "{nope}"}


def test_results_with_images_files_nothing_and_failures():
    picture = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}
    text = {"type": "input_text", "text": "see"}
    items = [
        said("user", "x"), call("a"), call("b"), call("c"),
        output("a", [text, picture]), output("b", ""), output("c", "boom", status="incomplete"),
    ]  # fmt: skip
    body, _ = out(items, tools=[F])
    first, second, third = body["messages"][2]["content"]
    assert [block["type"] for block in first["content"]] == ["text", "image"]
    assert "content" not in second
    assert third["is_error"] is True


def test_calls_in_the_history_without_tools_are_declared_and_barred():
    body, _ = out([said("user", "x"), call("a"), output("a"), said("user", "y")])
    assert body["tools"] == [{"name": "f", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "none"}


# ── opaque items ─────────────────────────────────────────────────────────────────────────────────────
def test_a_seal_that_can_not_be_opened_is_left_out_or_refused_with_its_place():
    items = [
        said("user", "x"),
        reasoning(encrypted_content="gAAAA"),
        said("assistant", "y"),
        said("user", "z"),
    ]
    strict = MessagesOptions(foreign_reasoning="refuse")
    assert refused(items, options=strict) == ("bridge.seal.foreign", "input[1].encrypted_content")
    broken = Sealer().seal(b"{}", "anthropic-thinking")[:-2] + "AA"
    assert refused([items[0], reasoning(encrypted_content=broken)], options=strict)[0] == "bridge.seal.broken"
    body, lost = out(items)
    assert roles(body)[1] == ("assistant", ["text"])
    assert lost == ["reasoning"]


@pytest.mark.parametrize("payload", [b"[]", b"nope"])
def test_a_seal_around_something_else_is_broken(payload):
    sealed = Sealer().seal(payload, "anthropic-thinking")
    items = [said("user", "x"), reasoning(encrypted_content=sealed)]
    assert refused(items, options=MessagesOptions(foreign_reasoning="refuse"))[0] == "bridge.seal.broken"


def test_reasoning_of_another_upstream_is_a_loss():
    sealed = Sealer().seal(b"{}", "responses-reasoning")
    items = [
        said("user", "x"),
        reasoning(encrypted_content=sealed),
        said("assistant", "y"),
        said("user", "z"),
    ]
    assert out(items)[1] == ["reasoning"]


def test_unsigned_reasoning_is_a_loss_unless_the_upstream_wants_it():
    thought = reasoning(content=[{"type": "reasoning_text", "text": "hm"}])
    items = [said("user", "x"), thought, said("assistant", "y"), said("user", "z")]
    assert out(items)[1] == ["reasoning"]
    body, _ = to_messages(request(items), options=MessagesOptions(unsigned_thinking=True))
    assert body["messages"][1]["content"][0] == {"type": "thinking", "thinking": "hm", "signature": ""}
    assert out([said("user", "x"), reasoning(), said("user", "z")])[1] == []


def test_a_summary_beside_the_reasoning_itself_is_a_loss():
    content, summary = [{"type": "reasoning_text", "text": "hm"}], [{"type": "summary_text", "text": "s"}]
    items = [said("user", "x"), reasoning(content=content, summary=summary), said("assistant", "y")]
    body, lost = to_messages(request(items), options=MessagesOptions(unsigned_thinking=True))
    assert body["messages"][1]["content"][0]["thinking"] == "hm"
    assert [case.where for case in lost] == ["reasoning.summary"]


def test_thinking_that_nothing_follows_is_left_out():
    sealed = Sealer().seal(b'{"type":"thinking","thinking":"t","signature":"s"}', "anthropic-thinking")
    body, lost = out([said("user", "x"), reasoning(encrypted_content=sealed), said("user", "z")])
    assert roles(body) == [("user", ["text", "text"])]
    assert lost == ["reasoning"]


def test_a_compaction_stands_in_the_assistants_turn():
    block = {"type": "compaction", "content": "so far"}
    items = [
        {"type": "compaction", "encrypted_content": Sealer().seal(encode(block), "anthropic-compaction")}
    ]
    body, _ = out([*items, said("user", "x")])
    assert body["messages"][1] == {"role": "assistant", "content": [block]}


@pytest.mark.parametrize(
    ("text", "code"),
    [("opaque", "bridge.seal.foreign"), (Sealer().seal(b"{}", "other"), "unsupported_parameter")],
)
def test_a_compaction_of_another_upstream_is_refused(text, code):
    items = [{"type": "compaction", "encrypted_content": text}, said("user", "x")]
    assert refused(items) == (code, "input[0].encrypted_content")
