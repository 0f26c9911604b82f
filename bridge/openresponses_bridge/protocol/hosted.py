"""Typed views of the items of tools that a server runs itself (OpenAI's hosted tools).

In a response they stay `UnknownItem`s, because their fields grow with every release; these structs have the
fields that clients use. `view(item)` gives the struct or None.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from openresponses_bridge.protocol.codec import with_whole_characters
from openresponses_bridge.protocol.unknown import UnknownItem

# the tool's name in its events → their verbs
_PROGRESS: Final[dict[str, tuple[str, ...]]] = {
    "response.apply_patch_call_operation_diff": ("delta", "done"),
    "response.audio": ("delta", "done"),
    "response.audio.transcript": ("delta", "done"),
    "response.code_interpreter_call": ("in_progress", "interpreting", "completed"),
    "response.code_interpreter_call_code": ("delta", "done"),
    "response.compaction": ("compacting",),
    "response.file_search_call": ("in_progress", "searching", "completed"),
    "response.image_generation_call": ("in_progress", "generating", "partial_image", "completed"),
    "response.mcp_call": ("in_progress", "completed", "failed"),
    "response.mcp_call_arguments": ("delta", "done"),
    "response.mcp_list_tools": ("in_progress", "completed", "failed"),
    "response.shell_call_command": ("added", "delta", "done"),
    "response.shell_call_output_content": ("delta", "done"),
    "response.web_search_call": ("in_progress", "searching", "completed"),
}
PROGRESS_EVENTS: Final = frozenset(f"{tool}.{verb}" for tool, verbs in _PROGRESS.items() for verb in verbs)
"""OpenAI's events of the progress of what a server does by itself: hosted tools, compaction."""


class HostedCall(Struct, frozen=True):
    """The fields that every item of a hosted tool has."""

    type: str
    id: str
    status: str | UnsetType = UNSET


class WebSearchCall(HostedCall, frozen=True):
    """`action` is search, open_page or find_in_page with its own fields."""

    action: dict[str, Any] | UnsetType | None = UNSET


class FileSearchCall(HostedCall, frozen=True):
    """`results` is there only when `include` asks for it."""

    queries: list[str] = []
    results: list[dict[str, Any]] | UnsetType | None = UNSET


class CodeInterpreterCall(HostedCall, frozen=True):
    """`outputs` are logs and images; they are there only when `include` asks for them."""

    code: str | UnsetType | None = UNSET
    container_id: str | UnsetType = UNSET
    outputs: list[dict[str, Any]] | UnsetType | None = UNSET


class ImageGenerationCall(HostedCall, frozen=True):
    """`result` is the image as base64."""

    result: str | UnsetType | None = UNSET
    output_format: str | UnsetType = UNSET


class McpCall(HostedCall, frozen=True):
    """A call of a tool on a remote MCP server."""

    server_label: str = ""
    name: str = ""
    arguments: str = ""
    output: str | UnsetType | None = UNSET
    error: Any = None


class McpListTools(HostedCall, frozen=True):
    """The tools a remote MCP server offers."""

    server_label: str = ""
    tools: list[dict[str, Any]] = []
    error: Any = None


class McpApprovalRequest(HostedCall, frozen=True):
    """A remote MCP call that waits for the user's approval."""

    server_label: str = ""
    name: str = ""
    arguments: str = ""


class ComputerCall(HostedCall, frozen=True):
    """An action on a computer that the client controls."""

    call_id: str = ""
    action: dict[str, Any] | UnsetType | None = UNSET


HOSTED_ITEMS: dict[str, type[HostedCall]] = {
    "web_search_call": WebSearchCall,
    "file_search_call": FileSearchCall,
    "code_interpreter_call": CodeInterpreterCall,
    "image_generation_call": ImageGenerationCall,
    "mcp_call": McpCall,
    "mcp_list_tools": McpListTools,
    "mcp_approval_request": McpApprovalRequest,
    "computer_call": ComputerCall,
}


# Built here, since threads that build one at the same time end the process.
_decoders: Final = [msgspec.json.Decoder(struct) for struct in HOSTED_ITEMS.values()]


def view(item: UnknownItem) -> HostedCall | None:
    """The typed view of a hosted tool's item, with any slug before its type; None for other items."""
    struct = HOSTED_ITEMS.get(item.type.removeprefix("openai:"))
    if struct is None:
        return None
    try:
        return msgspec.convert(with_whole_characters(item.raw), type=struct)
    except msgspec.ValidationError:
        return None
