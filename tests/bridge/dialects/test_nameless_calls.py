"""Law E7 in every dialect: a call without a name is left out alone, and the response is incomplete."""

from typing import Any

import pytest

from tests.support.calling import ARGUMENTS, CALLING, SAID
from tests.support.checked_inbound import CheckedInbound

NAMELESS: list[dict[str, Any]] = [{}, {"name": ""}, {"name": None}]


@pytest.mark.parametrize("reason", ["", "max_output_tokens"])
@pytest.mark.parametrize("whole", [False, True], ids=["streamed", "whole"])
@pytest.mark.parametrize("name", NAMELESS, ids=["absent", "empty", "null"])
@pytest.mark.parametrize("dialect", sorted(CALLING))
@pytest.mark.untraced
def test_e7_a_call_without_a_name_is_left_out_alone(
    dialect: str, name: dict[str, Any], whole: bool, reason: str
) -> None:
    build, frames = CALLING[dialect]
    fed = CheckedInbound(build, frames(name, whole, reason))
    assert fed.response.output_text == SAID
    calls = [item for item in fed.output if item["type"] == "function_call"]
    # a call beside the reason of its own for which Gemini's answer ends may be cut
    status = "incomplete" if dialect == "gemini" and whole and reason else "completed"
    assert [(call["name"], call["arguments"], call["status"]) for call in calls] == [
        ("look", ARGUMENTS, status)
    ]
    assert fed.status == "incomplete"
    assert fed.response.incomplete_details is not None
    assert fed.response.incomplete_details.reason == (reason or "incomplete_tool_call")
    assert fed.notes("loss").count("tool_call: never got a name") == 1


@pytest.mark.parametrize("dialect", sorted(CALLING))
def test_the_same_call_with_a_name_completes(dialect: str) -> None:
    """The frames of the tests before are wrong in nothing else."""
    build, frames = CALLING[dialect]
    for whole in (False, True):
        fed = CheckedInbound(build, frames({"name": "find"}, whole, ""))
        assert (fed.status, fed.notes("loss")) == ("completed", [])
        assert [item["type"] for item in fed.output] == ["message", "function_call", "function_call"]
