"""The cases of the field that Chat Completions streams can bring (field-cases.md), one test each."""

import json
from typing import Any

import pytest
from msgspec import UNSET

from openresponses_bridge.protocol.items import FunctionCall, Message
from tests.support.chat import DONE, calls, chunk, frame, part, run, stopped

A, B = '{"a":1}', '{"b":2}'


@pytest.mark.parametrize("ids", [("call_a", "call_b"), (None, None)], ids=["ids", "no ids"])
def test_case_01_two_calls_both_at_index_0(ids: tuple[str | None, str | None]) -> None:
    ran = stopped(
        calls(part(A, name="f", id=ids[0], index=0)),
        calls(part(B, name="g", id=ids[1], index=0)),
        finish="tool_calls",
    )
    assert [(name, arguments) for _, name, arguments in ran.calls] == [("f", A), ("g", B)]


def test_case_02_head_at_index_0_and_tail_at_index_1() -> None:
    ran = stopped(
        calls(part(A, name="f", id="call_a", index=0)),
        calls(part('{"b"', name="g", id="call_b", index=0)),
        calls(part(":2", id="call_b", index=1)),
        calls(part("}", index=1)),
        finish="tool_calls",
    )
    assert ran.calls == [("call_a", "f", A), ("call_b", "g", B)]
    assert "tool_calls: the index changed within a call, the id was followed" in ran.repairs


def test_case_03_missing_index_goes_by_id_else_to_the_open_call() -> None:
    ran = stopped(
        calls(part('{"a"', name="f", id="call_a")),
        calls(part(":1", id="call_a")),
        calls(part("}")),
        finish="tool_calls",
    )
    assert ran.calls == [("call_a", "f", A)]


@pytest.mark.parametrize("blank", [None, ""], ids=["null", "blank"])
def test_case_04_continuation_with_null_or_blank_id_and_name(blank: str | None) -> None:
    def more(arguments: str) -> bytes:
        return calls({"index": 0, "id": blank, "function": {"name": blank, "arguments": arguments}})

    ran = stopped(
        calls(part("", name="f", id="call_a", index=0)),
        more('{"a"'),
        more(":1}"),
        finish="tool_calls",
    )
    assert ran.sent[:3] == ["added 0 function_call call_a f", 'arguments 0 {"a"', "arguments 0 :1}"]
    assert ran.calls == [("call_a", "f", A)]


def test_case_05_name_in_the_second_chunk_delays_added() -> None:
    first = calls({"index": 0, "id": "call_a", "type": "function", "function": {"arguments": ""}})
    assert run(first, close=False).types == ["response.created", "response.in_progress"]
    ran = stopped(first, calls(part(A, name="f", index=0)), finish="tool_calls")
    assert ran.sent[0] == "added 0 function_call call_a f"


def test_case_06_call_without_arguments_is_told_whole() -> None:
    ran = stopped(calls(part("", name="f", id="call_a", index=0)), finish="tool_calls")
    assert ran.sent[1:3] == ["arguments 0 {}", "whole 0 {}"]


def test_case_08_empty_deltas_are_accepted() -> None:
    ran = stopped(
        chunk(content=""),
        chunk(content="x"),
        chunk(content=""),
        calls(part("", name="f", id="call_a", index=0)),
        calls(part("", index=0)),
        calls(part(A, index=0)),
    )
    assert (ran.response.output_text, ran.calls) == ("x", [("call_a", "f", A)])


def test_case_09_empty_tool_calls_split_nothing() -> None:
    ran = stopped(
        chunk(reasoning_content="H", tool_calls=[]),
        chunk(reasoning_content="m", tool_calls=[]),
        chunk(content="Y", tool_calls=[]),
        chunk(content="es", tool_calls=None),
        chunk(content=".", tool_calls=[]),
    )
    assert [item.type for item in ran.output] == ["reasoning", "message"]
    assert ran.response.output_text == "Yes."


def test_case_10_reasoning_then_a_call_have_indexes_0_and_1() -> None:
    ran = stopped(chunk(reasoning_content="Hm."), calls(part(A, name="f", id="call_a", index=0)))
    added = [line for line in ran.sent if line.startswith("added")]
    assert added == ["added 0 reasoning", "added 1 function_call call_a f"]


def test_case_11_reasoning_and_two_calls_have_indexes_0_1_2() -> None:
    ran = stopped(
        chunk(reasoning_content="Hm."),
        calls(part("", name="f", id="call_a", index=0)),
        calls(part(A, index=0)),
        calls(part(B, name="g", id="call_b", index=1)),
    )
    added = [line for line in ran.sent if line.startswith("added")]
    assert added == ["added 0 reasoning", "added 1 function_call call_a f", "added 2 function_call call_b g"]


def test_case_12_text_before_reasoning_keeps_its_place() -> None:
    ran = stopped(chunk(content="First."), chunk(reasoning="Hm."), chunk(content="Then."))
    assert [item.type for item in ran.output] == ["message", "reasoning", "message"]


def test_case_13_items_are_done_in_the_order_of_their_indexes() -> None:
    ran = stopped(
        chunk(content="Look."),
        calls(part("", name="f", id="call_a", index=0), part("", name="g", id="call_b", index=1)),
        calls(part(B, index=1)),
        calls(part(A, index=0)),
    )
    done = [line for line in ran.sent if line.startswith("done")]
    assert done == ["done 0 completed", "done 1 completed", "done 2 completed"]


def test_case_14_text_call_text_is_two_messages() -> None:
    ran = stopped(
        chunk(content="Before."),
        calls(part(A, name="f", id="call_a", index=0)),
        chunk(content="After."),
    )
    assert [type(item) for item in ran.output] == [Message, FunctionCall, Message]
    closed = ran.sent.index("done 0 completed")
    assert not [line for line in ran.sent[closed:] if line.startswith("text 0")]


def test_case_15_reasoning_has_its_part_and_text_opens_another_item() -> None:
    ran = stopped(frame(choices=[]), chunk(reasoning_content="Hm."), chunk(content="Yes."), frame(choices=[]))
    assert ran.sent[:3] == ["added 0 reasoning", "response.content_part.added", "reasoning 0 Hm."]
    assert "added 1 message" in ran.sent


def test_case_16_message_and_part_come_before_text() -> None:
    ran = stopped(chunk(reasoning_content=""), chunk(content="Hi"))
    assert ran.sent[:3] == ["added 0 message", "response.content_part.added", "text 0 Hi"]


@pytest.mark.parametrize("body", [f"<think></think>{rest}" for rest in ("Yes.", "\n\nYes.")])
def test_case_16_empty_think_is_no_reasoning_item(body: str) -> None:
    ran = stopped(*(chunk(content=letter) for letter in body))
    assert [item.type for item in ran.output] == ["message"]
    assert ran.response.output_text == "Yes."


def test_case_22_required_defaults_are_there() -> None:
    ran = stopped(chunk(content="Hi"))
    delta = next(event for event in ran.events if event.type == "response.output_text.delta")
    assert delta.logprobs == []  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("reason", "shown"), [("length", "max_output_tokens"), ("content_filter", "content_filter")]
)
def test_case_23_cut_and_filtered_streams_are_incomplete(reason: str, shown: str) -> None:
    ran = run(chunk(content="Hi"), chunk(reason), DONE)
    assert (ran.status, ran.output[0].status) == ("incomplete", "incomplete")
    assert ran.response.incomplete_details is not None
    assert ran.response.incomplete_details.reason == shown
    assert ran.types[-1] == "response.incomplete"


def test_case_24_length_during_thinking_keeps_the_reasoning() -> None:
    ran = run(chunk(reasoning_content="Hm"), chunk("length"), DONE)
    assert [(item.type, item.status) for item in ran.output] == [("reasoning", "incomplete")]


@pytest.mark.parametrize("reason", ["tool_calls", "stop", "length"])
def test_case_25_truncated_arguments_are_never_runnable(reason: str) -> None:
    ran = stopped(calls(part('{"a":', name="f", id="call_a", index=0)), finish=reason)
    assert ran.status == "incomplete"
    assert [item.status for item in ran.output] == ["incomplete"]
    assert "response.function_call_arguments.done" not in ran.types


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [chunk(role="assistant")],
        [chunk(content="Hi")],
        [chunk(reasoning="Hm")],
        [calls(part(A, name="f", id="call_a", index=0))],
        [chunk(content="Hi"), frame(choices=[], usage={"prompt_tokens": 1})],
    ],
)
def test_case_26_end_without_finish_is_failed(frames: list[bytes]) -> None:
    ran = run(*frames)
    assert ran.status == "failed"
    after = f"after {len(frames)} frame{'s' * (len(frames) > 1)}" if frames else "before its first frame"
    assert ran.error == ("upstream_cut", f"the upstream's stream was cut {after}")
    assert ran.types[-2:] == ["error", "response.failed"]
    assert "response.function_call_arguments.done" not in ran.types


ERRORS: list[tuple[Any, tuple[str, str]]] = [
    ({"error": {"code": 429, "message": "slow down", "type": "rate_limit"}}, ("429", "slow down")),
    ({"error": {"code": "overloaded", "message": "later"}, "choices": []}, ("overloaded", "later")),
    ({"error": {"type": "server_error", "message": "oops", "code": None}}, ("server_error", "oops")),
    ({"error": {"status": "UNAVAILABLE", "message": "busy"}}, ("UNAVAILABLE", "busy")),
    ({"error": "it broke"}, ("upstream_error", "it broke")),
    ({"error": ["?"]}, ("upstream_error", "?")),
    ({"error": 500, "choices": "?"}, ("upstream_error", "500")),
    ({"error": {"error": {"message": "within", "code": "x"}}}, ("x", "within")),
    ({"error": {"a": 1}}, ("upstream_error", "the upstream reported an error without a message")),
    ({"type": "error", "error": {"type": "overloaded_error", "message": "m"}}, ("overloaded_error", "m")),
    ({"x_groq": {"error": "tool use failed"}}, ("upstream_error", "tool use failed")),
    ([{"error": {"code": 400, "message": "bad"}}], ("400", "bad")),
    ({"object": "error", "message": "no such model", "code": 404}, ("404", "no such model")),
    ({"object": "error"}, ("upstream_error", "the upstream reported an error without a message")),
    ({"detail": "Not Found"}, ("upstream_error", "Not Found")),
    (
        {"error": {"message": "late", "code": "c"}, "choices": [{"index": 0, "delta": {"content": "x"}}]},
        ("c", "late"),
    ),
]


@pytest.mark.parametrize(("body", "error"), ERRORS)
def test_case_27_in_band_error_is_failed_with_its_code_and_message(body: Any, error: tuple[str, str]) -> None:
    ran = run(chunk(content="Hi"), json.dumps(body).encode(), chunk("stop"), DONE)
    assert (ran.status, ran.error) == ("failed", error)
    assert ran.types[-2:] == ["error", "response.failed"]


def test_case_27_type_and_param_of_the_error_are_kept() -> None:
    ran = run(frame(error={"type": "invalid_request_error", "code": "c", "message": "m", "param": "tools"}))
    error = ran.events[-2].error  # type: ignore[union-attr]
    assert (error.type, error.code, error.message, error.param) == (
        "invalid_request_error",
        "c",
        "m",
        "tools",
    )


def test_case_32_thinking_in_the_clear_is_not_encrypted_content() -> None:
    item = stopped(chunk(reasoning="Hm."), chunk(content="Yes.")).output[0]
    assert item.encrypted_content is UNSET  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("api_error", "api_error"),
        ("Overloaded_Error", "overloaded_error"),
        ("server_error", "server_error"),
        ("x" * 900 + "_error", "x" * 200),
    ],
)
def test_case_27_an_error_s_type_as_the_finish_reason_is_failed(reason: str, code: str) -> None:
    ran = run(chunk(content="Hi"), chunk(reason), DONE)
    assert (ran.status, ran.error) == ("failed", (code, "the upstream ended with an error"))
    assert ran.types[-2:] == ["error", "response.failed"]
