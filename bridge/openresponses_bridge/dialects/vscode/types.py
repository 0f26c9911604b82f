"""A chat request as VS Code makes it: `LanguageModelChatMessage`s, tools and options.

Parts are those of `openresponses_bridge.decoder.parts`. On the wire a request is one JSON object
`{model, messages: [{role, content, name?}], tools?, toolMode?, modelOptions?, modelConfiguration?,
includeEncryptedThinking?, store?}`; `JSON.stringify` of VS Code's own messages says `_content` for `content`.
"""

from __future__ import annotations

import json
from enum import IntEnum
from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from openresponses_bridge.decoder import CALL_ID_PREFIX, LanguageModelToolCallPart, Part, strip_call_id
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.ids import accepted_call_id, digest


class Role(IntEnum):
    """LanguageModelChatMessageRole; System is a proposed member that exists at run time."""

    USER = 1
    ASSISTANT = 2
    SYSTEM = 3


class ToolMode(IntEnum):
    """LanguageModelChatToolMode."""

    AUTO = 1
    REQUIRED = 2


class ChatMessage(Struct, frozen=True):
    """LanguageModelChatMessage. `content` has parts, and unknown values unchanged."""

    role: Role
    content: list[Part | Any]
    name: str | UnsetType = UNSET


class ChatTool(Struct, frozen=True, rename="camel"):
    """LanguageModelChatTool; `input_schema` is JSON Schema."""

    name: str
    description: str
    input_schema: dict[str, Any] | UnsetType = UNSET


class ChatRequest(Struct, frozen=True, rename="camel"):
    """A request to a provider: the messages, and ProvideLanguageModelChatResponseOptions.

    `model_options` are those of the calling extension; `model_configuration` are the user's settings for the
    model, by the names of its `configurationSchema`. `include_encrypted_thinking` asks for reasoning that its
    provider can read again. `store` is ours: whether the response is stored, so that a stateful marker can
    name it; if it is unset, the server decides.
    """

    model: str
    messages: list[ChatMessage]
    tools: list[ChatTool] = field(default_factory=list)
    tool_mode: ToolMode = ToolMode.AUTO
    model_options: dict[str, Any] = field(default_factory=dict)
    model_configuration: dict[str, Any] | UnsetType = UNSET
    include_encrypted_thinking: bool | UnsetType = UNSET
    store: bool | UnsetType = UNSET


# Media types by which Copilot marks data parts that are not content
CACHE_CONTROL = "cache_control"
STATEFUL_MARKER = "stateful_marker"
THINKING = "thinking"
CONTEXT_MANAGEMENT = "context_management"
USAGE = "usage"
PHASE_DATA = "phase_data"

# Metadata of thinking parts
ENCRYPTED = "encrypted_content"
SUMMARY_PART_DONE = "vscode_reasoning_summary_part_done"
REASONING_DONE = "vscode_reasoning_done"


def call_id_of(raw_id: str, prefix: str = CALL_ID_PREFIX) -> str:
    """Return the protocol's id of a call that VS Code knows as `raw_id`: our prefix is removed, and a long id
    is shortened in the same way for a call and its result."""
    stripped = strip_call_id(raw_id, prefix) or raw_id
    return accepted_call_id(stripped) if stripped else f"call_{digest(stripped)}"


def arguments_of(call: LanguageModelToolCallPart) -> str:
    """Return the input of a call as JSON. Raises WireError for input that is nested too deeply."""
    try:
        return json.dumps(call.input, ensure_ascii=False, separators=(",", ":"))
    except RecursionError as error:
        raise WireError(WireError.INVALID_JSON, "JSON is nested too deeply") from error
