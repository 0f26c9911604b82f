"""Each choice of a stream has an inbound and a machine of its own."""

import json
from typing import Any

import pytest

from openresponses_bridge.dialects.chat_completions import Choices, Inbound, encode
from openresponses_bridge.protocol.items import FunctionCall
from openresponses_bridge.protocol.response import Response
from tests.support.chat import DONE, chunk, completion, frame, new_machine, part
from tests.support.chat_folds import Folded, chunks

USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def both(delta: dict[str, Any], other: dict[str, Any]) -> bytes:
    return frame(choices=[{"index": 0, "delta": delta}, {"index": 1, "delta": other}])


STREAM = [
    chunk(index=0, role="assistant", content=""),
    chunk(index=1, role="assistant", content=""),
    *(frame for n in range(40) for frame in (chunk(index=0, content=f"a{n} "), chunk(index=1, content="b "))),
    both({"content": "A"}, {"content": "B"}),
    chunk(index=1, tool_calls=[part('{"q":1}', name="look", id="c1", index=0)]),
    chunk("stop", index=0),
    chunk("tool_calls", index=1),
    frame(choices=[], usage=USAGE),
    DONE,
]


def read(frames: list[bytes], *numbers: int | None) -> list[Response]:
    inbounds = [Inbound(machine, choice=number) for machine, number in ((new_machine(), n) for n in numbers)]
    for each in frames:
        for inbound in inbounds:
            inbound.feed(each)
    for inbound in inbounds:
        inbound.close()
    assert [list(inbound.diagnostics) for inbound in inbounds] == [[] for _ in inbounds]
    return [inbound._machine.snapshot for inbound in inbounds]


def test_each_choice_has_its_own_text_calls_and_end() -> None:
    first, second = read(STREAM, 0, 1)
    assert first.output_text == "".join(f"a{n} " for n in range(40)) + "A"
    assert second.output_text == "b " * 40 + "B"
    assert [type(item) is FunctionCall for item in second.output] == [False, True]
    assert (first.status, second.status) == ("completed", "completed")


def test_the_usage_of_a_stream_is_counted_once() -> None:
    first, second = read(STREAM, 0, 1)
    assert first.usage is not None
    assert (first.usage.total_tokens, second.usage) == (7, None)


def test_a_choice_that_is_not_there_has_failed() -> None:
    first, second, third = read(STREAM, 0, 1, 2)
    assert (first.status, second.status, third.status) == ("completed", "completed", "failed")
    assert third.error is not None
    assert third.error.code == "upstream_empty"
    cut = read(STREAM[:9], 0, 1)
    assert [each.error and each.error.code for each in cut] == ["upstream_cut", "upstream_cut"]


def test_an_error_of_one_choice_is_that_one_s() -> None:
    failed = {"index": 1, "delta": {}, "finish_reason": "error", "error": {"code": "slow", "message": "Wait"}}
    first, second = read([chunk(content="a"), frame(choices=[failed]), chunk("stop"), DONE], 0, 1)
    assert first.status == "completed"
    assert (second.status, second.error and second.error.code) == ("failed", "slow")


def test_whole_completions_have_choices_too() -> None:
    choices = [
        {"index": n, "message": {"role": "assistant", "content": f"{n}"}, "finish_reason": "stop"}
        for n in (0, 1)
    ]
    body = frame(object="chat.completion", choices=choices, usage=USAGE)
    first, second = read([body], 0, 1)
    assert (first.output_text, second.output_text) == ("0", "1")
    alone, missing = read([completion(content="x")], 0, 1)
    assert alone.output_text == "x"
    assert missing.error is not None
    assert missing.error.code == "upstream_empty"


def test_without_a_choice_the_first_is_read_and_the_others_are_a_loss() -> None:
    machine = new_machine()
    inbound = Inbound(machine)
    for each in STREAM:
        inbound.feed(each)
    assert machine.snapshot.output_text.endswith("a39 A")
    assert {case.where for case in inbound.diagnostics} == {"choices"}


@pytest.mark.parametrize("streams", [2, 3])
def test_choices_go_out_as_they_came_in(streams: int) -> None:
    inbounds = [Inbound(new_machine(), choice=number) for number in range(streams)]
    out = Choices(streams, id="c", created=1, include_usage=True)
    data = b""
    for each in STREAM:
        for number, inbound in enumerate(inbounds):
            for event in inbound.feed(each):
                data += encode(out.feed(number, event))
    sent = chunks(data + encode(out.close()))
    assert Folded(sent, 1).message["calls"] == [("c1", "look", '{"q":1}')]
    assert Folded(sent, 0).finish_reason == "stop"
    assert [piece["usage"]["total_tokens"] for piece in sent if piece["usage"]] == [7]
    assert json.dumps(sent).count('"error": {') == streams - 2
