"""A finished response as the message that is not streamed."""

import pytest

from openresponses_bridge.calls.json_text import tool_input
from openresponses_bridge.decoder import ResponseAccumulator
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages import message
from openresponses_bridge.protocol import items as it
from openresponses_bridge.protocol.usage import Usage
from tests.support.machines import machine


def finished(*calls, end=("finish",), wire="openai"):
    state_machine, folded = machine(wire), ResponseAccumulator()
    for name, *arguments in [("start",), *calls, end]:
        for event in getattr(state_machine, name)(*arguments):
            folded.feed(event)
    return state_machine.snapshot


def test_a_message_has_anthropics_fields():
    response = finished(("text", "x"), ("usage", Usage.of(3, 4)))
    assert message(response) == {
        "id": "resp_0",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "x"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 3,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 4,
        },
    }


def test_a_call_that_was_cut_is_left_out_and_reported():
    lost = Diagnostics()
    response = finished(("text", "x"), ("tool_call", 0, "c1", "f", '{"a"'), end=("finish", "length"))
    body = message(response, diagnostics=lost)
    assert [block["type"] for block in body["content"]] == ["text"]
    assert body["stop_reason"] == "max_tokens"
    assert [case.where for case in lost] == ["item.function_call"]


def test_a_failed_response_is_an_error_body():
    response = finished(("text", "x"), end=("fail", {"code": "rate_limit_exceeded", "message": "m"}))
    assert message(response) == {"type": "error", "error": {"type": "rate_limit_error", "message": "m"}}


def test_a_cancelled_response_is_an_error_body():
    for wire in ("openai", "openresponses"):
        response = finished(("text", "x"), end=("cancel",), wire=wire)
        assert message(response)["type"] == "error"


def test_citations_and_whole_calls_are_in_the_message():
    cited = {"type": "url_citation", "url": "https://a", "title": "A", "start_index": 0, "end_index": 1}
    shell = it.ShellCall("sh_1", "c1", it.ShellAction(["ls"]), "completed")
    body = message(finished(("text", "x"), ("annotation", cited), ("item", shell)))
    assert body["content"][0]["citations"][0]["url"] == "https://a"
    assert body["content"][1]["input"] == {"commands": ["ls"]}


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("", {}),
        (" ", {}),
        ('{"a":1}', {"a": 1}),
        ("[1]", {"INVALID_JSON": "[1]"}),
        ("{nope}", {"INVALID_JSON": "{nope}"}),
    ],
)
def test_input_that_is_no_object_is_kept_under_its_own_name(arguments, found):
    assert tool_input(arguments) == found


def test_malformed_arguments_are_the_models_own_words():
    response = finished(("tool_call", 0, "c1", "f", "{nope}"))
    assert message(response)["content"][0]["input"] == {"INVALID_JSON": "{nope}"}
