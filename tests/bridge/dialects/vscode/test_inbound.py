"""VS Code's parts → events: a VS Code model as a back end."""

import base64
import json
from functools import partial
from typing import Any

import pytest

from openresponses_bridge.decoder import (
    LanguageModelDataPart,
    LanguageModelPromptTsxPart,
    LanguageModelTextPart,
    LanguageModelThinkingPart,
    LanguageModelToolCallPart,
    LanguageModelToolResultPart,
    Part,
    encode_part,
)
from openresponses_bridge.dialects.vscode import Inbound
from tests.support.checked_inbound import CheckedInbound, Frame

PNG = b"\x89PNG\r\n\x1a\nrest"


def fed(*parts: Part | Frame, **options: Any) -> CheckedInbound:
    frames = [part if isinstance(part, bytes | dict) else encode_part(part) for part in parts]
    return CheckedInbound(partial(Inbound, **options), frames)


def text(value: str) -> Part:
    return LanguageModelTextPart(value)


def data(mime: str, value: Any) -> Part:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return LanguageModelDataPart(raw, mime)


# ── words ──────────────────────────────────────────────────────────────────────────────────────────
def test_text_parts_are_one_message() -> None:
    stream = fed(text("Hel"), text(""), text("lo"))
    assert stream.response.output_text == "Hello"
    assert stream.status == "completed"


def test_a_started_machine_is_not_started_again() -> None:
    stream = CheckedInbound(Inbound, close=False)
    stream.run("start")
    assert stream.feed(encode_part(text("a")))[0] == "output_item.added"


def test_a_call_without_a_name_is_a_loss_and_no_call() -> None:
    nameless = {"type": "LanguageModelToolCallPart", "callId": "gw-call_b", "name": "", "input": {"a": 1}}
    stream = fed(LanguageModelToolCallPart("gw-call_a", "find", {}), nameless, text("Done."))
    assert [item.type for item in stream.response.output] == ["function_call", "message"]
    assert (stream.status, stream.notes("loss")) == ("incomplete", ["tool_call: never got a name"])


def test_thinking_blocks_keep_their_ids_and_encrypted_forms() -> None:
    stream = fed(
        LanguageModelThinkingPart("one", "rs_a"),
        LanguageModelThinkingPart(["t", "wo"], "rs_a"),
        LanguageModelThinkingPart("", "rs_a", {"encrypted_content": "x"}),
        LanguageModelThinkingPart("", "rs_a", {"vscode_reasoning_done": True}),
        LanguageModelThinkingPart("", "rs_a", {"vscode_reasoning_done": True}),
        LanguageModelThinkingPart("three", "rs_b"),
        text("So."),
        LanguageModelThinkingPart("four"),
    )
    first, second, message, third = stream.output
    assert (first["id"], first["content"][0]["text"], first["encrypted_content"]) == ("rs_a", "onetwo", "x")
    assert (second["id"], second["content"][0]["text"]) == ("rs_b", "three")
    assert message["type"] == "message"
    assert third["content"][0]["text"] == "four"


def test_phase_is_the_next_messages() -> None:
    stream = fed(
        data("phase_data", {"type": "phase_data", "phase": "commentary"}),
        text("a"),
        data("phase_data", b"final_answer"),
        text("b"),
        data("phase_data", {"phase": "musing"}),
        text("c"),
    )
    assert [(item["phase"], item["content"][0]["text"]) for item in stream.output] == [
        ("commentary", "a"),
        ("final_answer", "bc"),
    ]


# ── tool calls ─────────────────────────────────────────────────────────────────────────────────────
def test_calls_are_whole_and_their_prefix_comes_off() -> None:
    stream = fed(
        LanguageModelToolCallPart("gw-call_a", "find", {"q": "é"}),
        LanguageModelToolCallPart("toolu_b", "find", {}),
    )
    assert [(item["call_id"], item["arguments"]) for item in stream.output] == [
        ("call_a", '{"q":"é"}'),
        ("toolu_b", "{}"),
    ]
    assert stream.status == "completed"
    answer = fed(LanguageModelToolCallPart("gw-call_a", "find", {}), call_id_prefix="")
    assert answer.output[0]["call_id"] == "gw-call_a"


def test_ids_beyond_the_schema_are_shortened() -> None:
    (item,) = fed(LanguageModelToolCallPart("gw-" + "x" * 70, "find", {})).output
    assert item["call_id"].startswith("call_")
    assert len(item["call_id"]) <= 64


# ── data parts ─────────────────────────────────────────────────────────────────────────────────────
def test_images_become_generated_images_by_their_bytes() -> None:
    (item,) = fed(LanguageModelDataPart.image(PNG, "image/*")).output
    assert item["type"] == "openai:image_generation_call"
    assert item["result"] == base64.b64encode(PNG).decode()
    assert item["output_format"] == "png"


def test_usage_needs_its_three_totals() -> None:
    totals = {"prompt_tokens": 3, "completion_tokens": -2, "total_tokens": 3.0}
    details = {
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": None},
    }
    usage = fed(text("a"), data("usage", totals | details)).response.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (3, 0, 3)
    assert (usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens) == (1, 0)
    for odd in (b"{", {"prompt_tokens": True}, [1]):
        stream = fed(text("a"), data("usage", odd))
        assert stream.response.usage is None
        assert stream.notes("ignored") == ["usage: no token counts in it"]


def test_marker_and_other_data_travel_as_extension_events() -> None:
    stream = fed(
        text("a"),
        data("stateful_marker", b"model\\resp_1"),
        data("stateful_marker", b"nonsense"),
        data("application/pdf", b"%PDF"),
    )
    assert stream.extensions("vscode:stateful_marker") == [{"model": "model", "marker": "resp_1"}]
    assert stream.extensions("vscode:data") == [{"mime_type": "application/pdf", "data": "JVBERg=="}]


def test_condensed_history_is_a_compaction_item() -> None:
    condensed = {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}
    stream = fed(
        data("context_management", condensed),
        data("context_management", {"compaction": condensed | {"id": "cmp_2"}}),
        data("context_management", {"applied_edits": []}),
    )
    assert [item["id"] for item in stream.output] == ["cmp_1", "cmp_2"]
    assert stream.notes("loss") == ["context_management: has no compacted history"]


def test_parts_that_are_no_answer_are_reported() -> None:
    stream = fed(text("a"), LanguageModelToolResultPart("c", []), LanguageModelPromptTsxPart({}), {"x": 1})
    assert stream.notes("loss") == [
        "LanguageModelToolResultPart: no part of an answer",
        "LanguageModelPromptTsxPart: no part of an answer",
        "dict: no part of an answer",
    ]


# ── the end ────────────────────────────────────────────────────────────────────────────────────────
def test_a_provider_without_any_part_failed() -> None:
    assert fed().error[0] == "upstream_empty"


def test_case_26_with_markers_expected_an_end_without_one_is_a_cut() -> None:
    assert fed(text("a"), expects_marker=True).error[0] == "upstream_cut"
    whole = fed(text("a"), data("stateful_marker", b"m\\r"), expects_marker=True)
    assert whole.status == "completed"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"code": "NotFound", "message": "gone"}, ("model_not_found", "gone")),
        ({"code": "Blocked", "message": "later"}, ("quota_exceeded", "later")),
        ({"code": "odd", "message": 3}, ("odd", "3")),
        ({"code": ["odd"], "message": "m"}, ("upstream_error", "m")),
        ("boom", ("upstream_error", "boom")),
        (None, ("upstream_error", "the provider failed without a message")),
    ],
)
def test_case_27_what_the_provider_threw_keeps_its_meaning(error: Any, expected: tuple[str, str]) -> None:
    stream = fed(text("a"), {"error": error})
    assert stream.error == expected
    assert stream.output[0]["status"] == "incomplete"


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"{", "upstream_invalid_json"),
        (b'{"type":"LanguageModelToolCallPart","callId":"a"}', "upstream_invalid_shape"),
        (b'{"mimeType":"image/png","data":"?"}', "upstream_invalid_shape"),
        (b'{"type":"LanguageModelTextPart","value":1}', "upstream_invalid_shape"),
    ],
)
def test_unreadable_frames_fail_the_response(frame: bytes, code: str) -> None:
    assert fed(text("a"), frame).error[0] == code


def test_frames_after_the_end_are_ignored() -> None:
    stream = fed({"error": "x"}, text("a"))
    assert stream.output == []
    assert stream.notes("ignored") == ["frame: came after the end"]
