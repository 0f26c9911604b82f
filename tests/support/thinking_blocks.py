"""An answer of LiteLLM with `thinking_blocks`, streamed and whole."""

from typing import Any

from tests.support.chat import DONE, chunk, completion, part

CALL = part("{}", name="look", id="call_1", index=0)


BLOCKS = [
    {"type": "thinking", "thinking": "First I look.", "signature": "sig-1"},
    {"type": "redacted_thinking", "data": "sealed"},
    {"type": "thinking", "thinking": "Then I see.", "signature": "sig-2"},
]


def thinking(text: str, signature: Any = None) -> bytes:
    block = {"type": "thinking", "thinking": text, "signature": signature}
    return chunk(reasoning_content=text, thinking_blocks=[block])


STREAMED = [
    thinking("First "),
    thinking("I look."),
    thinking("", "sig-1"),
    chunk(reasoning_content="", thinking_blocks=[BLOCKS[1]]),
    thinking("Then I see."),
    thinking("", "sig-2"),
    chunk(tool_calls=[CALL]),
    chunk("tool_calls"),
    DONE,
]


WHOLE = [
    completion(
        "tool_calls",
        content=None,
        reasoning_content="First I look.Then I see.",
        thinking_blocks=BLOCKS,
        tool_calls=[CALL],
    )
]
