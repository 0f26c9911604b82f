"""Streams of other APIs: our own bridges make the expected response of each."""

import json
from typing import Any

import pytest

from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.corpus import report_of
from openresponses_bridge.corpus.foreign import foreign_case, foreign_ids
from openresponses_bridge.dialects import anthropic_messages, chat_completions, gemini
from openresponses_bridge.sse import SSEDecoder
from tests.support.machines import machine, plain

INBOUNDS: dict[str, Any] = {
    "chat": chat_completions.Inbound,
    "anthropic": anthropic_messages.Inbound,
    "gemini": gemini.Inbound,
}


@pytest.mark.parametrize("id", foreign_ids())
def test_our_bridges_make_of_each_what_it_says(id: str) -> None:
    each = foreign_case(id)
    state_machine = machine()
    inbound, validator = INBOUNDS[each.dialect](state_machine), StreamValidator()
    frames = (decoder := SSEDecoder()).feed(each.body) + decoder.close()
    sent = [event for frame in frames for event in inbound.feed(frame.data)] + inbound.close()
    for event in sent:
        validator.feed(event)
    assert validator.close() == []
    assert each.differences(report_of(id, plain(state_machine.snapshot))) == []


def test_a_difference_is_said() -> None:
    each = foreign_case("anthropic/two_tools_interleaved")
    calls = [{"type": "function_call", "call_id": "call_a", "name": "get_weather", "arguments": "{}"}]
    response = {"status": "completed", "output": [item | {"status": "completed"} for item in calls]}
    assert each.differences(report_of(each.id, response)) == [
        'usage is null instead of {"input_tokens":3,"output_tokens":7,"total_tokens":10}',
        "the arguments of call_a are '{}' instead of '{\"city\":\"Paris\"}'",
        "the call call_b is missing",
    ]
    cut = foreign_case("chat/cut")
    well = {"status": "completed", "output": json.loads(json.dumps([]))}
    assert cut.differences(report_of(cut.id, well))[0] == "status is 'completed' instead of 'cut'"
