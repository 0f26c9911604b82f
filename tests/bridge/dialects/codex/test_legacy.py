"""The older notifications, `codex/event/*`."""

import base64
from typing import Any

import pytest

from openresponses_bridge.dialects.codex import Generation, Inbound
from tests.support.checked_inbound import CheckedInbound, Frame
from tests.support.codex import legacy

DONE = legacy("task_complete", last_agent_message=None)


def fed(*frames: Frame) -> CheckedInbound:
    return CheckedInbound(Inbound, frames)


def texts(stream: CheckedInbound) -> list[str]:
    return [each["content"][0]["text"] for each in stream.output if each["type"] == "message"]


def chunk(data: bytes, call_id: str = "c", **fields: Any) -> Frame:
    encoded = base64.b64encode(data).decode()
    return legacy("exec_command_output_delta", call_id=call_id, stream="stdout", chunk=encoded, **fields)


# ── messages ───────────────────────────────────────────────────────────────────────────────────────
def test_each_message_is_sent_once_though_spelled_three_ways() -> None:
    frames = []
    for number in (1, 2):
        message = {"type": "AgentMessage", "id": f"msg_{number}"}
        frames += [
            legacy("item_started", item=message),
            legacy("agent_message_content_delta", item_id=f"msg_{number}", delta="same"),
            legacy("agent_message_delta", delta="same"),
            legacy("item_completed", item=message | {"content": [{"type": "Text", "text": "same"}]}),
            legacy("agent_message", message="same"),
        ]
    stream = fed(*frames, DONE)
    assert texts(stream) == ["same", "same"]
    assert [each["id"] for each in stream.output] == ["msg_1", "msg_2"]


def test_plain_spelling_alone_is_enough() -> None:
    stream = fed(
        legacy("agent_message_delta", delta="Hel"),
        legacy("agent_message_delta", delta="lo"),
        legacy("agent_message", message="Hello"),
        legacy("agent_message", message="Bye"),
        DONE,
    )
    assert texts(stream) == ["Hello", "Bye"]


def test_plain_deltas_go_with_whole_items() -> None:
    message = {"type": "AgentMessage", "id": "msg_1", "text": "Hello", "phase": "final_answer"}
    stream = fed(
        legacy("item_started", item=message),
        legacy("agent_message_delta", delta="Hello"),
        legacy("item_completed", item=message),
        legacy("agent_message", message="Hello"),
        DONE,
    )
    assert texts(stream) == ["Hello"]
    assert stream.output[0]["phase"] == "final_answer"


def test_whole_message_first_silences_the_item() -> None:
    message = {"type": "AgentMessage", "id": "msg_1", "text": "Hello"}
    stream = fed(legacy("agent_message", message="Hello"), legacy("item_completed", item=message), DONE)
    assert texts(stream) == ["Hello"]


def test_last_message_is_sent_when_no_event_did() -> None:
    last = legacy("task_complete", last_agent_message="Hello")
    assert texts(fed(last)) == ["Hello"]
    assert texts(fed(legacy("agent_message", message="Hello"), last)) == ["Hello"]
    assert fed(DONE).output == []


@pytest.mark.parametrize(
    "frames",
    [
        [
            {"id": "1", "msg": {"type": "agent_message_delta", "delta": "a"}},
            {"msg": {"type": "task_complete"}},
        ],
        [{"type": "agent_message_delta", "delta": "a"}, {"type": "task_complete"}],
        [{"method": "agentMessageDelta", "params": {"delta": "a"}}, {"method": "taskComplete", "params": {}}],
        [{"method": "codex/event/agent_message_delta", "params": {"delta": "a"}}, DONE],
    ],
)
def test_wrappings_of_the_old_protocol(frames: list[Frame]) -> None:
    stream = fed(*frames)
    assert texts(stream) == ["a"]
    assert stream.inbound.generation is Generation.LEGACY  # type: ignore[attr-defined]


# ── reasoning ──────────────────────────────────────────────────────────────────────────────────────
def test_reasoning_is_sent_once_though_spelled_twice() -> None:
    item = {"type": "Reasoning", "id": "rs_1"}
    stream = fed(
        legacy("item_started", item=item),
        legacy("agent_reasoning_section_break", item_id="rs_1", summary_index=0),
        legacy("reasoning_content_delta", item_id="rs_1", delta="sum", summary_index=0),
        legacy("agent_reasoning_delta", delta="sum"),
        legacy("reasoning_raw_content_delta", item_id="rs_1", delta="raw", content_index=0),
        legacy("agent_reasoning_raw_content_delta", delta="raw"),
        legacy("item_completed", item=item | {"summary_text": ["sum"], "raw_content": ["raw"]}),
        legacy("agent_reasoning", text="sum"),
        legacy("agent_reasoning_raw_content", text="raw"),
        DONE,
    )
    (reasoning,) = stream.output
    assert reasoning["id"] == "rs_1"
    assert [part["text"] for part in reasoning["summary"]] == ["sum"]
    assert reasoning["content"][0]["text"] == "raw"


def test_section_breaks_part_a_summary_without_indexes() -> None:
    stream = fed(
        legacy("agent_reasoning_delta", delta="one"),
        legacy("agent_reasoning_section_break", summary_index=1),
        legacy("agent_reasoning_delta", delta="two"),
        legacy("agent_reasoning", text="one two"),
        legacy("agent_message", message="So."),
        DONE,
    )
    assert [part["text"] for part in stream.output[0]["summary"]] == ["one", "two"]
    assert texts(stream) == ["So."]


def test_whole_reasoning_of_either_kind() -> None:
    assert fed(legacy("agent_reasoning", text="sum"), DONE).output[0]["summary"][0]["text"] == "sum"
    raw = fed(legacy("agent_reasoning_raw_content", text="raw"), DONE)
    assert raw.output[0]["content"][0]["text"] == "raw"
    item = {"type": "Reasoning", "id": "rs_1", "summary_text": ["s"], "raw_content": ["r"]}
    whole = fed(legacy("item_completed", item=item), legacy("agent_reasoning", text="s"), DONE)
    assert whole.output[0]["summary"][0]["text"] == "s"


# ── what Codex does by itself ──────────────────────────────────────────────────────────────────────
def test_command_has_the_app_servers_facts() -> None:
    body = {"call_id": "c", "turn_id": "0", "command": ["bash", "-lc", "echo 'a b'"], "cwd": "/w"}
    end = {
        "stdout": "a\n",
        "stderr": "b\n",
        "exit_code": 1,
        "duration": {"secs": 2, "nanos": 5_000_000},
        "formatted_output": "a",
        "parsed_cmd": [],
    }
    stream = fed(
        legacy("exec_command_begin", **body),
        chunk("é".encode()[:1]),
        chunk("é".encode()[1:]),
        legacy("exec_command_output_delta", call_id="c", chunk="?"),
        legacy("exec_command_end", **body, **end),
        DONE,
    )
    (command,) = stream.output
    assert command == {
        "type": "codex:command_execution",
        "id": "c",
        "status": "completed",
        "outcome": "failed",
        "command": "bash -lc 'echo '\"'\"'a b'\"'\"''",
        "cwd": "/w",
        "exit_code": 1,
        "duration_ms": 2005,
        "aggregated_output": "a\nb\n",
    }
    deltas = [each["delta"] for each in stream.extensions("codex:command_execution.output_delta")]
    assert deltas == ["é"]


def test_command_may_come_as_one_line_and_without_its_facts() -> None:
    stream = fed(legacy("exec_command_end", call_id="c", command="ls", exit_code=0), DONE)
    (command,) = stream.output
    assert (command["command"], command["outcome"]) == ("ls", "completed")
    assert "aggregated_output" not in command


def test_patch_has_the_app_servers_changes() -> None:
    changes = {"/a": {"type": "add", "content": "x"}, "/b": {"type": "update", "unified_diff": "@@"}}
    begin = {"call_id": "c", "changes": changes}
    stream = fed(
        legacy("patch_apply_begin", **begin), legacy("patch_apply_end", **begin, success=False), DONE
    )
    (patch,) = stream.output
    assert (patch["type"], patch["outcome"]) == ("codex:file_change", "failed")
    assert patch["changes"] == [
        {"path": "/a", "kind": {"type": "add"}, "diff": "x"},
        {"path": "/b", "kind": {"type": "update"}, "diff": "@@"},
    ]


def test_searches_and_mcp_calls_are_items() -> None:
    stream = fed(
        legacy("web_search_begin", call_id="ws"),
        legacy("web_search_end", call_id="ws", query="q"),
        legacy("mcp_tool_call_begin", call_id="mcp", invocation={"tool": "t"}),
        legacy("mcp_tool_call_end", call_id="mcp", result={}),
        legacy("item_completed", item={"type": "WebSearch", "id": "ws"}),
        DONE,
    )
    assert [each["type"] for each in stream.output] == ["codex:web_search", "codex:mcp_tool_call"]
    assert stream.output[0]["query"] == "q"


@pytest.mark.parametrize(
    ("event", "kind"),
    [("exec_approval_request", "command_execution"), ("apply_patch_approval_request", "file_change")],
)
def test_approvals_are_asked_by_their_call(event: str, kind: str) -> None:
    (approval,) = fed(legacy(event, call_id="c", cwd="/w"), DONE).extensions("codex:approval_request")
    assert approval == {"request_id": "c", "kind": kind, "item_id": "c", "cwd": "/w"}


def test_display_events_are_extension_events() -> None:
    stream = fed(legacy("turn_diff", unified_diff="d"), legacy("plan_update", plan=[]), DONE)
    assert stream.extensions("codex:turn_diff") == [{"diff": "d"}]
    assert stream.extensions("codex:turn_plan") == [{"plan": []}]


# ── facts and the end ──────────────────────────────────────────────────────────────────────────────
def test_token_counts() -> None:
    counts = {"input_tokens": 11, "output_tokens": 7, "cached_input_tokens": 1, "reasoning_output_tokens": 2}
    info = {"total_token_usage": counts, "last_token_usage": counts}
    stream = fed(legacy("token_count", info=None), *[legacy("token_count", info=info)] * 2, DONE)
    usage = stream.response.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (11, 7, 18)
    assert (usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens) == (1, 2)


def test_errors_aborts_and_retries() -> None:
    info = {"response_too_many_failed_attempts": {"http_status_code": 429}}
    assert fed(legacy("error", message="m", codex_error_info=info)).error == ("rate_limit_exceeded", "m")
    aborted = fed(legacy("agent_message_delta", delta="a"), legacy("turn_aborted", reason="interrupted"))
    assert aborted.response.incomplete_details is not None
    assert aborted.response.incomplete_details.reason == "cancelled"
    retried = fed(legacy("stream_error", message="again"), DONE)
    assert retried.status == "completed"
    again = "error: the upstream failed and tries again"
    assert retried.notes("warning") == [again, "output: completed without any"]


def test_unknown_events_are_ignored_and_noted_once() -> None:
    stream = fed(legacy("future"), legacy("future"), legacy("user_message", message="x"), DONE)
    assert stream.notes("ignored") == ["future: unknown notification"]
