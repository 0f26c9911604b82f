"""Calls whose name comes in no item: beside the item, or beside the whole arguments or input."""

from typing import Any

import pytest

from openresponses_bridge.dialects.responses import Inbound
from tests.support.checked_inbound import CheckedInbound

HEAD = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": []}
NAMELESS: list[dict[str, Any]] = [{}, {"name": ""}, {"name": None}]
LOST = "tool_call: never got a name"
BESIDE_ITEM = "tool_call.name: came beside its item"
BESIDE_ARGUMENTS = "tool_call.name: came beside its arguments"
BESIDE = {"name": "look"}
ARGUED, SAID = "response.function_call_arguments", "response.custom_tool_call_input"
FUNCTION = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "arguments": ""}
CUSTOM = {"type": "custom_tool_call", "id": "fc_1", "call_id": "call_1", "input": ""}


def created() -> dict[str, Any]:
    return {"type": "response.created", "response": {**HEAD, "status": "in_progress"}}


def item(verb: str, item: dict[str, Any], **beside: Any) -> dict[str, Any]:
    status = "in_progress" if verb == "added" else "completed"
    whole = {"status": status, **item}
    return {"type": f"response.output_item.{verb}", "output_index": 0, "item": whole, **beside}


def payload(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "output_index": 0, "item_id": "fc_1", **fields}


def completed(*output: Any, status: str = "completed") -> dict[str, Any]:
    return {"type": f"response.{status}", "response": {**HEAD, "status": status, "output": list(output)}}


def fed(*frames: dict[str, Any]) -> CheckedInbound:
    return CheckedInbound(Inbound, [created(), *frames])


def calls(answer: CheckedInbound) -> list[tuple[str, str, str, str]]:
    result = []
    for each in answer.output:
        arguments = each["input"] if each["type"] == "custom_tool_call" else each["arguments"]
        result.append((each["call_id"], each["name"], arguments, each["status"]))
    return result


ONE = [("call_1", "look", '{"a":1}', "completed")]
WHOLE = {**FUNCTION, "arguments": '{"a":1}'}
DELTA = payload(f"{ARGUED}.delta", delta='{"a":1}')
DONE = payload(f"{ARGUED}.done", arguments='{"a":1}')


@pytest.mark.parametrize("name", NAMELESS, ids=["absent", "empty", "null"])
@pytest.mark.parametrize("ends", [True, False], ids=["ended", "open"])
@pytest.mark.parametrize("begins", [True, False], ids=["announced", "implied"])
@pytest.mark.parametrize("deltas", [[], [DELTA]], ids=["at once", "in deltas"])
@pytest.mark.parametrize("listed", [[], [WHOLE]], ids=["unlisted", "listed"])
def test_a_name_beside_the_arguments_is_read(
    name: dict[str, Any], ends: bool, begins: bool, deltas: list[Any], listed: list[Any]
) -> None:
    answer = fed(
        *([item("added", FUNCTION | name)] if begins else []),
        *deltas,
        {**DONE, **BESIDE},
        *([item("done", WHOLE | name)] if ends else []),
        completed(*[{**each, **name} for each in listed]),
    )
    assert BESIDE_ARGUMENTS in answer.notes("repair")
    assert (answer.status, answer.notes("loss"), answer.notes("warning")) == ("completed", [], [])
    ((call_id, *rest),) = calls(answer)
    assert rest == ["look", '{"a":1}', "completed"]
    assert call_id == "call_1" or not (begins or ends or listed)


@pytest.mark.parametrize("name", NAMELESS, ids=["absent", "empty", "null"])
@pytest.mark.parametrize("verbs", [("added",), ("done",), ("added", "done")], ids=" ".join)
def test_a_name_beside_the_item_is_read(name: dict[str, Any], verbs: tuple[str, ...]) -> None:
    beside: dict[str, dict[str, Any]] = dict.fromkeys(verbs, BESIDE)
    answer = fed(
        item("added", FUNCTION | name, **beside.get("added", {})),
        DELTA,
        DONE,
        item("done", WHOLE | name, **beside.get("done", {})),
        completed(WHOLE | name),
    )
    assert BESIDE_ITEM in answer.notes("repair")
    assert (answer.status, answer.notes("loss"), answer.notes("warning")) == ("completed", [], [])
    assert calls(answer) == ONE


def test_the_call_is_whole_with_its_arguments() -> None:
    """Clients run a call when its arguments are whole, before its item ends."""
    inbound = CheckedInbound(Inbound, [created(), item("added", FUNCTION), DELTA], close=False)
    assert "function_call_arguments.done" in inbound.feed({**DONE, **BESIDE})


@pytest.mark.parametrize("begins", [True, False], ids=["announced", "implied"])
def test_a_custom_call_is_one_whatever_names_it(begins: bool) -> None:
    announced = [item("added", CUSTOM)] if begins else []
    delta = payload(f"{SAID}.delta", delta="ls")
    done = payload(f"{SAID}.done", input="ls", **BESIDE)
    answer = CheckedInbound(Inbound, [created(), *announced, delta, done, completed()], "openai")
    ((_, name, arguments, _),) = calls(answer)
    assert (name, arguments, answer.output[0]["type"]) == ("look", "ls", "custom_tool_call")
    assert (answer.status, answer.notes("loss")) == ("completed", [])


def test_a_name_within_the_item_counts_more() -> None:
    named = {**FUNCTION, "name": "look"}
    other = {"name": "other"}
    answer = fed(
        item("added", named, **other),
        DELTA,
        {**DONE, **other},
        item("done", {**WHOLE, "name": "look"}, **other),
        completed(),
    )
    assert calls(answer) == ONE
    assert answer.notes("warning") == ["call done: has another name, the first is kept"]
    within = {**FUNCTION, "function": {"name": "look", "arguments": '{"a":1}'}}
    answer = fed(item("done", within, **other), completed())
    assert calls(answer) == ONE


def test_the_same_name_in_both_places_is_no_repair() -> None:
    """OpenAI's servers name the call beside its arguments too."""
    named = {"name": "look"}
    answer = fed(
        item("added", FUNCTION | named),
        DELTA,
        {**DONE, **named},
        item("done", WHOLE | named),
        completed(WHOLE | named),
    )
    assert calls(answer) == ONE
    assert not [each for each in answer.notes("repair") if "name" in each]
    assert answer.notes("warning") == []


@pytest.mark.parametrize("name", ["", None, 7, {"a": "look"}, ["look"], True])
def test_what_is_no_name_names_nothing(name: Any) -> None:
    answer = fed(
        item("added", FUNCTION, name=name),
        {**DONE, "name": name},
        item("done", WHOLE, name=name),
        completed(WHOLE),
    )
    assert (answer.status, calls(answer)) == ("incomplete", [])
    assert answer.notes("loss").count(LOST) == 1


def test_a_name_that_comes_twice_or_late_begins_no_other_call() -> None:
    done = {**DONE, **BESIDE}
    twice = fed(item("added", FUNCTION), DELTA, done, done, item("done", WHOLE), done, completed(WHOLE))
    assert (twice.status, calls(twice)) == ("completed", ONE)
    other = fed(item("added", FUNCTION), done, {**DONE, "name": "other"}, item("done", WHOLE), completed())
    assert (other.status, calls(other)) == ("completed", ONE)
    late = fed(item("added", FUNCTION), DELTA, item("done", WHOLE), done, completed(WHOLE))
    assert (late.status, calls(late)) == ("incomplete", [])
    assert late.notes("loss").count(LOST) == 1


def test_only_the_call_that_it_is_about_has_the_name() -> None:
    second = {**FUNCTION, "id": "fc_2", "call_id": "call_2"}
    answer = fed(
        item("added", FUNCTION),
        item("added", second) | {"output_index": 1},
        {**DONE, "item_id": "fc_2", "output_index": 1, **BESIDE},
        completed(),
    )
    assert [each[:3] for each in calls(answer)] == [("call_2", "look", '{"a":1}')]
    assert answer.notes("loss").count(LOST) == 1


@pytest.mark.parametrize("status", ["incomplete", "failed"])
def test_a_named_call_of_a_response_that_did_not_end_well(status: str) -> None:
    for begins in ([item("added", FUNCTION)], []):
        delta = payload(f"{ARGUED}.delta", delta='{"a":')
        done = payload(f"{ARGUED}.done", arguments='{"a":', **BESIDE)
        answer = fed(*begins, delta, done, completed(status=status))
        assert answer.status == status
        assert all(each[1:] == ("look", '{"a":', "incomplete") for each in calls(answer))


def test_the_name_of_an_item_that_waits_for_another_agent_is_kept() -> None:
    agents = [{"agent_name": "one"}, {"agent_name": "two"}]
    text = {"type": "message", "id": "msg_1", "role": "assistant", "content": [], "agent": agents[0]}
    waiting = {**FUNCTION, "agent": agents[1]}
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": "Hi", "annotations": []}
    answer = fed(
        item("added", text),
        {"type": "response.output_text.delta", **place, "delta": "Hi"},
        item("added", waiting) | {"output_index": 1},
        {**DONE, **BESIDE, "output_index": 1},
        item("done", {**text, "content": [part]}),
        item("done", {**waiting, "arguments": '{"a":1}'}) | {"output_index": 1},
        completed(),
    )
    assert answer.response.output_text == "Hi"
    assert [(each["name"], each["arguments"]) for each in answer.output[1:]] == [("look", '{"a":1}')]
    assert LOST not in answer.notes("loss")


@pytest.mark.parametrize("cut", range(1, 6))
def test_a_stream_that_ends_early_is_a_failure_as_ever(cut: int) -> None:
    frames = [created(), item("added", FUNCTION), DELTA, {**DONE, **BESIDE}, item("done", WHOLE)]
    answer = CheckedInbound(Inbound, frames[:cut])
    assert answer.status == "failed"
