"""Tools and tool choices: as a request declares them (`…Param`) and as a response echoes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from openresponses_bridge.protocol.unknown import UnknownTool, UnknownToolChoice

ToolName = Annotated[str, Meta(min_length=1, max_length=128, pattern="^[a-zA-Z0-9_-]+$")]
ToolChoiceValue = Literal["none", "auto", "required"]


class FunctionToolParam(Struct, frozen=True, tag="function", tag_field="type"):
    """Schema FunctionToolParam. `parameters` is JSON Schema."""

    type: ClassVar[Literal["function"]] = "function"
    name: ToolName
    description: str | UnsetType | None = UNSET
    parameters: dict[str, Any] | UnsetType | None = UNSET
    strict: bool | UnsetType | None = UNSET
    defer_loading: bool | UnsetType = UNSET


class FunctionTool(Struct, frozen=True, tag="function", tag_field="type"):
    """Schema FunctionTool, the echo of a declared function; every field is required."""

    type: ClassVar[Literal["function"]] = "function"
    name: str
    description: str | None
    parameters: dict[str, Any] | None
    strict: bool | None


class CustomTool(Struct, frozen=True, tag="custom", tag_field="type"):
    """OpenAI: a tool with free-text input; `format` is text or a grammar (lark, regex)."""

    type: ClassVar[Literal["custom"]] = "custom"
    name: str
    description: str | UnsetType | None = UNSET
    format: dict[str, Any] | UnsetType = UNSET


class NamespaceTool(Struct, frozen=True, tag="namespace", tag_field="type"):
    """OpenAI: tools under one name; their calls come back with `namespace` set."""

    type: ClassVar[Literal["namespace"]] = "namespace"
    name: str
    tools: list[FunctionToolParam | CustomTool]
    description: str | UnsetType | None = UNSET


class ShellTool(Struct, frozen=True, tag="shell", tag_field="type"):
    """OpenAI: shell commands; `environment` says where they run."""

    type: ClassVar[Literal["shell"]] = "shell"
    environment: dict[str, Any] | UnsetType | None = UNSET


class LocalShellTool(Struct, frozen=True, tag="local_shell", tag_field="type"):
    """OpenAI: commands run by the client."""

    type: ClassVar[Literal["local_shell"]] = "local_shell"


class ApplyPatchTool(Struct, frozen=True, tag="apply_patch", tag_field="type"):
    """OpenAI: file edits made by the client."""

    type: ClassVar[Literal["apply_patch"]] = "apply_patch"


class ToolSearchTool(Struct, frozen=True, tag="tool_search", tag_field="type"):
    """OpenAI: search over deferred tools; `execution` client means the client answers."""

    type: ClassVar[Literal["tool_search"]] = "tool_search"
    execution: str | UnsetType = UNSET
    description: str | UnsetType | None = UNSET
    parameters: dict[str, Any] | UnsetType | None = UNSET


_OpenAITool = CustomTool | NamespaceTool | ShellTool | LocalShellTool | ApplyPatchTool | ToolSearchTool
KnownToolParam = FunctionToolParam | _OpenAITool
KnownTool = FunctionTool | _OpenAITool


class FunctionToolChoice(Struct, frozen=True, tag="function", tag_field="type"):
    """Schema FunctionToolChoice and SpecificFunctionParam: this function must be called."""

    type: ClassVar[Literal["function"]] = "function"
    name: str | UnsetType = UNSET


class AllowedToolChoice(Struct, frozen=True, tag="allowed_tools", tag_field="type"):
    """Schema AllowedToolChoice and AllowedToolsParam: only these may be called."""

    type: ClassVar[Literal["allowed_tools"]] = "allowed_tools"
    tools: Annotated[list[FunctionToolChoice], Meta(min_length=1, max_length=128)]
    mode: ToolChoiceValue = "auto"


KnownToolChoice = FunctionToolChoice | AllowedToolChoice

if TYPE_CHECKING:
    ToolParam = KnownToolParam | UnknownTool
    Tool = KnownTool | UnknownTool
    ToolChoice = ToolChoiceValue | KnownToolChoice | UnknownToolChoice
else:
    ToolParam = KnownToolParam
    Tool = KnownTool
    ToolChoice = ToolChoiceValue | KnownToolChoice
