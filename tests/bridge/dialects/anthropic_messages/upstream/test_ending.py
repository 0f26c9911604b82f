"""Anthropic streams → events: how they end, and what was counted."""

import pytest
from msgspec import UNSET

from openresponses_bridge.dialects.anthropic_messages import Inbound
from tests.support.anthropic import (
    CheckedAnthropic,
    calls,
    delta,
    frame,
    opened,
    run,
    start,
    stop,
    text,
    tool,
)
from tests.support.machines import kinds, machine


# ── ends ─────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("reason", "status", "incomplete"),
    [
        ("end_turn", "completed", None),
        ("tool_use", "completed", None),
        ("stop_sequence", "completed", None),
        ("pause_turn", "completed", None),
        ("max_tokens", "incomplete", "max_output_tokens"),
        ("model_context_window_exceeded", "incomplete", "max_output_tokens"),
        ("compaction", "incomplete", "compaction"),
        ("refusal", "incomplete", "content_filter"),
    ],
)
def test_case_23_stop_reasons(reason, status, incomplete):
    fed = run(start(), text(0, "x"), stop(reason))
    details = fed.response.incomplete_details
    assert (fed.response.status, details and details.reason) == (status, incomplete)
    assert fed.output[0]["status"] == status
    assert fed.notes("loss") == []
    inexact = reason in ("pause_turn", "model_context_window_exceeded", "compaction")
    assert native(fed) == ({"delta": {"stop_reason": reason}} if inexact else {})


def test_a_refusal_is_explained_in_the_message():
    details = {"type": "refusal", "category": "bio", "explanation": "No."}
    end = frame("message_delta", delta={"stop_reason": "refusal", "stop_details": details}, usage={})
    fed = run(start(), text(0, "Well"), end, frame("message_stop"))
    parts = [(part["type"], part.get("text", part.get("refusal"))) for part in fed.output[0]["content"]]
    assert parts == [("output_text", "Well"), ("refusal", "No.")]
    assert native(fed) == {"delta": {"stop_details": details}}


def test_the_matched_stop_sequence_is_in_the_response():
    end = frame("message_delta", delta={"stop_reason": "stop_sequence", "stop_sequence": "END"}, usage={})
    fed = run(start(), text(0, "x"), end, frame("message_stop"))
    assert (fed.response.status, fed.response.stop_sequence, fed.notes("loss")) == ("completed", "END", [])
    end = frame("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": 7}, usage={})
    assert run(start(), text(0, "x"), end, frame("message_stop")).response.stop_sequence is UNSET


def test_n1_what_only_clients_of_the_api_know_is_in_the_response():
    edits = {"applied_edits": [{"type": "clear_thinking_20251015", "cleared_thinking_turns": 1}]}
    box = {"id": "c", "expires_at": "x"}
    message_delta = {"stop_reason": "end_turn", "container": box, "of_tomorrow": None}
    tier = {"input_tokens": 3, "output_tokens": 1, "service_tier": "standard"}
    begin = frame("message_start", message={"id": "m", "usage": tier, "diagnostics": {"a": 1}})
    end = frame(
        "message_delta", delta=message_delta, usage={"iterations": [{}, {}]}, context_management=edits
    )
    fed = run(begin, text(0, "x"), end, frame("message_stop"))
    fields = {"service_tier": "standard", "diagnostics": {"a": 1}}
    assert fed.events[0].response.native == {"anthropic": fields}
    fields["usage"] = {"iterations": [{}, {}]}
    assert native(fed) == {**fields, "delta": {"container": box}, "context_management": edits}


def native(fed):
    return (fed.response.native or {}).get("anthropic", {})


def test_case_26_an_end_without_stop_reason_is_a_failure():
    fed = run(start(), text(0, "half"))
    assert fed.response.status == "failed"
    assert fed.response.error.code == "upstream_cut"
    assert "after 4 frames" in fed.response.error.message
    assert fed.output[0]["status"] == "incomplete"


def test_case_26_no_frame_at_all_is_a_failure():
    assert "before its first frame" in run().response.error.message


def test_an_end_after_the_stop_reason_is_repaired():
    fed = run(start(), text(0, "x"), stop()[:1])
    assert fed.response.status == "completed"
    assert fed.notes("repair") == ["message_stop"]


def test_message_stop_without_a_stop_reason_is_an_end():
    fed = run(start(), text(0, "x"), frame("message_stop"))
    assert fed.response.status == "completed"
    assert fed.notes("repair") == ["stop_reason"]


@pytest.mark.parametrize(
    "frames",
    [
        [frame("message_stop")],
        [start(), frame("message_stop")],
        [start(), frame("message_delta", delta={"stop_reason": None}), frame("message_stop")],
        [frame("message", id="msg_1", content=[], stop_reason=None)],
        [frame("message", id="msg_1", content=None, stop_reason=7)],
        [frame("message", id="msg_1")],
        [frame("message", id="msg_1", content=[{"no": "type"}], stop_reason=None)],
        [b'{"id":"msg_1","role":"assistant","content":[]}'],
    ],
)
def test_an_end_without_content_or_stop_reason_is_a_failure(frames):
    fed = run(*frames)
    assert (fed.response.status, fed.response.error.code) == ("failed", "upstream_empty")
    assert kinds(fed.events)[-1] == "failed"


@pytest.mark.parametrize(
    ("content", "items"),
    [
        ([{"type": "text", "text": "x"}], ["message"]),
        ([{"type": "thinking", "thinking": "t", "signature": "s"}], ["reasoning"]),
        ([{"type": "tool_use", "id": "t1", "name": "f", "input": {}}], ["function_call"]),
        ([{"type": "of_tomorrow"}], ["anthropic:of_tomorrow"]),
    ],
)
def test_a_whole_message_with_content_needs_no_stop_reason(content, items):
    fed = run(frame("message", id="msg_1", content=content, stop_reason=None))
    assert fed.response.status == "completed"
    assert [item["type"] for item in fed.output] == items
    assert fed.notes("repair") == ["stop_reason"]


def test_a_message_without_content_that_names_its_end_is_whole():
    fed = run(frame("message", id="msg_1", content=[], stop_reason="end_turn"))
    assert (fed.response.status, fed.output) == ("completed", [])


def test_case_27_an_in_band_error_keeps_code_and_message():
    fed = run(
        start(), text(0, "x"), frame("error", error={"type": "overloaded_error", "message": "Overloaded"})
    )
    assert kinds(fed.events)[-2:] == ["error", "failed"]
    assert (fed.response.error.code, fed.response.error.message) == ("overloaded_error", "Overloaded")
    assert fed.response.output_text == "x"


@pytest.mark.parametrize(
    ("payload", "code", "message"),
    [
        (b'{"type":"error","error":"boom"}', "upstream_error", "boom"),
        (b'{"type":"error","message":"boom"}', "upstream_error", "boom"),
        (b'{"type":"error","message":{"type":"api_error","message":"boom"}}', "api_error", "boom"),
        (
            b'{"type":"error","message":{}}',
            "upstream_error",
            "the upstream reported an error without a message",
        ),
        (b'{"type":"error"}', "upstream_error", "the upstream reported an error without a message"),
        (b'{"error":{"type":"api_error","message":"m"}}', "api_error", "m"),
        (b'{"type":"error","error":{"type":"api_error","code":17,"message":"m"}}', "17", "m"),
    ],
)
def test_case_27_errors_of_any_shape(payload, code, message):
    error = run(start(), payload).response.error
    assert (error.code, error.message) == (code, message)


def test_an_error_in_an_open_block_says_how_many_were_open():
    fed = run(start(), opened(0, "server_tool_use", id="s", name="n"), frame("error", error={"message": "m"}))
    assert fed.notes("warning") == ["frame"]


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"{", "upstream_invalid_json"),
        (b"\xff{}", "upstream_invalid_json"),
        (b"[" * 100_000, "upstream_invalid_json"),
        (b"[]", "upstream_invalid_shape"),
        (b"null", "upstream_invalid_shape"),
    ],
)
def test_broken_frames_fail_and_name_the_frame(payload, code):
    fed = run(start(), text(0, "x"), payload, stop())
    assert fed.response.error.code == code
    assert "frame 5 " in fed.response.error.message
    assert fed.notes("ignored") == ["frame"]  # what came after


def test_frames_after_the_end_are_ignored_with_a_diagnostic():
    fed = run(start(), text(0, "x"), stop(), start("msg_2"), text(0, "y"))
    assert fed.response.output_text == "x"
    assert fed.notes("ignored") == ["frame"]


def test_a_machine_that_was_ended_from_outside_swallows_frames():
    fed = CheckedAnthropic([start(), *text(0, "x")])
    fed._watch(fed.machine.cancel())
    assert fed.feed(delta(0, "text_delta", text="y")) == []
    assert fed.feed(frame("ping")) == []
    assert fed.close().response.status == "incomplete"


def test_a_machine_that_was_started_is_not_started_again():
    started = machine()
    events = started.start() + Inbound(started).feed(start())
    assert kinds(events) == ["created", "in_progress"]


# ── usage ────────────────────────────────────────────────────────────────────────────────────────────
def usage(fed):
    sent = fed.response.usage
    return (
        sent.input_tokens,
        sent.input_tokens_details.cached_tokens,
        sent.output_tokens,
        sent.output_tokens_details.reasoning_tokens,
        sent.total_tokens,
    )


def test_cached_input_is_counted_within_input():
    counts = {"input_tokens": 10, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 3000}
    fed = run(start(**counts), text(0, "x"), stop(output_tokens=7))
    assert usage(fed) == (3210, 3000, 7, 0, 3217)
    assert fed.response.usage.cache_write_tokens == 200
    assert not fed.notes("loss")


def test_usage_is_corrected_by_what_comes_late():
    fed = run(start(input_tokens=43), text(0, "x"), stop(input_tokens=61, output_tokens=2))
    assert usage(fed) == (61, 0, 2, 0, 63)


def test_usage_that_is_null_or_absent_keeps_what_was_known():
    end = frame(
        "message_delta", delta={"stop_reason": "end_turn"}, usage={"input_tokens": None, "output_tokens": 5}
    )
    assert usage(run(start(input_tokens=43), text(0, "x"), end, frame("message_stop")))[:3] == (43, 0, 5)
    assert usage(run(start(input_tokens=43), text(0, "x"), frame("message_stop")))[:3] == (43, 0, 1)


def test_thinking_tokens_are_reasoning_tokens_and_other_counts_are_reported():
    counts = {
        "output_tokens": 9,
        "output_tokens_details": {"thinking_tokens": 4},
        "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 1},
        "iterations": [{}, {}],
    }
    end = frame("message_delta", delta={"stop_reason": "end_turn"}, usage=counts)
    fed = run(start(), text(0, "x"), end, frame("message_stop"))
    assert usage(fed)[3] == 4
    names = ("server_tool_use", "iterations")
    assert native(fed) == {"usage": {name: counts[name] for name in names}}


def test_a_response_without_any_usage_has_none():
    fed = run(frame("message_start", message={"id": "m"}), text(0, "x"), frame("message_stop"))
    assert fed.response.usage is None


# ── messages that start oddly ────────────────────────────────────────────────────────────────────────
def test_a_message_start_sent_twice_is_one():
    fed = run(start(), start(), text(0, "x"), stop())
    assert fed.response.output_text == "x"
    assert usage(fed)[0] == 3
    assert fed.notes("repair") == ["message_start"]


def test_a_message_spliced_in_goes_on_in_the_same_response():
    fed = run(
        start("msg_1"), text(0, "a"), opened(1, "text", text=""), delta(1, "text_delta", text="b"),
        start("msg_2"), text(0, "c"), tool(1, "t1", "f", "{}"), stop("tool_use"),
    )  # fmt: skip
    assert fed.response.output_text == "abc"
    assert calls(fed) == [("t1", "f", "{}", "completed")]
    assert usage(fed)[:3] == (6, 0, 10)  # both were generated
    assert fed.notes("repair") == ["message_start"]


def test_a_splice_forgets_the_reason_before_it():
    refused = frame("message_delta", delta={"stop_reason": "refusal", "stop_details": {"explanation": "No."}})
    fed = run(start("msg_1"), refused, start("msg_2"), text(0, "yes"), stop())
    assert fed.response.status == "completed"
    assert fed.response.output_text == "yes"


def test_a_missing_message_start_is_repaired():
    fed = run(text(0, "x"), stop())
    assert fed.response.output_text == "x"
    assert fed.notes("repair") == ["message_start"]


def test_a_ping_alone_starts_the_response():
    assert kinds(CheckedAnthropic([frame("ping")]).events) == ["created", "in_progress"]


def test_content_in_message_start_counts():
    message = {"id": "m", "content": [{"type": "text", "text": "pre"}]}
    fed = run(frame("message_start", message=message), text(0, "fix"), stop())
    assert fed.response.output_text == "prefix"
