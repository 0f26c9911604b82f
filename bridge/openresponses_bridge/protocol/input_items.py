"""Input items, which a request's `input` consists of. The first are the published schema's, the rest are
OpenAI's that real clients send. `…Param` is the request side of an output item.

Null means "not given" wherever the schema allows it. Items may come without `type`: `lenient` infers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, UnsetType

from openresponses_bridge.protocol.content import InputPart, ReasoningTextContent, SummaryTextContent
from openresponses_bridge.protocol.items import ItemStatus, MessagePhase, MessageRole, ToolOutputPart
from openresponses_bridge.protocol.tools import ToolParam
from openresponses_bridge.protocol.unknown import Extensible, UnknownItem

MAX_TEXT = 10_485_760  # characters; the schema's limit of texts in requests
CallId = Annotated[str, Meta(min_length=1)]
LongText = Annotated[str, Meta(max_length=MAX_TEXT)]


class ItemReference(Extensible, frozen=True, tag="item_reference", tag_field="type"):
    """Schema ItemReferenceParam: an item of an earlier response, by id."""

    type: ClassVar[Literal["item_reference"]] = "item_reference"
    id: str


class MessageParam(Extensible, frozen=True, tag="message", tag_field="type"):
    """Schemas User-, System-, Developer- and AssistantMessageItemParam in one."""

    type: ClassVar[Literal["message"]] = "message"
    role: MessageRole
    content: LongText | list[InputPart]
    id: str | UnsetType | None = UNSET
    status: str | UnsetType | None = UNSET
    phase: MessagePhase | UnsetType | None = UNSET


class ReasoningParam(Extensible, frozen=True, tag="reasoning", tag_field="type"):
    """Schema ReasoningItemParam. It says `content` must be null, but outputs carry it: accepted."""

    type: ClassVar[Literal["reasoning"]] = "reasoning"
    summary: list[SummaryTextContent]
    id: str | UnsetType | None = UNSET
    content: list[ReasoningTextContent] | UnsetType | None = UNSET
    encrypted_content: str | UnsetType | None = UNSET
    status: str | UnsetType | None = UNSET


class CompactionParam(Extensible, frozen=True, tag="compaction", tag_field="type"):
    """Schema CompactionSummaryItemParam."""

    type: ClassVar[Literal["compaction"]] = "compaction"
    encrypted_content: LongText
    id: str | UnsetType | None = UNSET
    created_by: str | UnsetType | None = UNSET


class FunctionCallParam(Extensible, frozen=True, tag="function_call", tag_field="type"):
    """Schema FunctionCallItemParam. Names of other servers' tools are accepted unchanged."""

    type: ClassVar[Literal["function_call"]] = "function_call"
    call_id: CallId
    name: Annotated[str, Meta(min_length=1)]
    arguments: str
    id: str | UnsetType | None = UNSET
    status: ItemStatus | UnsetType | None = UNSET
    namespace: str | UnsetType | None = UNSET


class FunctionCallOutputParam(Extensible, frozen=True, tag="function_call_output", tag_field="type"):
    """Schema FunctionCallOutputItemParam: a tool's answer."""

    type: ClassVar[Literal["function_call_output"]] = "function_call_output"
    call_id: CallId
    output: LongText | list[ToolOutputPart]
    id: str | UnsetType | None = UNSET
    status: ItemStatus | UnsetType | None = UNSET


class CustomToolCallParam(Extensible, frozen=True, tag="custom_tool_call", tag_field="type"):
    """OpenAI: a free-text call sent back."""

    type: ClassVar[Literal["custom_tool_call"]] = "custom_tool_call"
    call_id: CallId
    name: str
    input: str
    id: str | UnsetType | None = UNSET
    status: str | UnsetType | None = UNSET
    namespace: str | UnsetType | None = UNSET


class CustomToolCallOutputParam(Extensible, frozen=True, tag="custom_tool_call_output", tag_field="type"):
    """OpenAI: the answer to a free-text call; Codex sends a list of input_text parts."""

    type: ClassVar[Literal["custom_tool_call_output"]] = "custom_tool_call_output"
    call_id: CallId
    output: LongText | list[ToolOutputPart]
    id: str | UnsetType | None = UNSET
    status: str | UnsetType | None = UNSET
    name: str | UnsetType | None = UNSET


class ShellCallParam(Extensible, frozen=True, tag="shell_call", tag_field="type"):
    """OpenAI: a shell call sent back."""

    type: ClassVar[Literal["shell_call"]] = "shell_call"
    call_id: CallId
    action: dict[str, Any]
    id: str | UnsetType | None = UNSET
    status: str | UnsetType | None = UNSET


class ShellCallOutputParam(Extensible, frozen=True, tag="shell_call_output", tag_field="type"):
    """OpenAI: what a shell printed, a list of {stdout, stderr, outcome}."""

    type: ClassVar[Literal["shell_call_output"]] = "shell_call_output"
    call_id: CallId
    output: str | list[dict[str, Any]]
    id: str | UnsetType | None = UNSET
    status: str | UnsetType | None = UNSET


class LocalShellCallParam(Extensible, frozen=True, tag="local_shell_call", tag_field="type"):
    """OpenAI: a local shell call sent back."""

    type: ClassVar[Literal["local_shell_call"]] = "local_shell_call"
    call_id: CallId
    action: dict[str, Any]
    id: str | UnsetType | None = UNSET
    status: str | UnsetType | None = UNSET


class LocalShellCallOutputParam(Extensible, frozen=True, tag="local_shell_call_output", tag_field="type"):
    """OpenAI: what the client's shell printed. OpenAI names the call by `id`, clients by `call_id`."""

    type: ClassVar[Literal["local_shell_call_output"]] = "local_shell_call_output"
    output: str
    call_id: CallId | UnsetType | None = UNSET
    id: str | UnsetType | None = UNSET
    status: str | UnsetType | None = UNSET


class ApplyPatchCallParam(Extensible, frozen=True, tag="apply_patch_call", tag_field="type"):
    """OpenAI: a file edit sent back."""

    type: ClassVar[Literal["apply_patch_call"]] = "apply_patch_call"
    call_id: CallId
    operation: dict[str, Any]
    id: str | UnsetType | None = UNSET
    status: str | UnsetType | None = UNSET


class ApplyPatchCallOutputParam(Extensible, frozen=True, tag="apply_patch_call_output", tag_field="type"):
    """OpenAI: whether a file edit worked."""

    type: ClassVar[Literal["apply_patch_call_output"]] = "apply_patch_call_output"
    call_id: CallId
    output: str | UnsetType | None = UNSET
    id: str | UnsetType | None = UNSET
    status: str | UnsetType | None = UNSET


class ToolSearchCallParam(Extensible, frozen=True, tag="tool_search_call", tag_field="type"):
    """OpenAI: a tool search sent back."""

    type: ClassVar[Literal["tool_search_call"]] = "tool_search_call"
    arguments: Any
    call_id: str | UnsetType | None = UNSET
    execution: str | UnsetType = UNSET
    id: str | UnsetType | None = UNSET
    status: str | UnsetType | None = UNSET


class ToolSearchOutputParam(Extensible, frozen=True, tag="tool_search_output", tag_field="type"):
    """OpenAI: the tools a search found, from then on callable."""

    type: ClassVar[Literal["tool_search_output"]] = "tool_search_output"
    tools: list[ToolParam]
    call_id: str | UnsetType | None = UNSET
    execution: str | UnsetType = UNSET
    id: str | UnsetType | None = UNSET
    status: str | UnsetType | None = UNSET


class AdditionalTools(Extensible, frozen=True, tag="additional_tools", tag_field="type"):
    """OpenAI: tools declared inside the input, callable from there on (Codex with newer models)."""

    type: ClassVar[Literal["additional_tools"]] = "additional_tools"
    tools: list[ToolParam]
    role: str | UnsetType | None = UNSET
    id: str | UnsetType | None = UNSET


KnownInputItem = (
    ItemReference
    | MessageParam
    | ReasoningParam
    | CompactionParam
    | FunctionCallParam
    | FunctionCallOutputParam
    | CustomToolCallParam
    | CustomToolCallOutputParam
    | ShellCallParam
    | ShellCallOutputParam
    | LocalShellCallParam
    | LocalShellCallOutputParam
    | ApplyPatchCallParam
    | ApplyPatchCallOutputParam
    | ToolSearchCallParam
    | ToolSearchOutputParam
    | AdditionalTools
)
if TYPE_CHECKING:
    InputItem = KnownInputItem | UnknownItem
else:
    InputItem = KnownInputItem


def items_of(request_input: str | Sequence[InputItem] | None) -> list[InputItem]:
    """Return a request's `input` as items; a text becomes a user message."""
    if isinstance(request_input, str):
        return [MessageParam("user", request_input)]
    return list(request_input or ())
