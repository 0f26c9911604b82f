"""The app-server's `item/*`, `turn/*` and requests."""

from typing import Any

import pytest

from openresponses_bridge.dialects.codex import Inbound
from tests.support.checked_inbound import CheckedInbound, Frame
from tests.support.codex import counts, ended, item, notify, said, spent, started


def fed(*frames: Frame) -> CheckedInbound:
    return CheckedInbound(Inbound, [started(), *frames])


def texts(stream: CheckedInbound) -> list[str]:
    return [each["content"][0]["text"] for each in stream.output if each["type"] == "message"]


# ── messages ───────────────────────────────────────────────────────────────────────────────────────
def test_message_is_streamed_under_its_own_id() -> None:
    stream = fed(
        item("started", "agentMessage", "msg_a", text=""),
        said("Hel"),
        said("lo"),
        item("completed", "agentMessage", "msg_a", text="Hello"),
        ended(),
    )
    assert texts(stream) == ["Hello"]
    assert stream.output[0]["id"] == "msg_a"
    assert stream.status == "completed"


def test_message_without_deltas_is_sent_when_it_is_whole() -> None:
    assert texts(fed(item("completed", "agentMessage", "msg_a", text="Hello"), ended())) == ["Hello"]


def test_message_that_only_the_turns_summary_holds_is_sent_once() -> None:
    whole = {"type": "agentMessage", "id": "msg_a", "text": "Hello"}
    assert texts(fed(ended(items=[whole, whole, {"type": "reasoning"}, "x"]))) == ["Hello"]
    assert texts(fed(said("Hel"), ended(items=[whole]))) == ["Hel"]


def test_messages_of_two_phases_are_two_items() -> None:
    stream = fed(
        item("started", "agentMessage", "msg_a", phase="commentary"),
        said("I look."),
        item("completed", "agentMessage", "msg_a", text="I look."),
        item("started", "agentMessage", "msg_b", phase="final_answer"),
        said("Found.", "msg_b"),
        item("completed", "agentMessage", "msg_b", text="Found."),
        item("started", "agentMessage", "msg_c", phase="musing"),
        said("Hm.", "msg_c"),
        ended(),
    )
    sent = [(each["id"], each.get("phase")) for each in stream.output]
    assert sent == [("msg_a", "commentary"), ("msg_b", "final_answer"), ("msg_c", None)]


def test_e6_empty_deltas_and_messages_emit_nothing() -> None:
    stream = fed(said(""), item("completed", "agentMessage", "msg_a", text=""), ended())
    assert stream.output == []


def test_messages_sent_in_turns_are_kept_apart() -> None:
    stream = fed(said("a", "m1"), said("b", "m2"), said("c", "m2"), ended())
    assert texts(stream) == ["a", "bc"]


# ── reasoning ──────────────────────────────────────────────────────────────────────────────────────
def test_case_31_summary_and_raw_reasoning_share_an_item() -> None:
    stream = fed(
        item("started", "reasoning", "rs_a"),
        notify("item/reasoning/summaryPartAdded", itemId="rs_a", summaryIndex=0),
        notify("item/reasoning/summaryTextDelta", itemId="rs_a", delta="one", summaryIndex=0),
        notify("item/reasoning/summaryTextDelta", itemId="rs_a", delta="two", summaryIndex=1),
        notify("item/reasoning/textDelta", itemId="rs_a", delta="raw", contentIndex=0),
        item("completed", "reasoning", "rs_a", summary=["one", "two"], content=["raw"]),
        ended(),
    )
    (reasoning,) = stream.output
    assert reasoning["id"] == "rs_a"
    assert [part["text"] for part in reasoning["summary"]] == ["one", "two"]
    assert [part["text"] for part in reasoning["content"]] == ["raw"]


def test_reasoning_without_deltas_is_sent_when_it_is_whole() -> None:
    stream = fed(item("completed", "reasoning", "rs_a", summary=["s", 3], content=["r", "aw"]), ended())
    (reasoning,) = stream.output
    assert [part["text"] for part in reasoning["summary"]] == ["s"]
    assert reasoning["content"][0]["text"] == "raw"


# ── what Codex does by itself ──────────────────────────────────────────────────────────────────────
COMMAND = {"command": "ls", "cwd": "/w", "exitCode": None}


def test_command_is_an_item_from_its_start_to_its_end() -> None:
    stream = CheckedInbound(Inbound, [started()], close=False)
    assert stream.feed(item("started", "commandExecution", "call_a", **COMMAND)) == ["output_item.added"]
    assert stream.output[0]["status"] == "in_progress"
    output = notify("item/commandExecution/outputDelta", itemId="call_a", delta="a\n")
    assert stream.feed(output) == ["codex:command_execution.output_delta"]
    done = item("completed", "commandExecution", "call_a", **COMMAND | {"exitCode": 2}, status="failed")
    assert stream.feed(done) == ["output_item.done"]
    (command,) = stream.output
    assert command["status"] == "completed"
    assert command["outcome"] == "failed"
    assert command["exit_code"] == 2
    # it gives no account of its output, so what it printed stands
    assert command["aggregated_output"] == "a\n"


def test_its_own_account_of_the_output_counts_over_the_pieces() -> None:
    stream = fed(
        item("started", "commandExecution", "call_a"),
        notify("item/commandExecution/outputDelta", itemId="call_a", delta="b"),
        item("completed", "commandExecution", "call_a", aggregatedOutput="ab", status="completed"),
        ended(),
    )
    assert stream.output[0]["aggregated_output"] == "ab"


def test_items_of_other_kinds_carry_codexs_word() -> None:
    stream = fed(
        item("completed", "webSearch", "ws_a", query="q"),
        item("completed", "mcpToolCall", "mcp_a", server="s", status="inProgress"),
        item("started", "", "x"),
        item("completed", "", "x"),
        item("started", "userMessage", "u"),
        ended(),
    )
    assert [(each["type"], each["outcome"]) for each in stream.output] == [
        ("codex:web_search", "completed"),
        ("codex:mcp_tool_call", "in_progress"),
    ]


def test_output_of_an_item_that_is_not_running_is_ignored() -> None:
    stream = fed(
        notify("item/fileChange/outputDelta", itemId="x", delta="a"),
        item("started", "fileChange", "f"),
        notify("item/fileChange/outputDelta", itemId="f", delta=""),
        ended(),
    )
    assert stream.notes("ignored") == ["output_delta: of an item that is not running"]
    assert stream.extensions("codex:file_change.output_delta") == []


def test_output_kept_for_an_unfinished_command_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openresponses_bridge.dialects.codex.turn.MAX_KEPT_OUTPUT", 4)
    deltas = [
        notify("item/commandExecution/outputDelta", itemId="c", delta=piece) for piece in ("abc", "de", "f")
    ]
    stream = fed(item("started", "commandExecution", "c"), *deltas, ended())
    assert len(stream.extensions("codex:command_execution.output_delta")) == 3
    assert stream.output[0]["aggregated_output"] == "abcde"


def test_command_left_running_is_no_cut() -> None:
    stream = fed(item("started", "commandExecution", "c"), said("Started."), ended())
    assert stream.status == "completed"
    assert stream.output[0]["outcome"] == "in_progress"
    assert stream.output[0]["status"] == "completed"


def test_command_that_is_interrupted_keeps_what_it_printed() -> None:
    printed = notify("item/commandExecution/outputDelta", itemId="c", delta="half")
    stream = fed(item("started", "commandExecution", "c"), printed, ended("interrupted"))
    assert stream.output[0]["status"] == "incomplete"
    assert stream.output[0]["aggregated_output"] == "half"


def test_e8_open_text_is_not_closed_for_a_commands_sake() -> None:
    stream = fed(item("started", "commandExecution", "c"), said("I am runn"), ended("interrupted"))
    assert [each["status"] for each in stream.output] == ["incomplete", "incomplete"]
    failed = fed(item("started", "commandExecution", "c"), said("I am runn"), ended("failed"))
    assert [each["status"] for each in failed.output] == ["incomplete", "incomplete"]


def test_display_notifications_are_extension_events() -> None:
    stream = fed(
        notify("turn/diff/updated", diff="d"),
        notify("turn/plan/updated", plan=[], explanation=None),
        notify("item/mcpToolCall/progress", itemId="m", message="half"),
        ended(),
    )
    assert stream.extensions("codex:turn_diff") == [{"diff": "d"}]
    assert stream.extensions("codex:turn_plan") == [{"plan": []}]
    assert stream.extensions("codex:mcp_tool_call.progress") == [{"item_id": "m", "message": "half"}]


# ── requests ───────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("item/commandExecution/requestApproval", "command_execution"),
        ("item/fileChange/requestApproval", "file_change"),
        ("item/permissions/requestApproval", "permissions"),
        ("execCommandApproval", "command_execution"),
        ("applyPatchApproval", "file_change"),
    ],
)
def test_approvals_are_asked_by_an_extension_event(method: str, kind: str) -> None:
    request: dict[str, Any] = {
        "id": 7,
        "method": method,
        "params": {"itemId": "c", "reason": None, "cwd": "/w"},
    }
    (approval,) = fed(request, ended()).extensions("codex:approval_request")
    assert approval == {"request_id": 7, "kind": kind, "item_id": "c", "cwd": "/w"}


def test_a_request_nobody_answers_is_a_warning() -> None:
    request = {"id": 1, "method": "item/tool/call", "params": {}}
    stream = fed(request, ended())
    unanswered = "item/tool/call: a request of the upstream that is not answered"
    assert stream.notes("warning") == [unanswered, "output: completed without any"]


# ── usage ──────────────────────────────────────────────────────────────────────────────────────────
def usage(stream: CheckedInbound) -> tuple[int, ...] | None:
    sent = stream.response.usage
    return sent and (
        sent.input_tokens,
        sent.output_tokens,
        sent.total_tokens,
        sent.input_tokens_details.cached_tokens,
        sent.output_tokens_details.reasoning_tokens,
    )


def test_usage_is_what_the_turn_spent_not_the_thread() -> None:
    stream = fed(
        spent(counts(100, 50), counts(10, 5, 2, 1)),
        spent(counts(100, 50), counts(10, 5, 2, 1)),
        spent(counts(120, 60, 3, 4), counts(20, 10)),
        ended(),
    )
    assert usage(stream) == (30, 15, 45, 5, 5)


def test_usage_of_a_last_call_that_counts_nothing_is_the_total() -> None:
    assert usage(fed(spent(counts(11, 7), counts(0, 0)), ended())) == (11, 7, 18, 0, 0)


def test_usage_of_another_turn_is_not_ours() -> None:
    before = spent(counts(100, 50), counts(10, 5), turn="turn_0")
    assert usage(fed(before, spent(counts(111, 57), counts(0, 0)), ended())) == (11, 7, 18, 0, 0)


def test_usage_that_makes_no_sense_counts_as_nothing() -> None:
    assert usage(fed(notify("thread/tokenUsage/updated", tokenUsage="x"), ended())) == (0, 0, 0, 0, 0)
    assert usage(fed(ended())) is None


# ── the end ────────────────────────────────────────────────────────────────────────────────────────
ERROR = {"message": "boom", "codexErrorInfo": "other"}


@pytest.mark.parametrize(
    ("info", "code", "kind"),
    [
        ("contextWindowExceeded", "context_length_exceeded", "invalid_request_error"),
        ("usageLimitExceeded", "insufficient_quota", "too_many_requests"),
        ("serverOverloaded", "server_is_overloaded", "server_error"),
        ("internalServerError", "server_error", "server_error"),
        ("unauthorized", "invalid_api_key", "invalid_request_error"),
        ("badRequest", "invalid_prompt", "invalid_request_error"),
        ("sandboxError", "sandbox_error", "server_error"),
        ("bioPolicy", "bio_policy", "invalid_request_error"),
        ("cyberPolicy", "cyber_policy", "invalid_request_error"),
        ("other", "upstream_error", "server_error"),
        (None, "upstream_error", "server_error"),
        (
            {"responseTooManyFailedAttempts": {"httpStatusCode": 429}},
            "rate_limit_exceeded",
            "too_many_requests",
        ),
        ({"httpConnectionFailed": {"httpStatusCode": 404}}, "not_found", "not_found"),
        ({"httpConnectionFailed": {"httpStatusCode": 529}}, "service_unavailable", "server_error"),
        ({"responseStreamDisconnected": {"httpStatusCode": 418}}, "server_error", "server_error"),
        ({"responseStreamDisconnected": {"httpStatusCode": None}}, "upstream_error", "server_error"),
    ],
)
def test_s5_errors_keep_their_meaning(info: Any, code: str, kind: str) -> None:
    sent = notify("error", error={"message": "boom", "codexErrorInfo": info}, willRetry=False)
    stream = fed(sent, ended("failed", error=ERROR))
    assert stream.error == (code, "boom")
    payload = stream.events[-2].error  # type: ignore[union-attr]
    assert payload.type == kind  # type: ignore[union-attr]


def test_an_error_that_is_retried_is_a_warning_only() -> None:
    again = notify("error", error=ERROR, willRetry=True)
    stream = fed(again, said("a"), ended())
    assert stream.status == "completed"
    assert stream.notes("warning") == ["error: the upstream failed and tries again"]


def test_failed_turn_without_an_error_event_fails() -> None:
    assert fed(ended("failed", error=ERROR)).error == ("upstream_error", "boom")
    assert fed(ended("failed")).error[1] == "the upstream reported an error without a message"


def test_case_23_an_incomplete_response_is_incomplete_though_reported_as_an_error() -> None:
    sent = {"message": "Incomplete response returned, reason: content_filter", "codexErrorInfo": "other"}
    stream = fed(said("a"), notify("error", error=sent, willRetry=False))
    assert stream.status == "incomplete"
    assert stream.response.incomplete_details is not None
    assert stream.response.incomplete_details.reason == "content_filter"


def test_turn_that_is_in_progress_does_not_end() -> None:
    assert fed(ended("inProgress"), said("a"), ended()).status == "completed"


def test_unknown_methods_are_ignored_and_noted_once() -> None:
    stream = fed(notify("item/future/thing"), notify("item/future/thing"), notify("thread/new"), ended())
    assert stream.notes("ignored") == [
        "item/future/thing: unknown notification",
        "thread/new: unknown notification",
    ]
