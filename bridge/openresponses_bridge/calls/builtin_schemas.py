"""What a model gets for tools without a declaration of their own: descriptions and JSON Schemas.

The fields are those of the item that its call becomes.
"""

from __future__ import annotations

from typing import Any, Final

from openresponses_bridge.calls.identity import ToolKind
from openresponses_bridge.calls.json_input import INPUT_KEY


def _object(required: tuple[str, ...], **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _texts(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}


_STRING: Final = {"type": "string"}
_TIMEOUT: Final = {"type": "integer", "description": "Time limit in milliseconds."}
INPUT_SCHEMA: Final = _object((INPUT_KEY,), **{INPUT_KEY: _text("The tool's whole input as plain text.")})
BUILTINS: Final[dict[ToolKind, tuple[str, dict[str, Any]]]] = {
    ToolKind.SHELL: (
        "Runs shell commands and returns what they print.",
        _object(
            ("commands",),
            commands=_texts("Commands, run one after the other."),
            timeout_ms=_TIMEOUT,
            max_output_length={"type": "integer", "description": "Longest output in characters."},
        ),
    ),
    ToolKind.LOCAL_SHELL: (
        "Runs one command on the user's machine and returns what it prints.",
        _object(
            ("command",),
            command=_texts("The program and its arguments."),
            working_directory=_STRING,
            timeout_ms=_TIMEOUT,
            env={"type": "object", "additionalProperties": _STRING},
            user=_STRING,
        ),
    ),
    ToolKind.APPLY_PATCH: (
        "Creates, changes or deletes one file.",
        _object(
            ("type", "path"),
            type={"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            path=_text("Path of the file."),
            diff=_text(
                "V4A diff: each line of the change begins with a space, + or -. "
                "Needed unless the file is deleted."
            ),
        ),
    ),
    ToolKind.TOOL_SEARCH: (
        "Searches for further tools by what they should do; those found can be called from then on.",
        _object(("query",), query=_STRING, limit={"type": "integer"}),
    ),
}
