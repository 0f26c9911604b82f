"""Counts that a server writes as text are counts, in each dialect."""

from typing import Any

import pytest

from openresponses_bridge.dialects.table import dialects
from openresponses_bridge.protocol.codec import encode
from tests.support.chat import new_machine

MESSAGE = {
    "type": "message",
    "id": "m",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Hi", "annotations": []}],
}
WHOLE: dict[str, Any] = {
    "chat": {
        "choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": "5", "completion_tokens": "2", "total_tokens": "7"},
    },
    "anthropic": {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "Hi"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": "5", "output_tokens": "2"},
    },
    "gemini": {
        "candidates": [{"content": {"parts": [{"text": "Hi"}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": "5", "candidatesTokenCount": "2"},
    },
    "interactions": {
        "object": "interaction",
        "status": "completed",
        "steps": [{"type": "model_output", "content": [{"type": "text", "text": "Hi"}]}],
        "usage": {"total_input_tokens": "5", "total_output_tokens": "2"},
    },
    "responses": {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "output": [MESSAGE],
        "usage": {"input_tokens": "5", "output_tokens": "2", "total_tokens": "7"},
    },
}


@pytest.mark.parametrize("dialect", WHOLE)
def test_counts_that_are_written_as_text_count(dialect: str) -> None:
    machine = new_machine()
    inbound = dialects()[dialect].capture.inbound(machine)
    inbound.feed(encode(WHOLE[dialect]))
    inbound.close()
    response = machine.snapshot
    assert (response.status, response.output_text) == ("completed", "Hi")
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (5, 2)
