"""The client's view of the several answers of one response."""

import pytest

from openresponses_bridge.protocol.items import FunctionCall, Item, ToolSearchCall
from openresponses_server.hosted.base import HostedCall
from openresponses_server.runs.answers import AnswerLog


@pytest.mark.parametrize(
    ("item", "waits"),
    [
        (FunctionCall("fc_1", "call_1", "look", "{}", "completed"), True),
        (ToolSearchCall("ts_1", {}, "call_1", "client"), True),
        (ToolSearchCall("ts_1", {}, "call_1", "server"), False),  # the upstream has answered it itself
        (ToolSearchCall("ts_1", {}), False),
    ],
)
def test_a_round_goes_on_unless_the_client_has_to_answer(item: Item, waits: bool) -> None:
    answers = AnswerLog(lambda usage, _written, _given: usage, lambda: "m", lambda _size: None)
    assert answers.add([item], [(HostedCall("call_2", "search", "{}"), "found")]) is waits


def test_an_answer_that_was_condensed_is_not_what_the_upstream_has_stored() -> None:
    answers = AnswerLog(lambda usage, _written, _given: usage, lambda: "m", lambda _size: None)
    assert answers.is_whole
    answers.condense([])
    assert not answers.is_whole
