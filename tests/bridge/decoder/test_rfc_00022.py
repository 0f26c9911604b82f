"""RFC 00022, row by row: the parts that each event of its tables makes. A row is a name and the steps of a
stream: each event with the parts that it makes, shown as (kind, value)."""

from typing import Any

import pytest

from openresponses_bridge.decoder import (
    LanguageModelDataPart,
    LanguageModelTextPart,
    LanguageModelThinkingPart,
    LanguageModelToolCallPart,
    Part,
    PartDecoder,
)

Raw = dict[str, Any]
Made = list[tuple[str, Any]]
Step = tuple[Raw, Made]
NOTHING: Made = []
RESPONSE = {"id": "resp_1", "model": "m", "status": "in_progress", "output": []}


def event(kind: str, **fields: Any) -> Raw:
    return {"type": f"response.{kind}", **fields}


def text(kind: str, index: int = 0, **fields: Any) -> Raw:
    return event(kind, item_id=f"msg_{index}", output_index=index, content_index=0, **fields)


def call(number: int, **fields: Any) -> Raw:
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call{number}",
        "name": "find",
        "arguments": "",
        **fields,
    }


def added(index: int, item: Raw) -> Raw:
    return event("output_item.added", output_index=index, item={**item, "status": "in_progress"})


def done(index: int, item: Raw) -> Raw:
    return event("output_item.done", output_index=index, item={**item, "status": "completed"})


def arguments(kind: str, index: int, number: int, **fields: Any) -> Raw:
    return event(f"function_call_arguments.{kind}", item_id=f"fc_{number}", output_index=index, **fields)


def ended(kind: str = "completed", **fields: Any) -> Raw:
    return event(kind, response={**RESPONSE, "status": kind, **fields})


def shown(part: Part) -> tuple[str, Any]:
    if isinstance(part, LanguageModelToolCallPart):
        return part.call_id, part.input
    if isinstance(part, LanguageModelDataPart):
        return "data", part.mime_type
    if isinstance(part, LanguageModelThinkingPart):
        return "thinking", part.value
    assert isinstance(part, LanguageModelTextPart)
    return "text", part.value


MESSAGE = {"type": "message", "id": "msg_0", "role": "assistant", "content": []}
MARKER = ("data", "stateful_marker")
ARGUMENTS = '{"q":1}'
WHOLE = call(1, arguments=ARGUMENTS)
CALLED: Made = [("gw-call1", {"q": 1})]
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
SUMMARY = {"item_id": "rs_1", "output_index": 0, "summary_index": 0}
THOUGHT = {"item_id": "rs_1", "output_index": 0, "content_index": 0}
CITED = {"type": "url_citation", "url": "https://e.org", "title": "E", "start_index": 0, "end_index": 1}

ROWS: dict[str, list[Step]] = {
    # ── response lifecycle ────────────────────────────────────────────────────────────────────────────
    "response.created": [(event("created", response=RESPONSE), NOTHING)],
    "response.in_progress": [(event("in_progress", response=RESPONSE), NOTHING)],
    "response.completed": [(text("output_text.delta", delta="a"), [("text", "a")]), (ended(), [MARKER])],
    "response.failed": [
        (ended("failed", error={"code": "c", "message": "No."}), [("text", "**Error:** No.")]),
    ],
    "response.incomplete": [
        (
            ended("incomplete", incomplete_details={"reason": "max_output_tokens"}),
            [("text", "**Note:** The response was cut off because it reached the limit of its length.")],
        ),
    ],
    # ── text: one part a delta, nothing again from what repeats it ────────────────────────────────────
    "text content flow": [
        (added(0, MESSAGE), NOTHING),
        (text("content_part.added", part={"type": "output_text", "text": ""}), NOTHING),
        (text("output_text.delta", delta="Hel"), [("text", "Hel")]),
        (text("output_text.delta", delta="lo"), [("text", "lo")]),
        (text("output_text.done", text="Hello"), NOTHING),
        (text("content_part.done", part={"type": "output_text", "text": "Hello"}), NOTHING),
        (done(0, {**MESSAGE, "content": [{"type": "output_text", "text": "Hello"}]}), NOTHING),
    ],
    "response.output_text.annotation.added (gap 2)": [
        (text("output_text.delta", delta="a"), [("text", "a")]),
        (text("output_text.annotation.added", annotation=CITED), [("text", " [E](https://e.org)")]),
    ],
    # ── function calls: once, at the first of three places ────────────────────────────────────────────
    "arguments.done is the primary emission": [
        (added(0, call(1)), NOTHING),
        (arguments("delta", 0, 1, delta='{"q"'), NOTHING),
        (arguments("delta", 0, 1, delta=":1}"), NOTHING),
        (arguments("done", 0, 1, arguments=ARGUMENTS), CALLED),
        (done(0, WHOLE), NOTHING),
        (ended(output=[WHOLE]), [MARKER]),
    ],
    "arguments.done without arguments takes the buffer": [
        (added(0, call(1)), NOTHING),
        (arguments("delta", 0, 1, delta=ARGUMENTS), NOTHING),
        (arguments("done", 0, 1), CALLED),
    ],
    "output_item.done is the fallback": [
        (added(0, call(1)), NOTHING),
        (arguments("delta", 0, 1, delta=ARGUMENTS), NOTHING),
        (done(0, WHOLE), CALLED),
        (ended(output=[WHOLE]), [MARKER]),
    ],
    "response.completed is the final fallback": [(ended(output=[WHOLE]), [*CALLED, MARKER])],
    "gap 1: arguments.done before output_item.added": [
        (arguments("delta", 0, 1, delta=ARGUMENTS), NOTHING),
        (arguments("done", 0, 1, arguments=ARGUMENTS), NOTHING),
        (done(0, WHOLE), CALLED),
    ],
    # ── reasoning: thinking parts, which the host takes ───────────────────────────────────────────────
    "response.reasoning.delta and .done": [
        (added(0, REASONING), NOTHING),
        (event("reasoning.delta", **THOUGHT, delta="Hm"), [("thinking", "Hm")]),
        (event("reasoning.done", **THOUGHT, text="Hm"), NOTHING),
        (done(0, REASONING), NOTHING),
        (text("output_text.delta", 1, delta="a"), [("thinking", ""), ("text", "a")]),
    ],
    "response.reasoning_summary.delta and .done, as RFC 00022 spells them": [
        (event("reasoning_summary.delta", **SUMMARY, delta="Hm"), [("thinking", "Hm")]),
        (event("reasoning_summary.done", **SUMMARY, text="Hm"), NOTHING),
    ],
    "response.reasoning_summary_part.added and .done": [
        (
            event("reasoning_summary_part.added", **SUMMARY, part={"type": "summary_text", "text": ""}),
            NOTHING,
        ),
        (event("reasoning_summary_text.delta", **SUMMARY, delta="Hm"), [("thinking", "Hm")]),
        (
            event("reasoning_summary_part.done", **SUMMARY, part={"type": "summary_text", "text": "Hm"}),
            [("thinking", "")],
        ),
    ],
    # ── refusals and errors ───────────────────────────────────────────────────────────────────────────
    "response.refusal.delta and .done": [
        (text("refusal.delta", delta="No"), [("text", "*No")]),
        (text("refusal.delta", delta="."), [("text", ".")]),
        (text("refusal.done", refusal="No."), [("text", "*")]),
    ],
    "error": [({"type": "error", "error": {"message": "No."}}, [("text", "**Error:** No.")])],
    # ── interleaving: the tables, line by line ────────────────────────────────────────────────────────
    "parallel tool calls": [
        (added(0, call(1)), NOTHING),
        (added(1, call(2)), NOTHING),
        (arguments("delta", 0, 1, delta=ARGUMENTS), NOTHING),
        (arguments("delta", 1, 2, delta='{"q":2}'), NOTHING),
        (arguments("done", 0, 1, arguments=ARGUMENTS), CALLED),
        (arguments("done", 1, 2, arguments='{"q":2}'), [("gw-call2", {"q": 2})]),
        (done(0, WHOLE), NOTHING),
        (done(1, call(2, arguments='{"q":2}')), NOTHING),
    ],
    "text and tool call interleaved": [
        (added(0, MESSAGE), NOTHING),
        (text("content_part.added", part={"type": "output_text", "text": ""}), NOTHING),
        (text("output_text.delta", delta="Let me "), [("text", "Let me ")]),
        (added(1, call(1)), NOTHING),
        (text("output_text.delta", delta="check that..."), [("text", "check that...")]),
        (arguments("delta", 1, 1, delta=ARGUMENTS), NOTHING),
        (text("output_text.done", text="Let me check that..."), NOTHING),
        (arguments("done", 1, 1, arguments=ARGUMENTS), CALLED),
        (done(0, {**MESSAGE, "content": [{"type": "output_text", "text": "Let me check that..."}]}), NOTHING),
        (done(1, WHOLE), NOTHING),
    ],
    # ── key constraints ───────────────────────────────────────────────────────────────────────────────
    "a call id is emitted once, announced however often": [
        (added(0, call(1)), NOTHING),
        (arguments("done", 0, 1, arguments=ARGUMENTS), CALLED),
        (added(1, {**WHOLE, "id": "fc_9"}), NOTHING),
        (done(1, {**WHOLE, "id": "fc_9"}), NOTHING),
    ],
    "call ids are in a namespace": [(done(0, call(7, arguments="{}")), [("gw-call7", {})])],
    "parts keep the order of their events": [
        (text("output_text.delta", delta="a"), [("text", "a")]),
        (done(1, WHOLE), CALLED),
        (text("output_text.delta", 2, delta="b"), [("text", "b")]),
    ],
    "a data part is whole": [
        (
            ended(usage={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
            [("data", "usage"), MARKER],
        ),
    ],
}


@pytest.mark.parametrize("row", ROWS)
def test_rfc_00022(row: str) -> None:
    decoder = PartDecoder()
    for number, (raw, expected) in enumerate(ROWS[row]):
        assert [shown(part) for part in decoder.feed(raw)] == expected, (number, raw["type"])


@pytest.mark.parametrize(("policy", "made"), [("part", "thinking"), ("text", "text"), ("drop", None)])
def test_rfc_00022_reasoning_as_text_is_an_option(policy: Any, made: str | None) -> None:
    parts = PartDecoder(thinking=policy).feed(event("reasoning.delta", **THOUGHT, delta="Hm"))
    assert [shown(part) for part in parts] == ([(made, "Hm")] if made else [])
