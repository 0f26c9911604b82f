"""Law E7 behind each filter that waits for a call's name: one that is cut before it has one is left out."""

from typing import Any

import pytest

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.dialects.base import AnswerWay
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import decode_request
from openresponses_server.requests.constraints import with_rules
from openresponses_server.requests.formatted_stream import AnswerPlan, FormattedStream
from openresponses_server.runs.answers import AnswerLog
from openresponses_server.runs.hosted_stream import HostedNames, HostedStream


def constrained(machine: Any, identities: ToolIdentityMap) -> Any:
    return with_rules(machine, decode_request(b'{"input":"x","max_tool_calls":3}'), identities)


def formatted(machine: Any, identities: ToolIdentityMap) -> Any:
    stream = FormattedStream(machine, identities)
    stream.answer_by(AnswerPlan(AnswerWay.FUNCTION, {"type": "object"}, False))
    return stream


def hosted(machine: Any, identities: ToolIdentityMap) -> Any:
    names: Any = HostedNames({}, identities)
    answers = AnswerLog(lambda usage, _output: usage, str, lambda _size: None)  # type: ignore[arg-type,return-value]
    return HostedStream(machine, names, None, answers)


@pytest.mark.parametrize("ending", [("tool_call_done", 0), ("end_nameless",)], ids=["one", "all"])
@pytest.mark.parametrize("behind", [constrained, formatted, hosted])
def test_e7_a_call_that_is_cut_before_it_has_a_name_is_left_out(behind: Any, ending: tuple[Any, ...]) -> None:
    machine = ResponseStreamStateMachine("m")
    stream = behind(machine, ToolIdentityMap())
    stream.start()
    stream.tool_call(0, "a", None, '{"x":')
    stream.tool_call(0, None, None, "1}")
    end, *index = ending
    getattr(stream, end)(*index, **({"cut": True} if index else {}))
    stream.tool_call(1, "b", "look", "{}")
    stream.tool_call_done(1)
    stream.finish("tool_calls")
    assert machine.snapshot.incomplete_details is not None
    assert machine.snapshot.incomplete_details.reason == "incomplete_tool_call"
    assert [getattr(item, "call_id", None) for item in machine.snapshot.output] == ["b"]
    assert [case.where for case in machine.diagnostics.of("loss")] == ["tool_call"]
