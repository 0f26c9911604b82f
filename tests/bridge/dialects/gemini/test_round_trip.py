"""Random answers: gemini → events → items → the contents of the next request have the same parts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from tests.support.gemini import CheckedGemini, parts_of, streams
from tests.support.machines import WIRES


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("key", [None, b"k" * 32], ids=["plain", "sealed"])
@given(frames=streams())
def test_the_parts_go_back_as_they_came(wire: str, key: bytes | None, frames: list[bytes]) -> None:
    fed = CheckedGemini(frames, wire=wire, key=key)
    assert fed.status == "completed"
    assert fed.returned() == parts_of(frames)
    assert fed.notes("loss") == []


@given(frames=streams())
def test_a_whole_answer_and_an_array_are_read_as_the_stream(frames: list[bytes]) -> None:
    streamed = CheckedGemini(frames, wire="openai")
    array = CheckedGemini([b"[%b]" % b",\n".join(frames)], wire="openai")
    parts = [part for frame in frames for part in json.loads(frame)["candidates"][0]["content"]["parts"]]
    whole = json.loads(frames[-1])
    whole["candidates"][0]["content"]["parts"] = parts
    once = CheckedGemini([json.dumps(whole).encode()], wire="openai")
    assert array.returned() == streamed.returned() == once.returned()


_SNAKE = {
    "functionCall": "function_call",
    "thoughtSignature": "thought_signature",
    "finishReason": "finish_reason",
    "executableCode": "executable_code",
    "toolCall": "tool_call",
}


def snake(value: Any) -> Any:
    if isinstance(value, list):
        return [snake(each) for each in value]
    if isinstance(value, dict):
        return {
            _SNAKE.get(name, name): each if name == "args" else snake(each) for name, each in value.items()
        }
    return value


@given(frames=streams())
def test_names_in_snake_case_are_the_same(frames: list[bytes]) -> None:
    named = [json.dumps(snake(json.loads(frame))).encode() for frame in frames]
    assert CheckedGemini(named).returned() == CheckedGemini(frames).returned()
