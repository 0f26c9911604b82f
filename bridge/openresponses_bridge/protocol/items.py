"""Output items, which a response consists of. Names are the published schema's.

`status` goes from in_progress to completed or incomplete and then stays (specification, "Items"). The second
half are OpenAI's items that real clients send and expect; they are sent on the `openai` wire only (law E10).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, UnsetType

from openresponses_bridge.protocol.content import (
    ContentPart,
    InputFileContent,
    InputImageParam,
    InputTextContent,
    InputVideoContent,
)
from openresponses_bridge.protocol.unknown import Extensible, Extra, UnknownItem

ItemStatus = Literal["in_progress", "completed", "incomplete"]
MessageRole = Literal["user", "assistant", "system", "developer"]
MessagePhase = Literal["commentary", "final_answer"]
ToolOutputPart = InputTextContent | InputImageParam | InputFileContent | InputVideoContent


class Message(Extensible, frozen=True, tag="message", tag_field="type"):
    """Schema Message."""

    type: ClassVar[Literal["message"]] = "message"
    id: str
    status: ItemStatus
    role: MessageRole
    content: list[ContentPart]
    phase: MessagePhase | UnsetType = UNSET


class FunctionCall(Extensible, frozen=True, tag="function_call", tag_field="type"):
    """Schema FunctionCall. `arguments` is JSON text; `namespace` is OpenAI's."""

    type: ClassVar[Literal["function_call"]] = "function_call"
    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus
    namespace: str | UnsetType = UNSET


class FunctionCallOutput(Extensible, frozen=True, tag="function_call_output", tag_field="type"):
    """Schema FunctionCallOutput: a tool's answer to the call with this `call_id`."""

    type: ClassVar[Literal["function_call_output"]] = "function_call_output"
    id: str
    call_id: str
    output: str | list[ToolOutputPart]
    status: ItemStatus


class ReasoningItem(Extensible, frozen=True, tag="reasoning", tag_field="type"):
    """Schema ReasoningBody: raw `content`, its `summary`, opaque `encrypted_content`.

    The schema does not name a status; the prose says every item has one, so ours carry it.
    """

    type: ClassVar[Literal["reasoning"]] = "reasoning"
    id: str
    summary: list[ContentPart]
    content: list[ContentPart] | UnsetType = UNSET
    encrypted_content: str | UnsetType = UNSET
    status: ItemStatus | UnsetType = UNSET


class CompactionItem(Extensible, frozen=True, tag="compaction", tag_field="type"):
    """Schema CompactionBody: a condensed history, opaque to the client."""

    type: ClassVar[Literal["compaction"]] = "compaction"
    id: str
    encrypted_content: str
    created_by: str | UnsetType = UNSET


class CustomToolCall(Extensible, frozen=True, tag="custom_tool_call", tag_field="type"):
    """OpenAI: a call whose `input` is free text, not JSON."""

    type: ClassVar[Literal["custom_tool_call"]] = "custom_tool_call"
    id: str
    call_id: str
    name: str
    input: str
    status: ItemStatus | UnsetType = UNSET
    namespace: str | UnsetType = UNSET


class ShellAction(Extensible, frozen=True):
    """OpenAI: commands for a remote shell. `timeout_ms` is milliseconds."""

    commands: list[str]
    timeout_ms: int | UnsetType | None = UNSET
    max_output_length: int | UnsetType | None = UNSET


class ShellCall(Extensible, frozen=True, tag="shell_call", tag_field="type"):
    """OpenAI: a call of the `shell` tool."""

    type: ClassVar[Literal["shell_call"]] = "shell_call"
    id: str
    call_id: str
    action: ShellAction
    status: ItemStatus | UnsetType = UNSET


class LocalShellAction(Extensible, frozen=True):
    """OpenAI: one command for the client's own shell, as argv. `timeout_ms` is milliseconds."""

    command: list[str]
    env: dict[str, str]
    timeout_ms: int | UnsetType | None = UNSET
    working_directory: str | UnsetType | None = UNSET
    user: str | UnsetType | None = UNSET
    type: Literal["exec"] = "exec"


class LocalShellCall(Extensible, frozen=True, tag="local_shell_call", tag_field="type"):
    """OpenAI: a call of the `local_shell` tool."""

    type: ClassVar[Literal["local_shell_call"]] = "local_shell_call"
    id: str
    call_id: str
    action: LocalShellAction
    status: ItemStatus | UnsetType = UNSET


class ApplyPatchOperation(Extensible, frozen=True):
    """OpenAI: one file operation; `type` is create_file, update_file or delete_file."""

    type: str
    path: str
    diff: str | UnsetType = UNSET


class ApplyPatchCall(Extensible, frozen=True, tag="apply_patch_call", tag_field="type"):
    """OpenAI: a call of the `apply_patch` tool."""

    type: ClassVar[Literal["apply_patch_call"]] = "apply_patch_call"
    id: str
    call_id: str
    operation: ApplyPatchOperation
    status: ItemStatus | UnsetType = UNSET


class ToolSearchCall(Extensible, frozen=True, tag="tool_search_call", tag_field="type"):
    """OpenAI: a search over deferred tools; `execution` client means the client answers it."""

    type: ClassVar[Literal["tool_search_call"]] = "tool_search_call"
    id: str
    arguments: Any
    call_id: str | UnsetType | None = UNSET
    execution: str | UnsetType = UNSET
    status: ItemStatus | UnsetType = UNSET


class ToolSearchOutput(Extensible, frozen=True, tag="tool_search_output", tag_field="type"):
    """OpenAI: the tools that a search found."""

    type: ClassVar[Literal["tool_search_output"]] = "tool_search_output"
    id: str
    tools: list[dict[str, Any]]
    call_id: str | UnsetType | None = UNSET
    execution: str | UnsetType = UNSET
    status: ItemStatus | UnsetType = UNSET


KnownItem = (
    Message
    | FunctionCall
    | FunctionCallOutput
    | ReasoningItem
    | CompactionItem
    | CustomToolCall
    | ShellCall
    | LocalShellCall
    | ApplyPatchCall
    | ToolSearchCall
    | ToolSearchOutput
)

if TYPE_CHECKING:
    Item = KnownItem | UnknownItem
else:
    Item = KnownItem


def with_status(item: Item, status: ItemStatus) -> Item:
    """Return the item with this status; an item whose type has none is unchanged."""
    if isinstance(item, UnknownItem):
        return _changed(item, "status", status) if "status" in item.raw else item
    return _changed(item, "status", status) if "status" in item.__struct_fields__ else item


def with_id(item: Item, item_id: str) -> Item:
    """Return the item with this id."""
    return item if item.id == item_id else _changed(item, "id", item_id)


def with_extra(item: Item, extra: Extra) -> Item:
    """Return the item with these unknown fields; an unknown item is unchanged."""
    return item if isinstance(item, UnknownItem) else _changed(item, "extra", extra)


def call_id_of(item: Item) -> str | None:
    """Return the id that joins a call and its output; None if the item has none."""
    call_id = item.raw.get("call_id") if isinstance(item, UnknownItem) else getattr(item, "call_id", None)
    return call_id if isinstance(call_id, str) else None


def with_call_id(item: Item, call_id: str) -> Item:
    """Return the item, a call or an output, with this call_id."""
    return item if call_id_of(item) == call_id else _changed(item, "call_id", call_id)


def _changed(item: Item, field: str, value: object) -> Item:
    if isinstance(item, UnknownItem):
        return UnknownItem({**item.raw, field: value})
    changed: Item = msgspec.structs.replace(item, **{field: value})
    return changed
