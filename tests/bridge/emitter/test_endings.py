"""How a stream ends: completed or incomplete (E7), failed or cancelled (E8)."""

from functools import partial
from typing import Any

import pytest

from openresponses_bridge.calls.identity import ToolIdentityMap, ToolKind
from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.emitter.failures import redacted
from openresponses_bridge.errors import BridgeError, InvalidRequestError, StreamStateError
from openresponses_bridge.protocol.codec import encode_sse
from openresponses_bridge.protocol.response import ErrorPayload, ResponseError
from openresponses_bridge.state import ResponseStreamPhase
from tests.support.machines import CLOCK, Run, plain

COMPLETED = [
    "stop",
    "tool_calls",
    "function_call",
    "end_turn",
    "tool_use",
    "stop_sequence",
    "STOP",
    " stop ",
    None,
]
CUT = ["length", "max_tokens", "max_output_tokens", "max_completion_tokens", "MAX_TOKENS", "model_length"]
FILTERED = ["content_filter", "safety", "refusal", "recitation", "SAFETY"]


# ── E7: finish ───────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("reason", COMPLETED)
def test_e7_an_upstream_that_stopped_by_itself_completes(wire: str, reason: str | None) -> None:
    run = Run(wire)
    run("text", "a")
    assert run.kinds("finish", reason)[-1] == "completed"
    assert run.machine.phase is ResponseStreamPhase.COMPLETED
    terminal = run.terminal
    assert (terminal["status"], terminal["completed_at"], terminal["incomplete_details"]) == (
        "completed",
        CLOCK,
        None,
    )
    assert terminal["output"][0]["status"] == "completed"


@pytest.mark.parametrize(
    ("reason", "sent"),
    [(reason, "max_output_tokens") for reason in CUT] + [(reason, "content_filter") for reason in FILTERED],
)
def test_e7_case_23_a_limit_or_a_filter_ends_as_incomplete(wire: str, reason: str, sent: str) -> None:
    run = Run(wire)
    run("text", "a")
    assert run.kinds("finish", reason)[-1] == "incomplete"
    assert run.machine.phase is ResponseStreamPhase.INCOMPLETE
    terminal = run.terminal
    assert (terminal["status"], terminal["completed_at"]) == ("incomplete", None)
    assert terminal["incomplete_details"] == {"reason": sent}
    assert [item["status"] for item in terminal["output"]] == ["incomplete"]


@pytest.mark.parametrize(
    ("reason", "sent"),
    [("max_prompt_tokens", "max_prompt_tokens"), (None, "unknown"), ("length", "max_output_tokens"),
     ("stop", "stop"), ("content_filter", "content_filter")],
)  # fmt: skip
def test_e7_an_upstream_that_calls_itself_incomplete_is_believed(
    wire: str, reason: str | None, sent: str
) -> None:
    run = Run(wire)
    run("text", "a")
    run("finish", reason, incomplete=True)
    assert run.terminal["status"] == "incomplete"
    assert run.terminal["incomplete_details"] == {"reason": sent}
    assert run.terminal["output"][0]["status"] == "incomplete"


def test_e7_a_limit_leaves_finished_items_completed(wire: str) -> None:
    run = Run(wire)
    run("reasoning", "r")
    run("tool_call", 0, "c", "f", "{}")
    run("tool_call_done", 0)
    run("text", "a")
    run("finish", "length")
    assert [item["status"] for item in run.output] == ["completed", "completed", "incomplete"]


def test_e7_case_24_a_limit_while_thinking_keeps_the_reasoning(wire: str) -> None:
    run = Run(wire)
    run("reasoning", "so far")
    run("finish", "length")
    (item,) = run.terminal["output"]
    assert (item["type"], item["status"], item["content"][0]["text"]) == ("reasoning", "incomplete", "so far")


def test_e7_a_limit_with_nothing_open_is_incomplete_all_the_same(wire: str) -> None:
    run = Run(wire)
    assert run.kinds("finish", "length") == ["incomplete"]
    assert run.terminal["output"] == []


def test_e7_an_unknown_reason_is_not_a_good_end(wire: str) -> None:
    run = Run(wire)
    run("finish", "tired")
    assert run.terminal["status"] == "incomplete"
    assert run.terminal["incomplete_details"] == {"reason": "tired"}
    assert run.notes("warning") == ["finish_reason"]


@pytest.mark.parametrize(
    ("reason", "given"),
    [
        ("tired", "tired"),
        ("  Tired ", "Tired"),
        ("x" * 1000, "x" * 200),
        ("half \ud83d", "half \ufffd"),
        (" ", "incomplete_tool_call"),
        (None, "incomplete_tool_call"),
        ("tool_calls", "incomplete_tool_call"),
        ("stop", "incomplete_tool_call"),
    ],
    ids=ascii,
)
def test_e7_a_cut_call_ends_with_the_upstreams_own_reason_or_says_what_is_known(
    wire: str, reason: str | None, given: str
) -> None:
    run = Run(wire)
    run("tool_call", 0, "c", "f", '{"a":')
    run("finish", reason)
    assert run.terminal["incomplete_details"] == {"reason": given}
    assert run.terminal["status"] == "incomplete"


@pytest.mark.parametrize("reason", ["x" * 1000, "half \ud83d", "steered"], ids=ascii)
def test_e7_an_upstreams_reason_is_cut_and_mended_not_warned_of(wire: str, reason: str) -> None:
    run = Run(wire)
    run("finish", reason, incomplete=True)
    sent = run.terminal["incomplete_details"]["reason"]
    assert sent == reason[:200].replace("\ud83d", "\ufffd")
    assert run.notes("warning") == []


def test_e7_finish_closes_in_output_index_order(wire: str) -> None:
    run = Run(wire)
    run("tool_call", 5, "a", "f", '{"x":')
    run("tool_call", 2, "b", "g", '{"y":')
    run("text", "t")
    run("tool_call", 2, arguments="1}")
    run("tool_call", 5, arguments="1}")
    events = [plain(event) for event in run("finish")]
    done = [event["output_index"] for event in events if event["type"] == "response.output_item.done"]
    assert done == [0, 1, 2]


def test_e7_deferred_reason_is_used_when_finish_brings_none(wire: str) -> None:
    run = Run(wire)
    run("text", "a")
    assert run("defer_finish", "length") == []
    run("text", "b")
    run("finish")
    assert run.terminal["incomplete_details"] == {"reason": "max_output_tokens"}
    assert run.machine.snapshot.output_text == "ab"


def test_e7_the_reason_of_finish_goes_before_the_deferred_one(wire: str) -> None:
    run = Run(wire)
    run("defer_finish", "length")
    run("finish", "stop")
    assert run.terminal["status"] == "completed"


def test_e7_a_reason_can_be_deferred_again(wire: str) -> None:
    run = Run(wire)
    run("defer_finish", "length")
    run("defer_finish", None)
    run("finish")
    assert run.terminal["status"] == "completed"


WHOLE, TRUNCATED, MALFORMED, EMPTY = '{"a": [1, "x"]}', '{"a": [1, "x', '{"a": nope}', ""
ENDS = [
    ("finish", "stop"),
    ("finish", "tool_calls"),
    ("finish", "length"),
    ("finish", "content_filter"),
    ("cancel",),
]


@pytest.mark.parametrize("end", ENDS, ids="_".join)
@pytest.mark.parametrize("arguments", [WHOLE, TRUNCATED, MALFORMED, EMPTY])
def test_e7_case_25_arguments_and_the_end(wire: str, arguments: str, end: tuple[str, ...]) -> None:
    """Whole and malformed arguments pass; what ends before its JSON does was cut, whatever upstream says."""
    run = Run(wire)
    run("tool_call", 0, "c", "f", arguments)
    events = run.kinds(*end)
    stopped = end[0] == "finish" and end[1] in ("stop", "tool_calls")
    cut = end == ("cancel",) or arguments == TRUNCATED or (arguments == EMPTY and not stopped)
    (item,) = run.terminal["output"]
    assert item["status"] == ("incomplete" if cut else "completed")
    assert item["arguments"] == ("{}" if arguments == EMPTY and not cut else arguments)
    assert ("function_call_arguments.done" in events) is not cut
    assert run.terminal["status"] != "completed" or not cut
    if stopped and cut:
        assert run.terminal["incomplete_details"] == {"reason": "incomplete_tool_call"}
        assert run.notes("warning") == ["finish_reason"]


def test_e7_a_cut_call_is_sent_last_and_takes_no_more(wire: str) -> None:
    run = Run(wire)
    run("tool_call", 0, "c", "f", TRUNCATED)
    assert run("tool_call_done", 0) == []
    assert run("tool_call", 0, arguments='"]}') == []
    assert run.notes("loss") == ["tool_call.arguments"]
    assert run("tool_call_done", 0) == []
    run("text", "after")
    run("tool_call", 1, "d", "g", WHOLE)
    events = run.kinds("finish", "stop")
    assert events == [
        "output_item.done", "function_call_arguments.done", "output_item.done", "incomplete",
    ]  # fmt: skip
    assert [item["status"] for item in run.output] == ["incomplete", "completed", "completed"]
    assert run.output[0]["arguments"] == TRUNCATED


def test_e7_a_call_that_never_got_a_name_stops_finish(wire: str) -> None:
    run = Run(wire)
    run("text", "a")
    run("tool_call", 3, "c", None, "{}")
    for call in (("finish", "stop"), ("tool_call_done", 3), ("tool_call", 3, "other", "f")):
        with pytest.raises(StreamStateError) as caught:
            run(*call)
        assert caught.value.code == "bridge.stream.incomplete_tool_call"
        assert "index 3" in caught.value.message
        assert caught.value.context == {"call": call[0], "index": 3}
    run("tool_call", 3, name="f")
    run("finish", "stop")
    assert [item["type"] for item in run.output] == ["message", "function_call"]


@pytest.mark.parametrize(
    ("reason", "given"), [("stop", "incomplete_tool_call"), ("length", "max_output_tokens")]
)
def test_e7_a_call_that_is_cut_before_it_has_a_name_is_left_out(wire: str, reason: str, given: str) -> None:
    run = Run(wire)
    run("text", "a")
    run("tool_call", 3, "c", None, "{")
    for _ in range(2):
        assert run.machine.tool_call_done(3, cut=True) == []
    assert run("tool_call", 3, arguments="}") == []
    run("tool_call", 3, "d", "f", "{}")
    run("finish", reason)
    assert [item["type"] for item in run.output] == ["message", "function_call"]
    assert run.terminal["incomplete_details"] == {"reason": given}
    assert run.notes("loss") == ["tool_call", "tool_call.arguments"]


def test_e7_the_calls_that_have_no_name_are_ended_together(wire: str) -> None:
    run = Run(wire)
    run("tool_call", 0, "a", "f", "{")
    run("tool_call", 3, "c", None, "{}")
    run("tool_call", 5, "d")
    for _ in range(2):
        assert run("end_nameless") == []
    run("tool_call", 0, arguments="}")
    run("tool_call", 6, "e", None, "{}")
    run("tool_call", 6, name="late")
    run("finish", "tool_calls")
    assert [(item["name"], item["status"]) for item in run.output] == [
        ("f", "completed"),
        ("late", "completed"),
    ]
    assert run.terminal["incomplete_details"] == {"reason": "incomplete_tool_call"}
    assert [(case.where, case.times) for case in run.machine.diagnostics.of("loss")] == [("tool_call", 2)]


@pytest.mark.parametrize("end", [("cancel",), ("fail", "down"), ("finish", "cancelled")])
def test_e8_a_nameless_call_does_not_stop_an_end_that_is_not_finish(wire: str, end: tuple[str, ...]) -> None:
    run = Run(wire)
    run("tool_call", 0, "c", None, "{}")
    if end[0] == "finish":
        with pytest.raises(StreamStateError, match="never got a name"):
            run(*end)
        run("cancel")
    else:
        run(*end)
    assert run.terminal["output"] == []


# ── E8: fail ─────────────────────────────────────────────────────────────────────────────────────────
NULL_PARAM = {"param": None}
FAILURES: list[tuple[Any, dict[str, Any], dict[str, str]]] = [
    (
        ErrorPayload("rate_limit_error", None, "slow down", "model", {"retry-after": "3"}),
        {"type": "rate_limit_error", "code": None, "message": "slow down", "param": "model",
         "headers": {"retry-after": "3"}},
        {"code": "rate_limit_error", "message": "slow down"},
    ),
    (
        ResponseError("overloaded", "later"),
        {"type": "server_error", "code": "overloaded", "message": "later", **NULL_PARAM},
        {"code": "overloaded", "message": "later"},
    ),
    (
        BridgeError("bridge.some", "what", param="input"),
        {"type": "server_error", "code": "bridge.some", "message": "what", "param": "input"},
        {"code": "bridge.some", "message": "what"},
    ),
    (
        InvalidRequestError("invalid_value", "bad"),
        {"type": "invalid_request_error", "code": "invalid_value", "message": "bad", **NULL_PARAM},
        {"code": "invalid_value", "message": "bad"},
    ),
    (
        {"code": 429, "message": "busy", "type": "too_many_requests", "param": None},
        {"type": "too_many_requests", "code": "429", "message": "busy", **NULL_PARAM},
        {"code": "429", "message": "busy"},
    ),
    (
        {},
        {"type": "server_error", "code": None, "message": "unknown error", **NULL_PARAM},
        {"code": "server_error", "message": "unknown error"},
    ),
    (
        "down",
        {"type": "server_error", "code": "server_error", "message": "down", **NULL_PARAM},
        {"code": "server_error", "message": "down"},
    ),
    (
        ValueError("a secret"),
        {"type": "server_error", "code": "server_error", "message": "internal error (ValueError)",
         **NULL_PARAM},
        {"code": "server_error", "message": "internal error (ValueError)"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "payload", "sent"), FAILURES, ids=[str(case[1]["message"]) for case in FAILURES]
)
def test_e8_fail_reports_each_kind_of_error_twice(
    wire: str, error: Any, payload: dict[str, Any], sent: dict[str, str]
) -> None:
    run = Run(wire)
    run("text", "a")
    assert run.kinds("fail", error) == ["error", "failed"]
    assert run.machine.phase is ResponseStreamPhase.FAILED
    event = plain(run.events[-2])
    if wire == "openresponses":
        assert event["error"] == payload
    else:
        top = {name: payload[name] for name in ("code", "message", "param")}
        assert event == {"type": "error", "sequence_number": event["sequence_number"], **top}
    assert (run.terminal["status"], run.terminal["error"]) == ("failed", sent)
    assert "a secret" not in str(plain(run.events[-1]))


def test_e8_fail_keeps_the_partial_output_and_sends_no_done_events(wire: str) -> None:
    run = Run(wire)
    run("reasoning", "r")
    run("text", "partial")
    run("tool_call", 0, "c", "f", WHOLE)
    run("text", "more")
    assert run.kinds("fail", "down") == ["error", "failed"]
    assert [(item["type"], item["status"]) for item in run.terminal["output"]] == [
        ("reasoning", "completed"), ("message", "completed"), ("function_call", "incomplete"),
        ("message", "incomplete"),
    ]  # fmt: skip
    assert run.terminal["output"][2]["arguments"] == WHOLE
    assert run.terminal["incomplete_details"] is None
    assert run.terminal["completed_at"] is None


def test_e8_usage_is_sent_when_it_was_known_before_the_failure(wire: str) -> None:
    run = Run(wire)
    run("usage", {"input_tokens": 3})
    run("fail", "down")
    assert run.terminal["usage"]["input_tokens"] == 3


# ── E8: cancel ───────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("end", [("cancel",), ("finish", "cancelled")])
def test_e8_cancel_ends_as_incomplete_in_the_wires_own_words(wire: str, end: tuple[str, ...]) -> None:
    run = Run(wire)
    run("text", "a")
    run("tool_call", 0, "c", "f", WHOLE)
    events = run.kinds(*end)
    assert events[-1] == "incomplete"
    assert "function_call_arguments.done" not in events
    terminal = run.terminal
    if wire == "openresponses":
        assert (terminal["status"], terminal["incomplete_details"]) == ("incomplete", {"reason": "cancelled"})
    else:
        assert (terminal["status"], terminal["incomplete_details"]) == ("cancelled", None)
    assert [item["status"] for item in terminal["output"]] == ["completed", "incomplete"]
    assert run.machine.phase is ResponseStreamPhase.INCOMPLETE


@pytest.mark.parametrize(
    "end", [("finish", "stop"), ("finish", "length"), ("cancel",), ("fail", "x")], ids="_".join
)
def test_e8_one_terminal_event_and_nothing_after_it(wire: str, end: tuple[str, ...]) -> None:
    run = Run(wire)
    run("text", "a")
    run(*end)
    assert (
        sum(
            event.type in ("response.completed", "response.incomplete", "response.failed")
            for event in run.events
        )
        == 1
    )
    for call in (("text", "b"), ("finish",), ("fail", "y"), ("cancel",)):
        with pytest.raises(StreamStateError):
            run(*call)
    assert run.validator.close() == []


# ── E1: the terminal snapshot ────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "end", [("finish", "stop"), ("finish", "length"), ("cancel",), ("fail", "x")], ids="_".join
)
def test_e1_the_answer_not_streamed_is_the_terminal_events_response(wire: str, end: tuple[str, ...]) -> None:
    run = Run(wire)
    run("reasoning_summary", "s")
    run("text", "a")
    run("tool_call", 0, "c", "f", WHOLE)
    run("usage", {"input_tokens": 1, "output_tokens": 2})
    run(*end)
    assert run.terminal == plain(run.machine.snapshot) == plain(run.accumulator.response)
    done = [plain(event)["item"] for event in run.events if event.type == "response.output_item.done"]
    assert end[0] == "fail" or run.terminal["output"] == done


def test_e8_redact_is_applied_to_every_text_of_an_error() -> None:
    clean = partial(redacted, redact=lambda text: text.replace("key-1", "[key]"))
    subject = ResponseStreamStateMachine("m", redact=clean)
    subject.start()
    error, failed = subject.fail(
        {"type": "key-1", "code": "code key-1", "message": "no key-1", "param": "a.key-1"}
    )
    assert error.payload == ErrorPayload("[key]", "code [key]", "no [key]", "a.[key]")
    assert (failed.response.error.code, failed.response.error.message) == ("code [key]", "no [key]")
    assert "key-1" not in encode_sse([error, failed]).decode()


@pytest.mark.parametrize(("reason", "notes"), [(None, []), ("stop", []), ("", ["finish_reason"])])
def test_e7_an_empty_reason_is_a_stop_that_is_reported(
    wire: str, reason: str | None, notes: list[str]
) -> None:
    run = Run(wire)
    run("text", "Hi")
    run("finish", reason)
    assert run.machine.snapshot.status == "completed"
    assert run.notes("repair") == notes


def test_e7_a_response_that_completes_without_output_is_reported(wire: str) -> None:
    run = Run(wire)
    run("finish")
    assert run.notes("warning") == ["output"]
    failed = Run(wire)
    failed("finish", "length")
    assert failed.notes("warning") == []


def test_e7_a_call_of_no_declared_tool_is_reported(wire: str) -> None:
    identities = ToolIdentityMap()
    identities.declare(ToolKind.FUNCTION, "look")
    run = Run(wire, identities=identities)
    run("tool_call", 0, "a", "look", '{"a":1}')
    run("tool_call", 1, "b", "other", '{"a":1}')
    run("finish")
    assert run.notes("warning") == ["tool_call.name"]
    assert [item["name"] for item in run.output] == ["look", "other"]
