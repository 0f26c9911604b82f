"""A proxy's `response.*` notifications, under each of their names."""

from typing import Any

import pytest

from openresponses_bridge.dialects.codex import Inbound
from tests.support.checked_inbound import CheckedInbound, Frame
from tests.support.codex import legacy, notify, proxied, started

CALL = {"type": "function_call", "id": "fc_a", "call_id": "call_a", "name": "find"}
COMPLETED = proxied("completed", response={"status": "completed", "output": []})


def fed(*frames: Frame) -> CheckedInbound:
    return CheckedInbound(Inbound, frames)


def calls(stream: CheckedInbound) -> list[tuple[str, str, str, str]]:
    return [
        (item["call_id"], item["name"], item["arguments"], item["status"])
        for item in stream.output
        if item["type"] == "function_call"
    ]


def arguments(delta: str, **named: Any) -> Frame:
    return proxied("function_call_arguments.delta", delta=delta, **(named or {"call_id": "call_a"}))


WHOLE = [("call_a", "find", '{"a":1}', "completed")]


# ── names ──────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("holder", ["item", "output_item", "outputItem"])
@pytest.mark.parametrize(
    "named", [{"call_id": "call_a"}, {"item_id": "fc_a"}, {"id": "call_a"}, {"id": "fc_a"}]
)
@pytest.mark.parametrize("field", ["delta", "arguments_delta"])
def test_any_of_the_names_finds_the_call(holder: str, named: dict[str, str], field: str) -> None:
    stream = fed(
        proxied("output_item.added", **{holder: CALL}),
        proxied("function_call_arguments.delta", **named, **{field: '{"a"'}),
        proxied("function_call_arguments.delta", **named, **{field: ":1}"}),
        proxied("function_call_arguments.done", **named),
        proxied("output_item.done", **{holder: CALL | {"arguments": '{"a":1}'}}),
        COMPLETED,
    )
    assert calls(stream) == WHOLE
    assert not list(stream.inbound.diagnostics)


def test_an_item_without_a_call_id_goes_by_its_id_and_a_nested_name() -> None:
    item = {"type": "function_call", "id": "call_a", "function": {"name": "find"}}
    stream = fed(proxied("output_item.added", item=item), arguments('{"a":1}', id="call_a"), COMPLETED)
    assert calls(stream) == WHOLE


@pytest.mark.parametrize("by_method", [False, True])
def test_a_type_or_a_method_names_the_notification(by_method: bool) -> None:
    kinds = [("output_text.delta", {"delta": "Hi"}), ("completed", {"response": {}})]
    frames = [
        {"method": f"response.{kind}", "params": fields} if by_method else proxied(kind, **fields)
        for kind, fields in kinds
    ]
    assert fed(*frames).response.output_text == "Hi"


# ── calls ──────────────────────────────────────────────────────────────────────────────────────────
def test_case_01_two_calls_are_two_items() -> None:
    other = {**CALL, "id": "fc_b", "call_id": "call_b"}
    stream = fed(
        proxied("output_item.added", output_index=0, item=CALL),
        proxied("output_item.added", output_index=1, item=other),
        arguments('{"a"', output_index=0),
        arguments('{"b"', output_index=1),
        arguments(":1}", output_index=0),
        arguments(":2}", output_index=1),
        proxied("output_item.done", output_index=0, item=CALL),
        proxied("output_item.done", output_index=1, item=other),
        COMPLETED,
    )
    assert calls(stream) == [*WHOLE, ("call_b", "find", '{"b":2}', "completed")]


@pytest.mark.parametrize(
    "frames",
    [
        [proxied("function_call_arguments.done", call_id="call_a", arguments='{"a":1}')],
        [arguments('{"a"'), proxied("function_call_arguments.done", call_id="call_a", arguments='{"a":1}')],
        [arguments('{"a":1}'), proxied("function_call_arguments.done", call_id="call_a", arguments="")],
        [proxied("output_item.done", item=CALL | {"arguments": '{"a":1}'})],
        [arguments('{"a":1}'), proxied("output_item.done", item=CALL | {"arguments": None})],
        [proxied("output_item.done", item=CALL | {"arguments": '{"a":1}'})] * 2,
    ],
)
def test_case_07_what_was_not_streamed_follows_once(frames: list[Frame]) -> None:
    assert calls(fed(proxied("output_item.added", item=CALL), *frames, COMPLETED)) == WHOLE


def test_announced_again_after_its_end_a_call_is_left_out() -> None:
    done = proxied("output_item.done", item=CALL | {"arguments": '{"a":1}'})
    assert calls(fed(done, proxied("output_item.added", item=CALL), COMPLETED)) == WHOLE


def test_late_deltas_and_unknown_calls_are_left_out() -> None:
    stream = fed(
        proxied("function_call_arguments.done", call_id="other", arguments="{}"),
        proxied("output_item.added", item=CALL),
        arguments('{"a":1}'),
        proxied("function_call_arguments.done", call_id="call_a"),
        arguments("}"),
        arguments(""),
        COMPLETED,
    )
    assert calls(stream) == WHOLE


def test_arguments_that_change_keep_what_was_streamed() -> None:
    done = proxied("output_item.done", item=CALL | {"arguments": '{"b":2}'})
    stream = fed(proxied("output_item.added", item=CALL), arguments('{"a":1}'), done, COMPLETED)
    assert calls(stream) == WHOLE
    assert stream.notes("loss") == ["tool_call.arguments: differ from the streamed ones, which are kept"]


def test_case_05_arguments_before_the_name_wait_for_it() -> None:
    stream = fed(arguments('{"a":1}'), proxied("output_item.added", item=CALL), COMPLETED)
    assert calls(stream) == WHOLE


def test_a_call_without_a_name_is_reported() -> None:
    nameless = {"type": "function_call", "call_id": "call_a", "arguments": "{}"}
    stream = fed(proxied("output_item.done", item=nameless), COMPLETED)
    assert (stream.status, stream.output) == ("incomplete", [])
    assert stream.notes("loss") == ["tool_call: never got a name"]


def test_custom_calls_carry_free_text() -> None:
    item = {"type": "custom_tool_call", "id": "ct", "call_id": "call_a", "name": "patch", "namespace": "n"}
    delta = proxied("custom_tool_call_input.delta", item_id="ct", delta="*** Begin")
    frames = [
        proxied("output_item.added", item=item),
        delta,
        proxied("output_item.done", item=item),
        COMPLETED,
    ]
    (call,) = CheckedInbound(Inbound, frames, "openai").output
    assert (call["type"], call["input"]) == ("custom_tool_call", "*** Begin")


def test_arguments_beyond_the_limit_fail_the_response() -> None:
    stream = fed(proxied("output_item.added", item=CALL), *[arguments("x" * 600_000)] * 2, COMPLETED)
    assert stream.error[0] == "bridge.tools.arguments_too_large"


def test_case_25_a_cut_call_is_incomplete() -> None:
    incomplete = proxied("incomplete", response={"incomplete_details": {"reason": "max_output_tokens"}})
    stream = fed(proxied("output_item.added", item=CALL), arguments('{"a'), incomplete)
    assert calls(stream) == [("call_a", "find", '{"a', "incomplete")]
    assert stream.status == "incomplete"


@pytest.mark.parametrize("reason", ["steered", "stop", None])
def test_case_23_an_incomplete_response_ends_with_its_own_reason(reason: str | None) -> None:
    details = {"incomplete_details": {"reason": reason}} if reason else {}
    stream = fed(proxied("output_text.delta", delta="a"), proxied("incomplete", response=details))
    assert stream.status == "incomplete"
    assert stream.response.incomplete_details is not None
    assert stream.response.incomplete_details.reason == (reason or "unknown")
    assert stream.output[0]["status"] == "incomplete"


# ── words ──────────────────────────────────────────────────────────────────────────────────────────
def test_text_refusal_reasoning_and_citations() -> None:
    cited = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}
    stream = fed(
        proxied("reasoning_summary.delta", item_id="rs", delta="sum"),
        proxied("reasoning_text.delta", item_id="rs", delta="raw"),
        proxied("output_item.done", item={"type": "reasoning", "id": "rs", "encrypted_content": "x"}),
        proxied("output_item.added", item={"type": "message", "id": "msg", "phase": "commentary"}),
        proxied("output_text.delta", item_id="msg", delta="Hi"),
        proxied("output_text.annotation.added", annotation=cited),
        proxied("output_item.done", item={"type": "message", "id": "msg", "content": [{"text": "Hi"}]}),
        proxied("refusal.delta", delta="No"),
        COMPLETED,
    )
    reasoning, message, refusal = stream.output
    assert (reasoning["id"], reasoning["encrypted_content"]) == ("rs", "x")
    assert reasoning["summary"][0]["text"] == "sum"
    assert reasoning["content"][0]["text"] == "raw"
    assert (message["id"], message["phase"]) == ("msg", "commentary")
    assert message["content"][0]["annotations"] == [cited]
    assert refusal["content"][0]["refusal"] == "No"


def test_whole_items_without_deltas() -> None:
    message = {"type": "message", "id": "msg", "content": [{"type": "output_text", "text": "Hi"}]}
    reasoning = {"type": "reasoning", "id": "rs", "summary": [{"text": "s"}], "content": [{"text": "r"}]}
    search = {"type": "web_search_call", "id": "ws", "status": "completed"}
    done = [proxied("output_item.done", item=each) for each in (reasoning, message, search, {})]
    stream = fed(*done, proxied("output_item.added", item=search), COMPLETED)
    assert [each["type"] for each in stream.output] == ["reasoning", "message", "openai:web_search_call"]


@pytest.mark.parametrize("kind", [[], {}, 5])
@pytest.mark.parametrize("event", ["output_item.added", "output_item.done"])
def test_an_item_whose_type_is_not_text_is_left_out(event: str, kind: Any) -> None:
    stream = fed(proxied(event, item={"type": kind, "id": "msg_1", "content": []}), COMPLETED)
    assert (stream.status, stream.output) == ("completed", [])


def test_what_only_the_final_response_holds_is_sent() -> None:
    message = {"type": "message", "id": "msg", "content": [{"text": "Hi"}]}
    call = CALL | {"arguments": '{"a":1}'}
    done = proxied("output_item.done", item=message)
    final = proxied("done", response={"output": [message, call, {"type": "reasoning"}, 3]})
    stream = fed(done, final)
    assert stream.response.output_text == "Hi"
    assert calls(stream) == WHOLE


def test_what_cannot_be_read_fails_the_response() -> None:
    stream = fed(proxied("output_text.annotation.added", annotation={"type": "url_citation"}))
    assert stream.status == "failed"


# ── the end ────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "frame",
    [
        proxied("failed", response={"error": {"code": "c", "message": "m"}}),
        proxied("completed", response={"status": "failed", "error": {"code": "c", "message": "m"}}),
        proxied("error", error={"code": "c", "message": "m"}),
        proxied("error", code="c", message="m"),
    ],
)
def test_case_27_failures_keep_code_and_message(frame: Frame) -> None:
    assert fed(proxied("output_text.delta", delta="a"), frame).error == ("c", "m")


def test_case_29_usage_is_taken_from_every_ending() -> None:
    usage = {"input_tokens": 3, "output_tokens": 2}
    for kind, response in (
        ("completed", {}),
        ("incomplete", {"incomplete_details": {"reason": "content_filter"}}),
        ("done", {"status": "incomplete"}),
        ("failed", {"error": {"message": "m"}}),
    ):
        stream = fed(
            proxied("output_text.delta", delta="a"), proxied(kind, response=response | {"usage": usage})
        )
        assert stream.response.usage is not None
        assert stream.response.usage.total_tokens == 5


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (notify("turn/completed", turn={"id": "turn_1", "status": "completed"}), "completed"),
        (notify("turn/completed", turn={"id": "turn_1", "status": "interrupted"}), "incomplete"),
        (legacy("task_complete"), "completed"),
        (legacy("turn_aborted"), "incomplete"),
        (notify("error", error={"message": "m"}), "failed"),
    ],
)
def test_the_turns_end_ends_a_proxied_response_too(end: Frame, status: str) -> None:
    stream = fed(started(), proxied("output_text.delta", delta="a"), end)
    assert stream.status == status
    assert stream.response.output_text == "a"


def test_unknown_events_are_ignored_and_noted_once() -> None:
    stream = fed(proxied("created"), proxied("future"), proxied("future"), COMPLETED)
    assert stream.notes("ignored") == ["response.future: unknown notification"]
