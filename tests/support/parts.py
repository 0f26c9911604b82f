"""Reads VS Code's parts from the lines that are sent to it."""

from typing import Any

import msgspec

from openresponses_bridge.decoder import (
    LanguageModelDataPart,
    LanguageModelPromptTsxPart,
    LanguageModelTextPart,
    LanguageModelToolResultPart,
    Part,
)

_IN_RESULTS: dict[Any, type[Any]] = {
    part.type: part for part in (LanguageModelTextPart, LanguageModelDataPart, LanguageModelPromptTsxPart)
}


def decode_part(data: bytes | str) -> Part:
    """Return the part in one line of JSON."""
    part: Part = msgspec.json.decode(data, type=Part)
    if isinstance(part, LanguageModelToolResultPart):
        return msgspec.structs.replace(part, content=[_content(value) for value in part.content])
    return part


def _content(value: Any) -> Any:
    struct = _IN_RESULTS.get(value.get("type")) if isinstance(value, dict) else None
    return value if struct is None else msgspec.convert(value, type=struct)
