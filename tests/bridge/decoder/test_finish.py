"""How streams end: reasons, notes, errors, usage, the stateful marker (laws D1–D9; field cases 26, 27,
29)."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from openresponses_bridge.decoder import PREMATURE_END, LanguageModelDataPart, LanguageModelTextPart
from openresponses_bridge.protocol.response import ResponseError
from tests.support.vscode_parts import (
    Decoded,
    Raw,
    added,
    arguments_delta,
    completed,
    created,
    done,
    function,
    kinds,
    message,
    output_text,
    said,
    text_delta,
)

CANCELLED = "**Note:** The response was cancelled before it was complete."
USAGE = {
    "input_tokens": 10,
    "output_tokens": 5,
    "total_tokens": 15,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens_details": {"reasoning_tokens": 2},
}


def incomplete(reason: str | None, **response: Any) -> Raw:
    details = None if reason is None else {"reason": reason}
    return completed(status="incomplete", incomplete_details=details, **response)


def failed(code: str = "server_error", message: str = "it broke", **response: Any) -> Raw:
    return completed(status="failed", error={"code": code, "message": message}, **response)


def error(code: str | None = "server_error", message: str = "it broke") -> Raw:
    return {
        "type": "error",
        "error": {"type": "server_error", "code": code, "message": message, "param": None},
    }


# ── reasons ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (completed(), "stop"),
        (completed(function(0, "{}")), "tool-calls"),
        (incomplete("max_output_tokens"), "length"),
        (incomplete("max_tokens"), "length"),
        (incomplete("content_filter"), "content-filter"),
        (incomplete("content-filter"), "content-filter"),
        (incomplete("cancelled"), "cancelled"),
        (incomplete("Aborted "), "cancelled"),
        (incomplete("turned_away"), "other"),
        (incomplete("incomplete_tool_call"), "other"),
        (incomplete("incomplete_item"), "other"),
        (incomplete("unknown"), "other"),
        (incomplete(None), "other"),
        (failed(), "error"),
        (failed("request_cancelled"), "error"),
        (failed("499"), "error"),
        (completed(status="failed", error=None), "error"),
        (completed() | {"type": "response.done"}, "stop"),
    ],
)
def test_reasons(end: Raw, reason: str) -> None:
    decoded = Decoded([created(), text_delta("a")], False)
    assert decoded.result.finish_reason is None
    decoded.feed(end)
    assert decoded.result.finish_reason == reason
    assert (decoded.result.error is not None) == (reason == "error")


def test_e8_a_response_cancelled_on_the_openai_wire_is_cancelled() -> None:
    end = completed(status="incomplete")
    end["response"]["status"] = "cancelled"
    decoded = Decoded([text_delta("a"), end])
    assert (decoded.text, decoded.result.finish_reason) == (f"a\n\n{CANCELLED}", "cancelled")


@pytest.mark.parametrize(
    ("status", "reason"), [("incomplete", "other"), ("failed", "error"), ("in_progress", "stop")]
)
def test_where_event_and_status_differ_the_worse_counts(status: str, reason: str) -> None:
    end = completed()
    end["response"]["status"] = status
    assert Decoded([end]).result.finish_reason == reason
    end["type"] = "response.failed"
    assert Decoded([end]).result.finish_reason == "error"


# ── the message for the user ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (incomplete("max_output_tokens"), "**Note:** The response was cut off because it reached"),
        (incomplete("content_filter"), "**Note:** The response was stopped by a content filter."),
        (incomplete("turned_away"), "**Note:** The response is incomplete (turned_away)."),
        (
            incomplete("incomplete_tool_call"),
            "**Note:** The response stopped in the middle of a tool call, which was not run.",
        ),
        (incomplete("incomplete_item"), "**Note:** The response ended before all of it was complete."),
        (incomplete("unknown"), "**Note:** The response is incomplete, and its server did not say why."),
        (incomplete(None), "**Note:** The response is incomplete, and its server did not say why."),
        (failed(), "**Error:** it broke"),
        (failed(message=""), "**Error:** The model's server reported an error."),
        (error(), "**Error:** it broke"),
    ],
)
def test_what_went_wrong_is_reported_after_what_was_said(end: Raw, words: str) -> None:
    assert Decoded([text_delta("a"), end]).text.startswith(f"a\n\n{words}")
    assert Decoded([end]).text.startswith(words)
    assert Decoded([text_delta("a"), end], errors="none").text == "a"


def test_a_cancellation_that_is_not_the_users_is_noted_and_no_error() -> None:
    decoded = Decoded([text_delta("a"), incomplete("cancelled")])
    assert (decoded.text, decoded.result.error) == (f"a\n\n{CANCELLED}", None)
    assert decoded.result.finish_reason == "cancelled"


@pytest.mark.parametrize("code", ["abort", "aborted", "cancelled", "canceled", "request_cancelled", "499"])
@pytest.mark.parametrize("made", [failed, error])
def test_a_failure_whose_code_is_a_word_for_cancelling_is_shown(made: Callable[..., Raw], code: str) -> None:
    """An upstream's own words: nobody here has cancelled, and partial text alone would pass for an answer."""
    decoded = Decoded([text_delta("a"), made(code)])
    assert decoded.text == "a\n\n**Error:** it broke"
    assert (decoded.result.finish_reason, decoded.result.error) == ("error", ResponseError(code, "it broke"))


@pytest.mark.parametrize("shape", ["nested", "top"])
def test_an_error_is_reported_once_though_error_and_failed_both_come(shape: str) -> None:
    sent = (
        error("quota", "pay up")
        if shape == "nested"
        else {"type": "error", "code": "quota", "message": "pay up"}
    )
    decoded = Decoded([created(), sent, failed("quota", "pay up, please"), failed()])
    assert decoded.text == "**Error:** pay up"
    assert decoded.result.error == ResponseError("quota", "pay up")
    assert decoded.result.finish_reason == "error"


def test_an_error_without_code_goes_by_its_type() -> None:
    assert Decoded([error(None)]).result.error == ResponseError("server_error", "it broke")


def test_an_error_and_then_the_end_of_the_stream_is_that_error() -> None:
    decoded = Decoded([text_delta("a"), error("quota", "pay up")])
    assert decoded.result.error == ResponseError("quota", "pay up")
    assert decoded.result.finish_reason == "error"
    assert decoded.text.count("Error") == 1


def test_the_codex_proxy_spelling_of_an_error_is_one() -> None:
    assert Decoded([error() | {"type": "response.error"}]).result.error == ResponseError(
        "server_error", "it broke"
    )


def test_case_26_a_premature_end_is_an_error() -> None:
    decoded = Decoded([created(), text_delta("a")])
    assert decoded.result.finish_reason == "error"
    assert decoded.result.error is not None
    assert decoded.result.error.code == PREMATURE_END
    assert decoded.text == "a\n\n**Error:** The stream ended before the response was complete."
    assert decoded.decoder.close() == []


def test_case_26_an_empty_stream_is_an_error() -> None:
    decoded = Decoded([], errors="none")
    assert decoded.parts == []
    assert decoded.result.error is not None


def test_after_cancel_nothing_comes_out_and_no_error_is_reported() -> None:
    decoded = Decoded([created(), text_delta("a"), added(function(1), 1), arguments_delta("{}", 1)], False)
    decoded.decoder.cancel()
    for event in (text_delta("b"), done(function(1, "{}"), 1), failed(), completed(usage=USAGE)):
        assert decoded.feed(event) == []
    assert decoded.decoder.close() == []
    assert decoded.text == "a"
    assert (decoded.result.finish_reason, decoded.result.error) == ("cancelled", None)


def test_cancel_after_the_end_changes_nothing() -> None:
    decoded = Decoded([completed()])
    decoded.decoder.cancel()
    assert decoded.result.finish_reason == "stop"


@pytest.mark.parametrize("end", [completed(), incomplete("max_output_tokens"), failed()])
def test_nothing_follows_a_terminal_event(end: Raw) -> None:
    decoded = Decoded([text_delta("a"), end], False)
    for event in (text_delta("b"), end, error(), done(message(output_text("c")), 1)):
        assert decoded.feed(event) == []
    assert decoded.decoder.close() == []


@pytest.mark.parametrize("status", ["incomplete", "failed"])
def test_case_29_text_that_only_the_final_response_holds_is_sent(status: str) -> None:
    assert Decoded([created(), completed(message(output_text("a")), status=status)]).text.startswith(
        "a\n\n**"
    )


def test_the_final_response_may_lack_everything() -> None:
    decoded = Decoded([created(), text_delta("a"), {"type": "response.completed"}])
    assert (decoded.text, decoded.result.finish_reason, decoded.result.response_id) == ("a", "stop", "resp_1")
    assert (decoded.result.usage, decoded.data("usage")) == (None, [])


# ── who and how much ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["response.created", "response.queued", "response.in_progress"])
def test_id_and_model_are_known_from_the_start(kind: str) -> None:
    decoded = Decoded([created() | {"type": kind}], False)
    assert (decoded.result.response_id, decoded.result.model) == ("resp_1", "m")
    decoded.feed({"type": kind})
    assert (decoded.result.response_id, decoded.result.model) == ("resp_1", "m")


@pytest.mark.parametrize("end", [completed(usage=USAGE), incomplete(None, usage=USAGE), failed(usage=USAGE)])
def test_usage_leaves_as_a_data_part_however_it_ends(end: Raw) -> None:
    decoded = Decoded([text_delta("a"), end])
    (data,) = decoded.data("usage")
    assert json.loads(data) == {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    assert decoded.result.usage is not None
    assert decoded.result.usage.total_tokens == 15


def test_missing_details_and_totals_and_negative_counts_are_made_numbers() -> None:
    (data,) = Decoded([completed(usage={"input_tokens": 10, "output_tokens": -5})]).data("usage")
    assert json.loads(data) == {
        "prompt_tokens": 10,
        "completion_tokens": 0,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def test_the_stateful_marker_is_model_backslash_id() -> None:
    decoded = Decoded([completed()])
    assert decoded.parts == [LanguageModelDataPart(b"m\\resp_1", "stateful_marker")]
    assert decoded.result.stateful_marker == "resp_1"
    assert Decoded([completed()], model="vendor/m").data("stateful_marker") == [b"vendor/m\\resp_1"]


@pytest.mark.parametrize("end", [incomplete("max_output_tokens"), failed(), incomplete("cancelled")])
def test_only_a_completed_response_leaves_a_marker(end: Raw) -> None:
    decoded = Decoded([created(), end])
    assert (decoded.data("stateful_marker"), decoded.result.stateful_marker) == ([], None)


def test_a_marker_that_a_backslash_would_cut_is_not_sent() -> None:
    decoded = Decoded([completed(id="resp\\1")])
    assert decoded.data("stateful_marker") == []
    assert "stateful_marker" in decoded.notes("loss")
    assert Decoded([completed()], model="a\\b").data("stateful_marker") == []


def test_without_model_or_id_there_is_no_marker() -> None:
    assert Decoded([completed(id="")]).data("stateful_marker") == []
    assert Decoded([completed(model="")]).data("stateful_marker") == []


def test_the_closing_parts_come_last_and_in_order() -> None:
    events = [said("reasoning.delta", delta="a"), incomplete("max_output_tokens", usage=USAGE)]
    assert kinds(Decoded(events).parts) == ["Thinking", "Thinking", "Text", "Data"]
    decoded = Decoded([text_delta("a"), completed(function(1, "{}"), usage=USAGE)])
    assert kinds(decoded.parts) == ["Text", "ToolCall", "Data", "Data"]
    assert isinstance(decoded.parts[0], LanguageModelTextPart)
