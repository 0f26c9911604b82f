"""The wall between dialects and emitter, called as each of the dialects calls it."""

from typing import Any

import pytest

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.errors import StreamStateError
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_server.requests.constraints import ConstrainedStream, with_rules

ALLOWED = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "look"}]}


def machine_of(**request: Any) -> ResponseStreamStateMachine:
    body = decode_request(encode(request))
    identities = ToolIdentityMap()
    return with_rules(ResponseStreamStateMachine("m", body, tool_identities=identities), body, identities)


def names(machine: ResponseStreamStateMachine) -> list[str]:
    return [getattr(item, "name", item.type) for item in machine.snapshot.output]


def test_without_constraints_it_is_the_plain_machine() -> None:
    assert type(machine_of(input="x", tool_choice="auto")) is ResponseStreamStateMachine
    assert type(machine_of(tool_choice={"type": "web_search"})) is ResponseStreamStateMachine
    assert type(machine_of(tool_choice="none")) is ConstrainedStream
    assert type(machine_of(max_tool_calls=1)) is ConstrainedStream


def test_calls_sent_whole_are_judged_too() -> None:
    machine = machine_of(tool_choice=ALLOWED)
    machine.start()
    for name in ("run", "look"):
        call = {"type": "function_call", "id": f"fc_{name}", "call_id": name, "name": name, "arguments": "{}"}
        machine.item(call | {"status": "completed"})
    machine.item({"type": "custom_tool_call", "id": "c", "call_id": "c", "name": "sql", "input": "x"})
    machine.item({"type": "shell_call", "id": "s", "call_id": "s", "action": {"commands": ["ls"]}})
    machine.item({"type": "acme:search", "id": "a", "status": "completed"})
    assert names(machine) == ["look", "acme:search"]
    (sent,) = machine.diagnostics.of("warning")
    assert sent.times == 3


def test_index_is_free_again_after_a_refused_call() -> None:
    machine = machine_of(tool_choice=ALLOWED)
    events = machine.start() + machine.text("Hm")
    events += machine.tool_call(0, "a", "run", "{")
    events += machine.tool_call(0, None, None, "}")
    events += machine.tool_call_done(0)
    events += machine.tool_call(0, "b", "look", "{}")
    events += machine.tool_call_done(0)
    events += machine.tool_call(0, None, "run", "{}")
    events += machine.finish("tool_calls")
    assert names(machine) == ["message", "look"]
    validator = StreamValidator()
    assert [violation for event in events for violation in validator.feed(event)] == []
    assert validator.close() == []


def test_name_repeated_in_each_fragment_is_one_call() -> None:
    machine = machine_of(max_tool_calls=1)
    machine.start()
    for piece in ('{"a"', ":1", "}"):
        machine.tool_call(0, "a", "look", piece)
    machine.finish("tool_calls")
    (call,) = machine.snapshot.output
    assert getattr(call, "arguments", None) == '{"a":1}'


def test_answer_that_is_cut_is_incomplete_without_its_required_call() -> None:
    machine = machine_of(tool_choice="required")
    machine.start()
    machine.text("Hm")
    machine.defer_finish("length")
    machine.finish()
    assert machine.snapshot.status == "incomplete"


def test_only_an_item_of_a_hosted_tool_stands_for_the_required_call() -> None:
    items = {
        "failed": {"type": "reasoning", "id": "rs_1", "summary": []},
        "completed": {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    }
    for status, item in items.items():
        machine = machine_of(tool_choice="required")
        machine.start()
        machine.item(item)
        machine.finish("stop")
        assert machine.snapshot.status == status


def test_e9_wrong_calls_are_refused_and_change_nothing() -> None:
    machine = machine_of(tool_choice="none")
    for wrong in (lambda: machine.tool_call(0, "a", "run", "{}"), lambda: machine.finish("stop")):
        with pytest.raises(StreamStateError):
            wrong()
    machine.start()
    machine.text("Hm")
    with pytest.raises(StreamStateError):
        machine.tool_call_done(7)
    machine.finish("stop")
    assert machine.snapshot.status == "completed"
