"""Recorded streams of real servers: the response has their content."""

import json
from pathlib import Path
from typing import Any

import pytest

from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.content import OutputTextContent, RefusalContent
from openresponses_bridge.protocol.items import Message, ReasoningItem
from tests.support.chat import Ran, run
from tests.support.reference_validator import judge
from tests.support.shared import shared_root

_ROOT = shared_root()
_FIXTURES = _ROOT / "fixtures" if _ROOT is not None else Path()
STREAMS = sorted(
    f"{folder}/{path.name}"
    for folder in ("chat", "chat-irespdelta")
    for path in (_FIXTURES / folder).glob("*")
    if path.name.endswith((".sse", ".chunks.txt"))
)


def frames_of(path: Path) -> list[bytes]:
    lines = path.read_bytes().splitlines()
    if path.suffix == ".sse":
        return [line.removeprefix(b"data:").strip() for line in lines if line.startswith(b"data:")]
    return [line for line in lines if line.strip()]


class Said:
    """What a stream says when its deltas are simply added up."""

    def __init__(self, frames: list[bytes]) -> None:
        self.text = self.refusal = self.reasoning = ""
        self.calls: list[list[str]] = []
        for data in frames:
            if data != b"[DONE]":
                for choice in json.loads(data).get("choices", ()):
                    self._add(choice["delta"])

    def _add(self, delta: dict[str, Any]) -> None:
        self.text += delta.get("content") or ""
        self.refusal += delta.get("refusal") or ""
        self.reasoning += delta.get("reasoning_content") or ""
        for call in delta.get("tool_calls") or ():
            if call.get("id"):
                self.calls.append([call["id"], call["function"]["name"], ""])
            self.calls[-1][2] += call["function"].get("arguments") or ""


def texts(ran: Ran, kind: type[Any], field: str) -> str:
    messages = [item for item in ran.output if isinstance(item, Message)]
    return "".join(
        getattr(part, field) for item in messages for part in item.content if isinstance(part, kind)
    )


@pytest.mark.parametrize("name", STREAMS)
def test_recorded_stream_holds_what_was_said(name: str, shared: Path) -> None:
    frames = frames_of(shared / "fixtures" / name)
    ran, expected = run(*frames), Said(frames)
    assert texts(ran, OutputTextContent, "text") == expected.text
    assert texts(ran, RefusalContent, "refusal") == expected.refusal
    assert [list(call) for call in ran.calls] == expected.calls
    reasoning = [item for item in ran.output if isinstance(item, ReasoningItem)]
    assert "".join(part.text for item in reasoning for part in item.content or ()) == expected.reasoning  # type: ignore[union-attr]
    assert ran.losses == []


@pytest.mark.parametrize("name", STREAMS)
def test_recorded_stream_comes_out_valid(name: str, shared: Path) -> None:
    ran = run(*frames_of(shared / "fixtures" / name))
    assert judge([json.loads(encode(event)) for event in ran.events]) == []
    assert ran.response.usage is not None or "panel" in name
    assert ran.status == ("incomplete" if name == "chat/openai-python-4cc50a6135d2.sse" else "completed")
