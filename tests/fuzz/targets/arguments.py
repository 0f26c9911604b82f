"""Invariant: a model's arguments give the same input in linear time, however they are split; the content that
a plain parser finds in them is not lost; and no text makes a reader raise."""

from __future__ import annotations

import json
from typing import Any

from openresponses_bridge.calls.json_input import JsonInputReader
from openresponses_bridge.calls.json_text import JsonState, json_state
from tests.fuzz.core import Target


def unwrapped(text: str, size: int) -> tuple[str, list[str], bool]:
    reader = JsonInputReader()
    pieces = [reader.feed(text[at : at + size]) for at in range(0, len(text), size)]
    return "".join([*pieces, reader.close()]), list(reader.notes), reader.cut


def any_arguments(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    whole = unwrapped(text, len(text) or 1)
    for size in (1, 5):
        assert unwrapped(text, size) == whole
    state = json_state(text)
    value, is_json = _plain_reading(text)
    if is_json:
        assert state is JsonState.COMPLETE
        wrapped = value.get("input") if isinstance(value, dict) and len(value) == 1 else None
        if isinstance(wrapped, str) and text.count('"input"') == 1:
            assert _joined(whole[0]) == wrapped
    elif state is JsonState.COMPLETE:
        # the decoder has its own reasons to refuse these: too deep, out of range
        assert len(text) > 300 or "e" in text.lower()
    if state is JsonState.TRUNCATED:
        assert not is_json


def _joined(text: str) -> str:
    """Join the halves of surrogate pairs, which the reader leaves to its caller."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _plain_reading(text: str) -> tuple[Any, bool]:
    def refuse(name: str) -> Any:
        raise ValueError(name)

    try:
        return json.loads(text, parse_constant=refuse), True
    except (ValueError, RecursionError):
        return None, False


SEEDS = (
    b'{"input": "*** Begin Patch\\n\\ud83d\\ude00 \\"x\\" \\u00e9"}',
    b'{"path": "a", "text": "b", "n": [1, {"a": "}"}], "input": "c"}',
    b'"a string"',
    b"plain text",
    b'{"command": ["ls", "-l"], "patch": "x',
    b'[1, 2.5e3, true, null, {"a": -0}]',
)
WORDS = (
    b'"input":',
    b'"patch":',
    b'"text":',
    b'"command":',
    b"*** Begin Patch",
    b"\\u",
    b"\\ud83d",
    b"\\",
    b'"',
)
TARGETS = [Target("arguments", any_arguments, SEEDS, WORDS)]
