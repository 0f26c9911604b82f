"""Typed views of the items of tools that a server runs itself (OpenAI's hosted tools).

In a response they stay `UnknownItem`s, because their fields grow with every release; these structs have the
fields that clients use. `view(item)` gives the struct or None.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Struct, UnsetType

from openresponses_bridge.protocol.codec import with_whole_characters
from openresponses_bridge.protocol.unknown import OURS, UnknownItem

# the tool's name in its events → the verbs of these events
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
"""OpenAI's events about the progress of what a server does by itself: hosted tools, compaction."""
OUTPUT: Final = f"{OURS}output"
"""The field of an item with what the model was sent, for items that have no field of their own for it."""
_SLUG: Final = "openai:"
_APPROVAL_REQUEST: Final = "mcp_approval_request"


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
    approval_request_id: str | UnsetType | None = UNSET


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
    """Return the typed view of a hosted tool's item, with any slug before its type; None for other items."""
    struct = HOSTED_ITEMS.get(item.type.removeprefix(_SLUG))
    if struct is None:
        return None
    try:
        return msgspec.convert(with_whole_characters(item.raw), type=struct)
    except msgspec.ValidationError:
        return None


def error_text(error: Any) -> str:
    """Return the `error` of a hosted call as text: it may be a text, OpenAI's object with a message, or an
    MCP server's with content. "" if there is none."""
    if isinstance(error, str):
        return error
    if not isinstance(error, dict):
        return ""
    message = error.get("message")
    if isinstance(message, str):
        return message
    content = error.get("content")
    parts = content if isinstance(content, list) else []
    texts = [each["text"] for each in parts if isinstance(each, dict) and isinstance(each.get("text"), str)]
    return "\n".join(texts) or "The call failed."


class HostedWork(NamedTuple):
    """The work of a hosted tool as its item describes it. All of it comes from the server."""

    name: str
    """The name of the tool, or else of the item's type."""
    server_label: str
    """The label of the MCP server; "" for other tools."""
    input: Any
    """What the tool was given: a text, or JSON."""
    status: str
    """The status; "" if the item has none."""
    result: str | None
    error: str | None


def kind_of(item: Any) -> str:
    """Return the type of an item of a hosted tool in OpenAI's spelling; "" for other items."""
    return item.type.removeprefix(_SLUG) if isinstance(item, UnknownItem) else ""


def is_hosted(item: Any) -> bool:
    """Return True if it is an item of a hosted tool: a call, a list of tools, or a request for approval."""
    return kind_of(item) in HOSTED_ITEMS


def asks_approval(item: Any) -> bool:
    """Return True if it is a request for approval."""
    return kind_of(item) == _APPROVAL_REQUEST


def work_of(item: UnknownItem) -> HostedWork | None:
    """Return the work of an item; None for items of other kinds and requests for approval. Fields of other
    types than OpenAI's are left out."""
    kind = kind_of(item)
    if kind not in HOSTED_ITEMS or kind == _APPROVAL_REQUEST:
        return None
    raw = item.raw
    status, label = _text(raw, "status") or "", _text(raw, "server_label") or ""
    error = error_text(raw.get("error")) or None
    output = _text(raw, "output") or _text(raw, OUTPUT)
    if kind == "mcp_call":
        return HostedWork(_text(raw, "name") or kind, label, raw.get("arguments"), status, output, error)
    if kind == "mcp_list_tools":
        tools = raw.get("tools")
        listed = [each for each in tools if isinstance(each, dict)] if isinstance(tools, list) else []
        names = ", ".join(name for each in listed if (name := _text(each, "name")))
        return HostedWork(kind, label, None, status, None if error else names, error)
    if kind == "web_search_call":
        action = raw.get("action")
        query = dict(action) if isinstance(action, dict) else {}
        name = query.pop("type", None)
        sources = _sources(query.pop("sources", None))
        name = name if isinstance(name, str) and name != "search" else "web_search"
        if status == "failed":
            return HostedWork(name, "", query, status, None, output or "The search failed.")
        return HostedWork(name, "", query, status, output or sources, error)
    payload = next((raw[each] for each in ("queries", "code", "action") if raw.get(each) is not None), None)
    return HostedWork(kind.removesuffix("_call"), "", payload, status, output, error)


def _text(raw: dict[str, Any], name: str) -> str | None:
    value = raw.get(name)
    return value if isinstance(value, str) else None


def _sources(sources: Any) -> str | None:
    """Return the addresses of a search, one per line; None if the item does not have them."""
    if not isinstance(sources, list):
        return None
    return "\n".join(url for each in sources if isinstance(each, dict) and (url := _text(each, "url")))
