"""A proxy's turn ends with its tool calls, whatever follows them (field case 26)."""

import json
from typing import Any

import pytest

from openresponses_bridge.dialects import chat_completions
from openresponses_bridge.dialects.codex import Inbound
from tests.support.checked_inbound import CheckedInbound, Frame
from tests.support.codex import ended, item, legacy, proxied, said, started

USAGE = {"input_tokens": 3, "output_tokens": 2}
COMPLETED = proxied("completed", response={"status": "completed", "output": [], "usage": USAGE})


def call(id: str = "call_a", **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": "find", **fields}


def added(id: str = "call_a") -> Frame:
    return proxied("output_item.added", item=call(id))


def argued(delta: str, id: str = "call_a") -> Frame:
    return proxied("function_call_arguments.delta", call_id=id, delta=delta)


def done(id: str = "call_a", arguments: str = '{"a":1}') -> Frame:
    return proxied("output_item.done", item=call(id, arguments=arguments))


def text(delta: str, id: str = "msg") -> Frame:
    return proxied("output_text.delta", item_id=id, delta=delta)


def message(kind: str, id: str = "msg") -> Frame:
    return proxied(f"output_item.{kind}", item={"type": "message", "id": id})


def reasoning(kind: str) -> Frame:
    return proxied(f"output_item.{kind}", item={"type": "reasoning", "id": "rs"})


def search(kind: str) -> Frame:
    return proxied(f"output_item.{kind}", item={"type": "web_search_call", "id": "ws", "status": "completed"})


def has_ended(stream: CheckedInbound) -> bool:
    assert isinstance(stream.inbound, Inbound)
    return stream.inbound.ended


def finish_reason(stream: CheckedInbound) -> str | None:
    outbound = chat_completions.Outbound()
    sent = b"".join(chat_completions.encode(outbound.feed(event)) for event in stream.events)
    sent += chat_completions.encode(outbound.close())
    *_, last, end = [line for line in sent.split(b"\n") if line]
    assert end == b"data: [DONE]"
    reason = json.loads(last.removeprefix(b"data: "))["choices"][0]["finish_reason"]
    assert isinstance(reason, str | None)
    return reason


WHOLE: dict[str, list[Frame]] = {
    "one call": [added(), argued('{"a":1}'), done()],
    "no deltas": [added(), done()],
    "only its end": [done()],
    "siblings": [added(), added("call_b"), done("call_b"), done()],
    "one after the other": [added(), done(), added("call_b"), done("call_b")],
    "text before it": [text("Hi"), added(), done()],
    "a message before it": [message("added"), text("Hi"), message("done"), added(), done()],
    "a message around it": [message("added"), text("Hi"), added(), done(), message("done")],
    "a message after it": [added(), done(), message("added"), text("Hi"), message("done")],
    "text beside it": [added(), text("late"), done()],
    "text without an id beside it": [added(), proxied("output_text.delta", delta="late"), done()],
    "text within its arguments": [added(), argued('{"a"'), text("late"), argued(":1}"), done()],
    "a refusal beside it": [added(), proxied("refusal.delta", delta="No"), done()],
    "reasoning beside it": [added(), proxied("reasoning_text.delta", item_id="rs", delta="hm"), done()],
    "text between siblings": [added(), added("call_b"), done(), text("late"), done("call_b")],
    "an undone message before it": [message("added"), text("Hi"), added(), done()],
    "an undone message beside it": [added(), message("added"), text("Hi"), done()],
    "an undone message without text": [added(), message("added"), done()],
    "undone reasoning before it": [
        reasoning("added"), proxied("reasoning_text.delta", item_id="rs", delta="hm"), added(), done(),
    ],
    "undone reasoning without text": [reasoning("added"), added(), done()],
    "text that goes on after it": [added(), text("la"), done(), text("te")],
}  # fmt: skip
CUT: dict[str, list[Frame]] = {
    "nothing": [],
    "text": [text("Hi")],
    "a message without calls": [message("added"), text("Hi"), message("done")],
    "within a call": [added(), argued('{"a"')],
    "before its item is done": [
        added(), argued('{"a":1}'), proxied("function_call_arguments.done", call_id="call_a"),
    ],
    "within a sibling": [added(), added("call_b"), done()],
    "within the next": [added(), done(), added("call_b")],
    "within the arguments of the next": [added(), done(), argued("{", "call_b")],
    "within text after it": [added(), done(), text("Hi")],
    "within text of another message": [added(), text("Hi"), done(), text("Ho", "msg_2")],
    "within a message that the end of another does not end": [
        message("added"), added(), done(), message("added", "msg_2"), message("done"),
    ],
    "within a search beside it": [search("added"), added(), done()],
    "within text after a search": [added(), search("added"), done(), search("done"), text("Hi")],
    "within a refusal after it": [added(), done(), proxied("refusal.delta", delta="No")],
    "within a message that has no text yet": [added(), done(), message("added")],
    "within reasoning": [added(), done(), proxied("reasoning_text.delta", item_id="rs", delta="hm")],
}  # fmt: skip


@pytest.mark.parametrize("case", WHOLE)
def test_after_whole_calls_the_end_of_the_input_is_tool_calls(case: str) -> None:
    stream = CheckedInbound(Inbound, WHOLE[case], close=False)
    assert has_ended(stream)
    assert stream.status == "in_progress"
    stream.close()
    assert (stream.status, finish_reason(stream)) == ("completed", "tool_calls")
    assert not list(stream.inbound.diagnostics)


@pytest.mark.parametrize("case", CUT)
def test_case_26_while_something_is_open_the_end_of_the_input_is_a_cut(case: str) -> None:
    stream = CheckedInbound(Inbound, CUT[case], close=False)
    assert not has_ended(stream)
    assert isinstance(stream.inbound, Inbound)
    assert stream.inbound.read_done() == []
    stream.close()
    assert stream.error[0] == "upstream_cut"


@pytest.mark.parametrize("case", WHOLE)
def test_the_end_of_the_read_ends_the_turn_and_nothing_follows(case: str) -> None:
    stream = CheckedInbound(Inbound, WHOLE[case], close=False)
    assert isinstance(stream.inbound, Inbound)
    assert stream._watch(stream.inbound.read_done())[-1] == "completed"
    assert stream.inbound.read_done() == stream.feed(COMPLETED) == stream.feed(text("Hi")) == []
    assert stream.close() == []
    assert stream.response.usage is None
    assert stream.notes("ignored") == ["frame: came after the end"]


@pytest.mark.parametrize("case", WHOLE)
def test_in_the_same_read_the_end_adds_usage_and_no_second_ending(case: str) -> None:
    stream = CheckedInbound(Inbound, WHOLE[case], close=False)
    sent = stream.feed(COMPLETED)
    assert sent.count("completed") == 1
    assert isinstance(stream.inbound, Inbound)
    assert stream.inbound.read_done() == stream.close() == []
    assert stream.response.usage is not None
    assert stream.response.usage.total_tokens == 5


def test_arguments_that_end_before_their_json_does_are_cut_though_the_item_is_done() -> None:
    stream = CheckedInbound(Inbound, [added(), argued('{"a"'), done(arguments="")])
    assert stream.status == "incomplete"
    assert stream.output[0]["status"] == "incomplete"


def test_a_message_that_goes_on_after_a_call_is_another_message() -> None:
    stream = CheckedInbound(
        Inbound, [text("Hi"), added(), text(" there"), done(), message("done"), COMPLETED]
    )
    texts = [each["content"][0]["text"] for each in stream.output if each["type"] == "message"]
    assert texts == ["Hi", " there"]
    assert len({each["id"] for each in stream.output}) == 3


@pytest.mark.parametrize(
    ("frames", "turn"),
    [
        ([started(), said("Hi"), ended()], "turn_1"),
        ([legacy("agent_message_delta", delta="Hi"), legacy("task_complete")], ""),
    ],
)
def test_the_other_generations_end_with_their_own_notification(frames: list[Frame], turn: str) -> None:
    stream = CheckedInbound(Inbound, frames[:-1], close=False)
    assert isinstance(stream.inbound, Inbound)
    assert not stream.inbound.ended
    stream.feed(frames[-1])
    assert stream.inbound.ended
    assert (stream.status, stream.inbound.turn_id) == ("completed", turn)


def test_a_decoded_frame_is_taken_as_its_bytes_are() -> None:
    frames = [
        started(),
        item("started", "agentMessage", "m"),
        said("Hi", "m"),
        said("!", "m"),
        ended(),
        ended(),
    ]
    fed, taken = CheckedInbound(Inbound, frames), CheckedInbound(Inbound, close=False)
    assert isinstance(taken.inbound, Inbound)
    for frame in frames:
        assert isinstance(frame, dict)
        taken._watch(taken.inbound.feed_frame(frame))
    assert list(map(str, taken.inbound.diagnostics)) == list(map(str, fed.inbound.diagnostics))
    assert taken.output == fed.output
