"""The text of a call's arguments → the object that VS Code hands to the tool.

VS Code takes objects only and has no way to say that arguments were bad. JSON of another kind is wrapped,
with a note of it for the diagnostics; what is not JSON has no object, since a host would run the tool with
it.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import msgspec

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json
from openresponses_bridge.surrogates import mended, mended_json

_canonical = msgspec.json.Encoder(order="deterministic")


class ToolInput(NamedTuple):
    """The object, None for arguments that are not JSON, and what had to be done to get it (None: nothing)."""

    value: dict[str, Any] | None
    repair: str | None = None


def tool_input(arguments: str) -> ToolInput:
    """The arguments of a function call, parsed. Never raises."""
    if not arguments.strip():
        return ToolInput({})
    value = _parsed(mended(arguments))
    if isinstance(value, str):
        # some models encode their arguments twice
        inner = _parsed(value)
        if isinstance(inner, dict):
            return ToolInput(inner, "arguments were JSON within a JSON string")
    if isinstance(value, dict):
        return ToolInput(value)
    if value is _BROKEN:
        return ToolInput(None)
    if value is None:
        return ToolInput({}, "arguments are null, replaced by {}")
    return ToolInput({"input": value}, f"arguments are not an object but {type(value).__name__}, wrapped")


def signature(name: str, value: dict[str, Any] | None) -> bytes:
    """16 bytes that are equal for equal calls, however their JSON was written."""
    return hashlib.blake2b(_canonical.encode([name, value]), digest_size=16).digest()


_BROKEN = object()


def _parsed(text: str) -> Any:
    try:
        value = decode_json(text)
    except WireError:
        return _BROKEN
    # only escapes can bring in halves of surrogate pairs
    return mended_json(value) if "\\u" in text else value
