"""Several choices of one answer on their way to Copilot, and what ends each of them."""

import json
from typing import Any

import msgspec
import pytest

from openresponses_bridge.dialects import chat_completions
from openresponses_bridge.dialects.copilot import (
    CallbackChunk,
    Choices,
    FinishedCompletion,
    FinishedCompletionReason,
    FunctionCall,
    Inbound,
    Outbound,
    ToolCall,
    encode_chunk,
)
from openresponses_bridge.emitter import ResponseStreamStateMachine
from tests.support.chat import DONE, chunk, frame, new_machine, part

STREAM = [
    frame(choices=[{"index": n, "delta": {"content": text}} for n, text in enumerate(("One", "Tw"))]),
    chunk(index=1, content="o"),
    chunk(index=0, tool_calls=[part('{"q":', name="look", id="c0", index=0)]),
    chunk(index=1, tool_calls=[part('{"q":2}', name="run", id="c1", index=0)]),
    chunk(index=0, tool_calls=[part("1}", index=0)]),
    chunk("tool_calls", index=1),
    chunk("tool_calls", index=0),
    DONE,
]


def sent(n: int = 2, **options: Any) -> list[Any]:
    """The chunks of this stream with so many choices."""
    inbounds = [chat_completions.Inbound(new_machine(), choice=number) for number in range(n)]
    choices = Choices(n, **options)
    chunks: list[Any] = []
    for each in STREAM:
        for number, inbound in enumerate(inbounds):
            chunks += [piece for event in inbound.feed(each) for piece in choices.feed(number, event)]
    assert not list(choices.diagnostics)
    return chunks + choices.close()


def of(chunks: list[Any], index: int) -> tuple[list[CallbackChunk], FinishedCompletion]:
    *deltas, completion = [each for each in chunks if each.index == index]
    assert isinstance(completion, FinishedCompletion)
    return deltas, completion


def test_choices_are_kept_apart() -> None:
    chunks = sent()
    calls = [ToolCall("look", '{"q":1}', "c0"), ToolCall("run", '{"q":2}', "c1")]
    for index, (text, call) in enumerate(zip(("One", "Two"), calls, strict=True)):
        deltas, completion = of(chunks, index)
        assert str(deltas[-1].text).strip() == text, "the text so far is this choice's"
        assert "".join(completion.solution.text).strip() == text
        handed_over = [each.delta.copilot_tool_calls for each in deltas if each.delta.copilot_tool_calls]
        assert handed_over == [[call]]
        assert completion.tool_calls == [call]
        assert completion.reason is FinishedCompletionReason.TOOL_CALLS


def test_the_older_form_has_one_function_call() -> None:
    _, completion = of(sent(legacy_functions=True), 1)
    assert completion.function_call == FunctionCall("run", '{"q":2}')
    assert completion.tool_calls is None
    assert completion.reason == "function_call"


def test_a_choice_that_is_cut_or_missing_says_so() -> None:
    _, missing = of(sent(3), 2)
    assert missing.reason is FinishedCompletionReason.SERVER_ERROR
    assert missing.error is not None
    choices = Choices(2)
    machine = ResponseStreamStateMachine(model="m")
    for event in machine.start() + machine.text("Hi") + machine.finish("stop"):
        choices.feed(0, event)
    (cut,) = choices.close()
    assert (cut.index, getattr(cut, "reason", "")) == (1, "Iteration Done")


def test_calls_are_not_repeated_in_the_json_of_a_completion() -> None:
    """Copilot's own completions don't have them: the chunk before hands them over."""
    (line,) = [json.loads(encode_chunk(each)) for each in sent() if isinstance(each, FinishedCompletion)][:1]
    assert not {"toolCalls", "functionCall"} & line.keys()
    assert line["reason"] == "tool_calls"


def test_a_response_that_is_incomplete_has_no_calls_to_run() -> None:
    outbound, machine = Outbound(), ResponseStreamStateMachine(model="m")
    events = machine.start() + machine.tool_call(0, "c", "look", "{}") + machine.finish("length")
    completion = [piece for event in events for piece in outbound.feed(event)][-1]
    assert isinstance(completion, FinishedCompletion)
    assert (completion.tool_calls, completion.reason) == (None, "length")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"toolCalls": [{"name": "look", "arguments": "{}", "id": "c0"}]}, "tool_calls"),
        ({"functionCall": {"name": "look", "arguments": "{}"}}, "function_call"),
        ({"toolCalls": [5, None], "functionCall": {"name": "look", "arguments": "{}"}}, "function_call"),
    ],
)
@pytest.mark.parametrize("handed_over", [False, True])
def test_calls_in_a_completion_are_read_once(fields: Any, reason: str, handed_over: bool) -> None:
    machine = new_machine()
    inbound = Inbound(machine)
    if handed_over:
        call = {"name": "look", "arguments": "{}", "id": "c0"}
        inbound.feed(
            json.dumps({"text": "", "index": 0, "delta": {"text": "", "copilotToolCalls": [call]}}).encode()
        )
    inbound.feed(json.dumps({"index": 0, "reason": reason, **fields}).encode())
    assert machine.snapshot.status == "completed"
    assert [getattr(item, "name", None) for item in machine.snapshot.output] == ["look"]


def test_one_of_several_is_read_without_a_loss() -> None:
    lines = [encode_chunk(each) for each in sent()]
    for index, text in enumerate(("One", "Two")):
        machine = new_machine()
        inbound = Inbound(machine, index=index)
        for line in lines:
            inbound.feed(line)
        assert machine.snapshot.output_text == text
        assert machine.snapshot.status == "completed"
        assert not inbound.diagnostics.of("loss")


def test_reasons_are_words_in_json() -> None:
    assert [msgspec.json.decode(msgspec.json.encode(reason)) for reason in FinishedCompletionReason] == [
        "stop",
        "length",
        "tool_calls",
        "function_call",
        "content_filter",
        "error",
        "client-trimmed",
        "Iteration Done",
        "DONE",
    ]
