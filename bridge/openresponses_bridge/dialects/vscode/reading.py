"""Reads chat requests from JSON, with parts in any form that clients send: with the class name, with the
extension host's `$mid`, or with their fields only."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, UnsetType

from openresponses_bridge.decoder import (
    LanguageModelDataPart,
    LanguageModelPromptTsxPart,
    LanguageModelTextPart,
    LanguageModelThinkingPart,
    LanguageModelToolCallPart,
    LanguageModelToolResultPart,
    Part,
)
from openresponses_bridge.decoder.tool_calls import tool_input
from openresponses_bridge.dialects.vscode.types import ChatMessage, ChatRequest, ChatTool, Role, ToolMode
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import request_object

_ROLES: dict[int | str, Role] = {
    **{role.value: role for role in Role},
    **{role.name.lower(): role for role in Role},
    **{str(role.value): role for role in Role},
    "developer": Role.SYSTEM,
}
_BY_MID = {21: "text", 22: "thinking", 23: "tsx", 24: "data"}
_BY_CLASS = {
    "LanguageModelTextPart": "text",
    "LanguageModelThinkingPart": "thinking",
    "LanguageModelPromptTsxPart": "tsx",
    "LanguageModelDataPart": "data",
    "LanguageModelToolCallPart": "call",
    "LanguageModelToolResultPart": "result",
    "LanguageModelToolResultPart2": "result",
    "LanguageModelTextPart2": "text",
    "LanguageModelDataPart2": "data",
}


def invalid(param: str, message: str) -> InvalidRequestError:
    """Return the error for a request that can't be read; `param` is the place of the error."""
    return InvalidRequestError(InvalidRequestError.INVALID_VALUE, message, param=param)


def decode_chat(data: bytes | str) -> ChatRequest:
    """Decode the body of a chat request. Raises InvalidRequestError; its `param` is the place of the
    error."""
    return chat_of(request_object(data))


def chat_of(body: Mapping[str, Any]) -> ChatRequest:
    """Read a chat request from a parsed body, as `decode_chat` does; its messages and tools may already be
    our objects."""
    model = body.get("model")
    if not isinstance(model, str):
        raise invalid("model", "expected a string")
    messages = _list(body, "messages")
    if not messages:
        raise invalid("messages", "at least one message is required")
    mode = body.get("toolMode") or ToolMode.AUTO
    if mode not in list(ToolMode):
        raise invalid("toolMode", "expected 1 (auto) or 2 (required)")
    return ChatRequest(
        model,
        [read_message(message, f"messages[{position}]") for position, message in enumerate(messages)],
        [_tool(tool, f"tools[{position}]") for position, tool in enumerate(_list(body, "tools"))],
        ToolMode(mode),
        _object(body, "modelOptions") or {},
        _object(body, "modelConfiguration") or UNSET,
        _flag(body, "includeEncryptedThinking"),
        _flag(body, "store"),
    )


def read_message(value: Any, path: str) -> ChatMessage:
    """Read one message. Raises InvalidRequestError; its `param` is the place of the error."""
    if isinstance(value, ChatMessage):
        return value
    if not isinstance(value, dict):
        raise invalid(path, "expected an object")
    raw_role = value.get("role")
    role = _ROLES.get(raw_role) if isinstance(raw_role, int | str) else None
    if role is None:
        raise invalid(f"{path}.role", "expected 1 (user), 2 (assistant) or 3 (system)")
    # in VS Code `content` is a getter, which JSON.stringify leaves out
    field = "_content" if "content" not in value and "_content" in value else "content"
    content = value.get(field)
    name = value.get("name")
    if isinstance(content, str):
        parts: list[Part | Any] = [LanguageModelTextPart(content)]
    elif isinstance(content, list):
        parts = [part_of(part, f"{path}.{field}[{place}]") for place, part in enumerate(content)]
    else:
        raise invalid(f"{path}.{field}", "expected a string or a list of parts")
    return ChatMessage(role, parts, name if isinstance(name, str) else UNSET)


def _flag(body: Mapping[str, Any], name: str) -> bool | UnsetType:
    value = body.get(name)
    if value is None:
        return UNSET
    if not isinstance(value, bool):
        raise invalid(name, "expected true or false")
    return value


def _object(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid(name, "expected an object")
    return value


def _list(body: Mapping[str, Any], name: str) -> list[Any]:
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise invalid(name, "expected a list")
    return list(value)


def _tool(tool: Any, path: str) -> ChatTool:
    if isinstance(tool, ChatTool):
        return tool
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        raise invalid(path, "expected a tool with a name")
    schema, description = tool.get("inputSchema"), tool.get("description")
    return ChatTool(
        tool["name"],
        description if isinstance(description, str) else "",
        schema if isinstance(schema, dict) else UNSET,
    )


def part_of(value: Any, path: str) -> Part | Any:
    """Return one part; a value that is not a part is returned unchanged. Raises InvalidRequestError for a
    part whose fields can't be read."""
    if isinstance(value, str):
        return LanguageModelTextPart(value)
    reader = _READERS.get(_kind(value)) if isinstance(value, dict) else None
    if reader is None:
        return value
    try:
        return reader(value, path)
    except (KeyError, TypeError, ValueError) as error:
        raise invalid(path, f"not a part: {error}") from error


def _kind(value: dict[str, Any]) -> str:
    number = value.get("$mid")
    named = _BY_CLASS.get(str(value.get("type"))) or (_BY_MID.get(number) if type(number) is int else None)
    if named is not None:
        return named
    if "callId" in value:
        return "call" if "name" in value else "result"
    if "mimeType" in value:
        return "data"
    return "text" if isinstance(value.get("value"), str) else "unknown"


def _string(value: dict[str, Any], name: str) -> str:
    text = value[name]
    if not isinstance(text, str):
        raise TypeError(f"{name} is not a string")
    return text


def _text(value: dict[str, Any], _: str) -> Part:
    return LanguageModelTextPart(_string(value, "value"))


def _thinking(value: dict[str, Any], _: str) -> Part:
    text, block, metadata = value["value"], value.get("id"), value.get("metadata")
    if not isinstance(text, str):
        text = [piece for piece in text if isinstance(piece, str)]
    return LanguageModelThinkingPart(
        text,
        block if isinstance(block, str) else UNSET,
        metadata if isinstance(metadata, dict) else UNSET,
    )


def _data(value: dict[str, Any], _: str) -> Part:
    return LanguageModelDataPart(_bytes(value["data"]), _string(value, "mimeType"))


def _bytes(data: Any) -> bytes:
    """Return the bytes in base64, in a list of numbers, or in the JSON form of a JavaScript typed array."""
    if isinstance(data, str):
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise ValueError(f"data is not base64: {error}") from error
    if isinstance(data, dict):
        buffer = data.get("data", data.get("buffer"))
        data = [data[key] for key in sorted(data, key=int)] if buffer is None else buffer
    if not isinstance(data, list):
        raise TypeError("data is neither base64 nor a list of bytes")
    return bytes(data)


def _call(value: dict[str, Any], _: str) -> Part:
    arguments = value.get("input") or {}
    if isinstance(arguments, str):  # some providers send its JSON
        arguments = tool_input(arguments).value
    if not isinstance(arguments, dict):
        raise TypeError("input is not an object")
    return LanguageModelToolCallPart(_string(value, "callId"), _string(value, "name"), arguments)


def _result(value: dict[str, Any], path: str) -> Part:
    content = value.get("content")
    parts = content if isinstance(content, list) else [] if content is None else [content]
    results = [_result_content(part, f"{path}.content[{place}]") for place, part in enumerate(parts)]
    return LanguageModelToolResultPart(_string(value, "callId"), results, bool(value.get("isError")))


def _result_content(value: Any, path: str) -> Part | Any:
    """Return the content of a result: text, data, rendered trees; any other value unchanged."""
    return value if isinstance(value, dict) and _kind(value) in ("call", "result") else part_of(value, path)


_READERS = {
    "text": _text,
    "thinking": _thinking,
    "tsx": lambda value, _: LanguageModelPromptTsxPart(value.get("value")),
    "data": _data,
    "call": _call,
    "result": _result,
}
