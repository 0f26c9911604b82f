"""Law E7 behind each filter that waits for a call's name: one that is cut before it has one is left out, and
an index is that of its newest call."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.dialects.base import AnswerWay
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.errors import StreamStateError
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.protocol.items import FunctionCall
from openresponses_server.requests.answer_format import ANSWER
from openresponses_server.requests.constraints import with_rules
from openresponses_server.requests.formatted_stream import AnswerPlan, FormattedStream
from openresponses_server.runs.answers import AnswerLog
from openresponses_server.runs.hosted_stream import HostedNames, HostedStream


def constrained(machine: Any, identities: ToolIdentityMap) -> Any:
    tools = [{"type": "function", "name": "look"}]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": tools}
    return with_rules(machine, decode_request(encode({"input": "x", "tool_choice": choice})), identities)


def formatted(machine: Any, identities: ToolIdentityMap) -> Any:
    stream = FormattedStream(machine, identities)
    stream.answer_by(AnswerPlan(AnswerWay.FUNCTION, {"type": "object"}, False))
    return stream


def hosted(machine: Any, identities: ToolIdentityMap) -> Any:
    names: Any = HostedNames({ANSWER: (None, ANSWER)}, identities)  # type: ignore[dict-item]
    answers = AnswerLog(lambda usage, _output: usage, str, lambda _size: None)  # type: ignore[arg-type,return-value]
    return HostedStream(machine, names, None, answers)


def ended(stream: Any) -> None:
    stream.tool_call_done(0, cut=True)


def all_ended(stream: Any) -> None:
    stream.end_nameless()


def followed(stream: Any) -> None:
    stream.tool_call(0, "c", "look", "{}")


def finished(stream: Any) -> None:
    stream.finish()
    if isinstance(stream, FormattedStream):
        stream.settle(None)


@pytest.mark.parametrize("end", [ended, all_ended])
@pytest.mark.parametrize("behind", [constrained, formatted, hosted])
def test_e7_a_call_that_is_cut_before_it_has_a_name_is_left_out(
    behind: Any, end: Callable[[Any], None]
) -> None:
    machine = ResponseStreamStateMachine("m")
    stream = behind(machine, ToolIdentityMap())
    stream.start()
    stream.tool_call(0, "a", None, '{"x":')
    stream.tool_call(0, None, None, "1}")
    end(stream)
    stream.tool_call(1, "b", "look", "{}")
    stream.tool_call_done(1)
    stream.finish("tool_calls")
    assert machine.snapshot.incomplete_details is not None
    assert machine.snapshot.incomplete_details.reason == "incomplete_tool_call"
    assert [getattr(item, "call_id", None) for item in machine.snapshot.output] == ["b"]
    assert [case.where for case in machine.diagnostics.of("loss")] == ["tool_call"]


@pytest.mark.parametrize("end", [followed, finished])
@pytest.mark.parametrize("behind", [lambda machine, _identities: machine, constrained, formatted, hosted])
def test_e4_a_call_that_is_not_ended_and_has_no_name_is_an_error(
    behind: Any, end: Callable[[Any], None]
) -> None:
    stream = behind(ResponseStreamStateMachine("m"), ToolIdentityMap())
    stream.start()
    stream.tool_call(0, "a", None, "{}")
    with pytest.raises(StreamStateError, match="index 0 never got a name"):
        end(stream)


@pytest.mark.parametrize("ends", [True, False], ids=["ended", "not ended"])
@pytest.mark.parametrize("ids", [("a", "b"), (None, None)], ids=["ids", "no ids"])
@pytest.mark.parametrize("names", [("look", ANSWER), (ANSWER, "look")], ids=["passed first", "kept first"])
@pytest.mark.parametrize("behind", [constrained, formatted, hosted])
def test_a_filter_judges_each_call_of_an_index(behind: Any, names: Any, ids: Any, ends: bool) -> None:
    """Upstreams that give each call the same index."""
    machine = ResponseStreamStateMachine("m", wire="openai")
    stream = behind(machine, ToolIdentityMap())
    stream.start()
    for id, name in zip(ids, names, strict=True):
        stream.tool_call(0, id, name, '{"a"')
        stream.tool_call(0, None, None, ":1}")
        stream.item_extra({"of": name}, 0)
        if ends:
            stream.tool_call_done(0)
    stream.finish("tool_calls")
    if behind is hosted:
        stream.settle(None)
    calls = [item for item in machine.snapshot.output if isinstance(item, FunctionCall)]
    assert [(call.name, call.arguments, call.extra) for call in calls] == [
        ("look", '{"a":1}', {"of": "look"})
    ]


@pytest.mark.parametrize("holds", [True, False])
def test_of_two_whole_calls_that_are_the_answer_the_first_counts(holds: bool) -> None:
    machine = ResponseStreamStateMachine("m")
    stream = FormattedStream(machine, ToolIdentityMap())
    stream.answer_by(AnswerPlan(AnswerWay.FUNCTION, {"type": "object"}, holds))
    stream.start()
    for id in ("a", "b"):
        call = {
            "type": "function_call",
            "id": f"fc_{id}",
            "call_id": id,
            "name": ANSWER,
            "status": "completed",
        }
        stream.item(call | {"arguments": json.dumps({"of": id})})
    stream.finish("tool_calls")
    assert stream.question is not None
    assert json.loads(stream.question.text) == {"of": "a"}
    stream.settle(None)
    assert machine.snapshot.output_text == '{"of": "a"}'
    assert [case.where for case in machine.diagnostics.of("warning")] == ["text.format"]
