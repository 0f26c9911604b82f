"""Ids and names of items have no lone surrogates, which strict JSON readers refuse."""

import re

import msgspec
import pytest

from openresponses_bridge.protocol import items as it
from openresponses_bridge.protocol.codec import encode
from tests.support.machines import machine

HALF = "\ud83d"
WHOLE_CALL = it.FunctionCall(f"fc{HALF}", f"c{HALF}", f"look{HALF}", "{}", "completed", f"n{HALF}")


def played(*calls):
    state_machine = machine("openai")
    events = state_machine.start()
    for name, *arguments in [*calls, ("finish",)]:
        events += getattr(state_machine, name)(*arguments)
    for event in events:
        msgspec.json.decode(encode(event))  # strict: raises for half a pair
    return state_machine.snapshot


@pytest.mark.parametrize(
    "calls",
    [
        [("tool_call", 0, f"c{HALF}", f"look{HALF}", "{}", "function", f"n{HALF}")],
        [("expect_item", f"fc{HALF}"), ("tool_call", 0, f"c{HALF}", f"look{HALF}", "{}")],
        [("item", WHOLE_CALL)],
    ],
    ids=["streamed", "expected", "whole"],
)
def test_a_call_with_half_a_pair_in_its_names(calls):
    (call,) = played(*calls).output
    assert (call.call_id, call.name) == ("c�", "look�")
    assert HALF not in call.id


def test_an_item_with_half_a_pair_in_its_id():
    (message,) = played(("expect_item", f"msg{HALF}"), ("text", "Hi")).output
    assert message.id == "msg�"


def test_two_ids_that_are_mended_alike_stay_two():
    first, second = played(
        ("tool_call", 0, "a\ud800", "f", "{}"), ("tool_call", 1, "a\ud801", "f", "{}")
    ).output
    assert {first.call_id, second.call_id} == {"a�", "a�_2"}


def test_fragments_go_on_under_the_id_that_the_upstream_gave():
    (call,) = played(
        ("tool_call", 0, f"c{HALF}", "f", '{"a"'), ("tool_call", 0, f"c{HALF}", None, ":1}")
    ).output
    assert call.arguments == '{"a":1}'


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ("a b", "has characters that can't be printed, replaced"),
        ("a\nb", "has characters that can't be printed, replaced"),
        ("a" * 65, "longer than 64 characters, shortened"),
    ],
)
def test_a_call_id_that_clients_could_not_send_back_is_replaced(wanted, why):
    state_machine = machine("openai")
    state_machine.start()
    state_machine.tool_call(0, wanted, "f", "{}")
    state_machine.finish()
    (call,) = state_machine.snapshot.output
    assert re.fullmatch(r"[!-~]{1,64}", call.call_id)
    assert [str(each) for each in state_machine.diagnostics] == [f"repair: tool_call.id: {why}"]
