"""LiteLLM's `thinking_blocks` between a client and an upstream of Chat: sent to the client, and read from
it."""

import json
from typing import Any

import pytest

from openresponses_bridge.dialects.chat_completions import (
    ChatOptions,
    Inbound,
    Outbound,
    completion,
    from_chat,
    to_chat,
)
from openresponses_bridge.dialects.chat_completions.client.completion import Folding
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.seal import Sealer
from tests.support.chat import new_machine
from tests.support.thinking_blocks import BLOCKS, STREAMED, WHOLE


def answer(frames: list[bytes], sealer: Sealer, streamed: bool) -> dict[str, Any]:
    """The message that a client of Chat gets for these frames of an upstream."""
    machine = new_machine()
    inbound, outbound, folding = Inbound(machine, sealer=sealer), Outbound(sealer=sealer), Folding()
    events = [event for each in frames for event in inbound.feed(each)] + inbound.close()
    if not streamed:
        whole = json.loads(encode(completion(machine.snapshot, sealer=sealer)))
    else:
        for each in [chunk for event in events for chunk in outbound.feed(event)]:
            folding.feed(each)  # type: ignore[arg-type]
        whole = json.loads(encode(folding.completion))
    message: dict[str, Any] = whole["choices"][0]["message"]
    return message


@pytest.mark.parametrize("streamed", [False, True], ids=["to a whole answer", "to a stream"])
@pytest.mark.parametrize("frames", [STREAMED, WHOLE], ids=["streamed", "whole"])
def test_thinking_blocks_reach_a_client_and_come_back(frames: list[bytes], streamed: bool) -> None:
    sealer = Sealer()
    message = answer(frames, sealer, streamed)
    assert message["thinking_blocks"] == BLOCKS
    turns = [
        {"role": "user", "content": "Hi"},
        message,
        {"role": "tool", "tool_call_id": "call_1", "content": "seen"},
    ]
    request, lost = from_chat({"model": "m", "messages": turns}, sealer)
    body, more = to_chat(request, options=ChatOptions(), sealer=sealer)
    sent = next(each for each in json.loads(encode(body))["messages"] if each["role"] == "assistant")
    assert sent["thinking_blocks"] == BLOCKS
    assert [*lost.of("loss"), *more.of("loss")] == []
