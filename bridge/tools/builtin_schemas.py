"""What a model is told of tools that have no declaration of their own: descriptions and JSON Schemas."""

from __future__ import annotations

from typing import Any, Final

from bridge.tools.identity import ToolKind
from bridge.tools.json_input import INPUT_KEY


def _object(required: tuple[str, ...], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_MILLISECONDS: Final = {"type": "integer", "description": "milliseconds"}
INPUT_SCHEMA: Final = _object((INPUT_KEY,), **{INPUT_KEY: _TEXT})
_PATCH_KINDS: Final = {"type": "string", "enum": ["create_file", "update_file", "delete_file"]}
BUILTINS: Final[dict[ToolKind, tuple[str, dict[str, Any]]]] = {
    ToolKind.SHELL: (
        "Runs shell commands, one after the other, and returns what they print.",
        _object(("commands",), commands=_TEXTS, timeout_ms=_MILLISECONDS),
    ),
    ToolKind.LOCAL_SHELL: (
        "Runs one command on the user's machine, given as its argument vector.",
        _object(("command",), command=_TEXTS, working_directory=_TEXT, timeout_ms=_MILLISECONDS),
    ),
    ToolKind.APPLY_PATCH: (
        "Creates, updates or deletes one file. `diff` is a V4A diff; deleting needs none.",
        _object(("type", "path"), type=_PATCH_KINDS, path=_TEXT, diff=_TEXT),
    ),
    ToolKind.TOOL_SEARCH: (
        "Searches for further tools by what they should do; those found can be called from then on.",
        _object(("query",), query=_TEXT, limit={"type": "integer"}),
    ),
}
