"""Law E7 for clients: an end for which their API has no word is not sent as completion, and is a loss."""

import json
from typing import Any

import pytest

from openresponses_bridge.dialects.table import dialects
from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.protocol.events import Event
from tests.support import anthropic, chat, converse, gemini
from tests.support.calling import CALLING

# dialect → the word for an answer that is not complete: Chat, Messages, Converse and Copilot have that for a
# limit alone
WORDS = {
    "anthropic": "max_tokens",
    "bedrock": "max_tokens",
    "chat": "length",
    "copilot": "length",
    "gemini": "OTHER",
    "interactions": "incomplete",
}
COMPLETE = {"stop", "end_turn", "STOP", "completed", "tool_calls", "tool_use", "requires_action"}
OWN: dict[str, list[Any]] = {
    "anthropic": [anthropic.start(), *anthropic.text(0, "Hm"), *anthropic.stop("tired")],
    "bedrock": [converse.start(), *converse.text(0, "Hm"), *converse.end("tired")],
    "chat": [chat.chunk(content="Hm"), chat.chunk("tired"), chat.DONE],
    "gemini": [gemini.chunk({"text": "Hm"}, finish="TIRED")],
}


def sent(dialect: str, events: list[Event]) -> tuple[str, list[str]]:
    """What the client is sent, and what is lost of it."""
    side = dialects()[dialect].client
    assert side is not None
    outbound = side.outbound()
    chunks = [chunk for event in events for chunk in outbound.feed(event)] + outbound.close()
    return side.encode(chunks).decode(), [str(case) for case in outbound.diagnostics.of("loss")]


def words_in(text: str) -> set[str]:
    """The strings that stand in it as values."""
    return set(text.split('"'))


@pytest.mark.parametrize("reason", ["tired", "incomplete_tool_call"])
@pytest.mark.parametrize("dialect", sorted(WORDS))
def test_e7_an_end_without_a_word_is_a_loss(dialect: str, reason: str) -> None:
    machine = ResponseStreamStateMachine("m")
    events = machine.start() + machine.text("Hm") + machine.finish(reason, incomplete=True)
    answer, losses = sent(dialect, events)
    words = words_in(answer)
    assert WORDS[dialect] in words
    assert not COMPLETE & words
    assert [loss for loss in losses if reason in loss]


@pytest.mark.parametrize("dialect", sorted(OWN))
def test_e7_a_word_of_the_api_itself_comes_back_to_its_clients(dialect: str) -> None:
    machine = ResponseStreamStateMachine("m")
    inbound = CALLING[dialect][0](machine)
    events = [
        event
        for frame in OWN[dialect]
        for event in inbound.feed(frame if isinstance(frame, bytes) else json.dumps(frame).encode())
    ] + inbound.close()
    assert machine.snapshot.incomplete_details is not None
    assert machine.snapshot.incomplete_details.reason == "tired"
    answer, losses = sent(dialect, events)
    assert words_in(answer) & {"tired", "TIRED"}
    assert losses == []
