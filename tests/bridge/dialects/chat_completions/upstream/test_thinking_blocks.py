"""LiteLLM's `thinking_blocks`: kept with their signatures, and sent back unchanged."""

import json
from typing import Any

import pytest

from openresponses_bridge.dialects.chat_completions import ChatOptions, Inbound, to_chat
from openresponses_bridge.protocol.codec import decode_item, encode
from openresponses_bridge.protocol.input_items import FunctionCallOutputParam, MessageParam
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.seal import Sealer
from tests.support.chat import new_machine
from tests.support.thinking_blocks import BLOCKS, STREAMED, WHOLE


def returned(frames: list[bytes], options: ChatOptions) -> tuple[dict[str, Any], str]:
    """The assistant's message of the next request, and the reasoning that was shown."""
    sealer, machine = Sealer(), new_machine()
    inbound = Inbound(machine, sealer=sealer)
    for each in frames:
        inbound.feed(each)
    inbound.close()
    output = [decode_item(encode(item)) for item in machine.snapshot.output]
    shown = "".join(
        piece.text
        for item in output
        if item.type == "reasoning"
        for piece in item.content or ()  # type: ignore[union-attr]
    )
    history = [MessageParam("user", "Hi"), *output, FunctionCallOutputParam("call_1", "seen")]
    body, _ = to_chat(
        CreateResponse(model="m", input="Go on."), history=history, options=options, sealer=sealer
    )
    return next(each for each in json.loads(encode(body))["messages"] if each["role"] == "assistant"), shown


@pytest.mark.parametrize("frames", [STREAMED, WHOLE], ids=["streamed", "whole"])
def test_thinking_blocks_come_back_with_their_signatures(frames: list[bytes]) -> None:
    message, shown = returned(frames, ChatOptions())
    assert message["thinking_blocks"] == BLOCKS
    assert "reasoning_content" not in message
    assert shown == "First I look.Then I see."


def test_thinking_blocks_are_not_sent_where_they_are_not_wanted() -> None:
    message, _ = returned(STREAMED, ChatOptions(returned=frozenset(), reasoning_field="reasoning_content"))
    assert "thinking_blocks" not in message
    assert message["reasoning_content"].replace("\n\n", "") == "First I look.Then I see."
