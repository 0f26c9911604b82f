"""How an answer ends: every finish reason, blocked prompts, errors, and streams that end without one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.gemini import CheckedGemini, chunk

HI = {"text": "Hi"}
REASONS = {
    "STOP": ("completed", None),
    1: ("completed", None),
    "MAX_TOKENS": ("incomplete", "max_output_tokens"),
    2: ("incomplete", "max_output_tokens"),
    **dict.fromkeys(
        (
            *("SAFETY", 3, "RECITATION", 4, "BLOCKLIST", 7, "PROHIBITED_CONTENT", 8, "SPII", 9),
            *("IMAGE_SAFETY", 11, "MODEL_ARMOR", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
        ),
        ("incomplete", "content_filter"),
    ),
    "LANGUAGE": ("incomplete", "language"),
    6: ("incomplete", "language"),
    "OTHER": ("incomplete", "other"),
    5: ("incomplete", "other"),
    "NO_IMAGE": ("incomplete", "no_image"),
    "IMAGE_OTHER": ("incomplete", "image_other"),
    "FINISH_REASON_UNSPECIFIED": ("incomplete", "finish_reason_unspecified"),
    0: ("incomplete", "finish_reason_unspecified"),
    "A_NEW_ONE": ("incomplete", "a_new_one"),
    99: ("incomplete", "99"),
    "MALFORMED_FUNCTION_CALL": ("failed", "malformed_function_call"),
    10: ("failed", "malformed_function_call"),
    "UNEXPECTED_TOOL_CALL": ("failed", "unexpected_tool_call"),
    12: ("failed", "unexpected_tool_call"),
    "TOO_MANY_TOOL_CALLS": ("failed", "too_many_tool_calls"),
    "MISSING_THOUGHT_SIGNATURE": ("failed", "missing_thought_signature"),
    "MALFORMED_RESPONSE": ("failed", "malformed_response"),
}


def end(fed: CheckedGemini) -> tuple[str, str | None]:
    error, details = fed.response.error, fed.response.incomplete_details
    return fed.status, error.code if error else details.reason if details else None


@pytest.mark.parametrize(("reason", "expected"), REASONS.items(), ids=str)
def test_every_finish_reason_is_told_as_what_it_is(reason: Any, expected: tuple[str, str | None]) -> None:
    assert end(CheckedGemini([chunk(HI), chunk(finish=reason)])) == expected
    assert end(CheckedGemini([chunk(HI, finish=reason)])) == expected


@pytest.mark.parametrize("reason", [[], {}, True, 1.5, ""])
def test_a_finish_reason_of_another_type_is_none(reason: Any) -> None:
    fed = CheckedGemini([chunk(HI, finish=reason)])
    assert end(fed) == ("failed", "upstream_cut")
    assert "finishReason" in "".join(fed.notes("loss"))


def test_what_the_server_says_about_a_refusal_is_one() -> None:
    fed = CheckedGemini([chunk(HI, finish="SAFETY", finishMessage="Not that.")], wire="openai")
    assert [part["type"] for part in fed.output[0]["content"]] == ["output_text", "refusal"]
    failed = CheckedGemini([chunk(finish="MALFORMED_FUNCTION_CALL", finishMessage="Malformed: f(")])
    assert failed.error == ("malformed_function_call", "Malformed: f(")


@pytest.mark.parametrize("reason", ["SAFETY", "OTHER", "BLOCKLIST", "MODEL_ARMOR", 1, 4, "A_NEW_ONE"])
def test_a_blocked_prompt_is_filtered(reason: Any) -> None:
    frame = {"promptFeedback": {"blockReason": reason, "safetyRatings": []}}
    fed = CheckedGemini([frame])
    assert (end(fed), fed.output) == (("incomplete", "content_filter"), [])
    answer = CheckedGemini([{"promptFeedback": {"blockReason": reason, "blockReasonMessage": "No."}}])
    assert answer.output[0]["content"] == [{"type": "refusal", "refusal": "No."}]


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [{"usageMetadata": {"promptTokenCount": 1}}],
        [{"candidates": []}],
        [{"candidates": [{"content": {}}]}],
        [chunk(), chunk({})],
    ],
)
def test_an_answer_with_nothing_in_it_is_a_failure(frames: list[Any]) -> None:
    status, code = end(CheckedGemini(frames))
    assert (status, code) == ("failed", "upstream_empty" if frames else "upstream_cut")


def test_a_stream_that_ends_without_a_finish_reason_was_cut() -> None:
    fed = CheckedGemini([chunk(HI), chunk({"text": " there"})])
    assert fed.error == ("upstream_cut", "the upstream's stream was cut after 2 frames")


@pytest.mark.parametrize("wrapped", [False, True], ids=["object", "array"])
def test_errors_are_told_whatever_they_stand_in(wrapped: bool) -> None:
    error = {"error": {"code": 499, "message": "The operation was cancelled.", "status": "CANCELLED"}}
    frame = json.dumps([error] if wrapped else error).encode()
    for before in ([], [chunk(HI)], [chunk(HI, finish="STOP")]):
        assert CheckedGemini([*before, frame]).error == ("CANCELLED", "The operation was cancelled.")
    assert CheckedGemini([b'{"error":{"code":429}}']).error[0] == "429"
    assert CheckedGemini([b'{"error":"down"}']).error == ("upstream_error", "down")


def test_a_server_that_stops_with_each_chunk_goes_on() -> None:
    frames = [chunk({"text": "First "}, finish="STOP"), chunk({"text": "Second"}, finish="STOP")]
    fed = CheckedGemini(frames)
    assert (fed.status, fed.response.output_text) == ("completed", "First Second")
    filtered = CheckedGemini([*frames, chunk(finish="SAFETY"), chunk(finish="STOP")])
    assert end(filtered) == ("incomplete", "content_filter")


CALL = {"functionCall": {"name": "f", "args": {"a": 1}}}


@pytest.mark.parametrize(
    ("reason", "status"), [("STOP", "completed"), ("MAX_TOKENS", "incomplete"), ("SAFETY", "incomplete")]
)
def test_a_call_is_whole_if_the_model_stopped_by_itself(reason: str, status: str) -> None:
    fed = CheckedGemini([chunk(CALL, finish=reason)])
    assert fed.output[0]["status"] == status
    assert CheckedGemini([chunk(CALL), chunk(finish=reason)]).output[0]["status"] == "completed"


@pytest.mark.parametrize("reason", ["MAX_TOKENS", "SAFETY", "OTHER"])
def test_a_call_that_another_part_follows_is_whole(reason: str) -> None:
    fed = CheckedGemini([chunk(CALL, {"functionCall": {"name": "g", "args": {}}}, finish=reason)])
    assert [item["status"] for item in fed.output] == ["completed", "incomplete"]
    streamed = CheckedGemini([chunk(CALL), chunk({"functionCall": {"name": "g", "args": {}}}, finish=reason)])
    assert fed.output == streamed.output
    failed = CheckedGemini([chunk(CALL, {"text": "Hm"}, finish="UNEXPECTED_TOOL_CALL")])
    assert failed.output[0]["status"] == "incomplete"


def test_a_call_that_was_not_offered_is_never_whole() -> None:
    fed = CheckedGemini([chunk(CALL, finish="UNEXPECTED_TOOL_CALL")])
    assert (fed.status, fed.output[0]["status"]) == ("failed", "incomplete")


USAGES: list[tuple[list[dict[str, Any]], tuple[int, int, int, int]]] = [
    ([{"promptTokenCount": 3, "candidatesTokenCount": 2, "thoughtsTokenCount": 5}], (3, 7, 5, 0)),
    ([{"promptTokenCount": 3, "candidatesTokenCount": 2, "toolUsePromptTokenCount": 4}], (7, 2, 0, 0)),
    ([{"promptTokenCount": 3, "candidatesTokenCount": 2, "cachedContentTokenCount": 2}], (3, 2, 0, 2)),
    ([{"promptTokenCount": 3, "candidatesTokenCount": 51}, {"promptTokenCount": 9}], (9, 51, 0, 0)),
    (
        [
            {"promptTokenCount": 3, "candidatesTokenCount": 51, "thoughtsTokenCount": 4},
            {"promptTokenCount": 9, "candidatesTokenCount": 22},
        ],
        (9, 22, 0, 0),
    ),
    ([{"promptTokenCount": 3, "candidatesTokenCount": 2}, {"trafficType": "ON_DEMAND"}], (3, 2, 0, 0)),
    ([{"promptTokenCount": "x", "candidatesTokenCount": 2.0, "thoughtsTokenCount": -1}], (0, 2, 0, 0)),
]


@pytest.mark.parametrize(("counts", "expected"), USAGES)
def test_the_last_full_counts_are_the_usage(
    counts: list[dict[str, Any]], expected: tuple[int, int, int, int]
) -> None:
    frames = [chunk(HI, usage=each) for each in counts] + [chunk(finish="STOP")]
    usage = CheckedGemini(frames).response.usage
    assert usage is not None
    reasoning, cached = usage.output_tokens_details.reasoning_tokens, usage.input_tokens_details.cached_tokens
    assert (usage.input_tokens, usage.output_tokens, reasoning, cached) == expected


def test_counts_of_nothing_are_no_usage() -> None:
    assert (
        CheckedGemini([chunk(HI, usage={"trafficType": "ON_DEMAND"}), chunk(finish="STOP")]).response.usage
        is None
    )
