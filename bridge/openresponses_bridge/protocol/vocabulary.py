"""Tables: the struct for each `type`, the objects that each field may have, and their zero values.

`lenient` walks these tables, and the codec builds its decoders from them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, get_args

from openresponses_bridge.protocol import content, events, input_items, items, request, response, tools, usage
from openresponses_bridge.protocol.fields import Field, fields_of, is_struct
from openresponses_bridge.protocol.unknown import (
    Unknown,
    UnknownAnnotation,
    UnknownEvent,
    UnknownFormat,
    UnknownItem,
    UnknownPart,
    UnknownTool,
    UnknownToolChoice,
)


class Slot(NamedTuple):
    """The structs that a field may have, by `type`."""

    structs: dict[str, type[Any]]
    unknown: type[Unknown]
    infer: Callable[[dict[str, Any]], str | None] | None = None
    typed: bool = False
    """True if each object must have its type, so that inferring it is a repair."""


def by_tag(union: Any) -> dict[str, type[Any]]:
    """Return the members of a union of tagged structs, by tag."""
    return {str(member.__struct_config__.tag): member for member in get_args(union)}


def infer_input_type(value: dict[str, Any]) -> str | None:
    """Return the type of an input item that was sent without one, as real clients do."""
    for key, kind in _INPUT_SIGNS:
        if key in value:
            return kind
    return None


_INPUT_SIGNS = (
    ("role", "message"),
    ("output", "function_call_output"),
    ("arguments", "function_call"),
    ("encrypted_content", "reasoning"),
    ("id", "item_reference"),
)


def infer_item_type(value: dict[str, Any]) -> str | None:
    """Return the type of an output item that was sent without one."""
    if "call_id" in value and "name" in value:
        return "function_call"
    return "message" if "role" in value else None


def infer_tool_type(value: dict[str, Any]) -> str | None:
    """Return the type of a tool without one: it is a function (the specification's example of allowed_tools
    omits it too)."""
    return "function" if "name" in value else None


EVENTS = Slot(by_tag(events.KnownEvent), UnknownEvent)
ITEMS = Slot(by_tag(items.KnownItem), UnknownItem, infer_item_type, typed=True)
PARTS = Slot(by_tag(content.KnownContentPart), UnknownPart)
ANNOTATIONS = Slot(by_tag(content.KnownAnnotation), UnknownAnnotation)
TOOLS = Slot(by_tag(tools.KnownTool), UnknownTool, infer_tool_type, typed=True)
TOOL_CHOICES = Slot(by_tag(tools.KnownToolChoice), UnknownToolChoice, infer_tool_type)
FORMATS = Slot(by_tag(response.KnownFormat), UnknownFormat)
INPUT_ITEMS = Slot(by_tag(input_items.KnownInputItem), UnknownItem, infer_input_type)
INPUT_PARTS = Slot(by_tag(content.KnownInputPart), UnknownPart)
TOOL_OUTPUT_PARTS = Slot(by_tag(items.ToolOutputPart), UnknownPart)
TOOL_PARAMS = Slot(by_tag(tools.KnownToolParam), UnknownTool, infer_tool_type)
FORMAT_PARAMS = Slot(by_tag(request.KnownFormatParam), UnknownFormat)

_REQUEST_CHILDREN = {"input": INPUT_ITEMS, "tools": TOOL_PARAMS, "tool_choice": TOOL_CHOICES}

# struct → field → the slot of its value, or of each element of it
CHILDREN: dict[type[Any], dict[str, Slot]] = {
    content.OutputTextContent: {"annotations": ANNOTATIONS},
    content.OutputTextParam: {"annotations": ANNOTATIONS},
    items.Message: {"content": PARTS},
    items.ReasoningItem: {"content": PARTS, "summary": PARTS},
    items.FunctionCallOutput: {"output": TOOL_OUTPUT_PARTS},
    tools.NamespaceTool: {"tools": TOOL_PARAMS},
    tools.AllowedToolChoice: {"tools": TOOL_CHOICES},
    response.TextField: {"format": FORMATS},
    response.Response: {"output": ITEMS, "tools": TOOLS, "tool_choice": TOOL_CHOICES},
    response.CompactResource: {"output": ITEMS},
    input_items.MessageParam: {"content": INPUT_PARTS},
    input_items.FunctionCallOutputParam: {"output": TOOL_OUTPUT_PARTS},
    input_items.CustomToolCallOutputParam: {"output": TOOL_OUTPUT_PARTS},
    input_items.ToolSearchOutputParam: {"tools": TOOL_PARAMS},
    input_items.AdditionalTools: {"tools": TOOL_PARAMS},
    request.TextParam: {"format": FORMAT_PARAMS},
    request.CreateResponse: _REQUEST_CHILDREN,
    request.CompactRequest: {"input": INPUT_ITEMS},
    request.CreateConversation: {"items": INPUT_ITEMS},
    request.CreateConversationItems: {"items": INPUT_ITEMS},
    request.UpdateConversation: {},
    request.SearchRequest: {},
    request.ResponseCreateMessage: _REQUEST_CHILDREN,
    events.OutputItemAdded: {"item": ITEMS},
    events.OutputItemDone: {"item": ITEMS},
    events.ContentPartAdded: {"part": PARTS},
    events.ContentPartDone: {"part": PARTS},
    events.ReasoningSummaryPartAdded: {"part": PARTS},
    events.ReasoningSummaryPartDone: {"part": PARTS},
    events.OutputTextAnnotationAdded: {"annotation": ANNOTATIONS},
}

# (struct, field) of a list of parts → the type of part for plain text in it
TEXT_PARTS: dict[tuple[type[Any], str], str] = {
    (items.Message, "content"): "output_text",
    (items.ReasoningItem, "content"): "reasoning_text",
    (items.ReasoningItem, "summary"): "summary_text",
}

# fields with JSON as text, which some servers send as an object
JSON_TEXTS: frozenset[tuple[type[Any], str]] = frozenset(
    {
        (items.FunctionCall, "arguments"),
        (events.FunctionCallArgumentsDelta, "delta"),
        (events.FunctionCallArgumentsDone, "arguments"),
    }
)

# other names that some servers use for fields → the field
RENAMED: dict[type[Any], dict[str, str]] = {
    usage.Usage: {
        "prompt_tokens": "input_tokens",
        "completion_tokens": "output_tokens",
        "prompt_tokens_details": "input_tokens_details",
        "completion_tokens_details": "output_tokens_details",
    }
}

# (struct, field) → zero value, if it is not that of the field's type. The type of a part can't be guessed.
_ZEROS: dict[tuple[type[Any], str], Any] = {
    **{(response.Response, name): value for name, value in response.RESPONSE_DEFAULTS.items()},
    **{(struct, "part"): UnknownPart({}) for struct, slots in CHILDREN.items() if "part" in slots},
    **{(struct, "sequence_number"): -1 for struct in EVENTS.structs.values()},
    (response.Response, "status"): "in_progress",
    (items.Message, "role"): "assistant",
    (content.InputImageContent, "detail"): "auto",
}


def zero(struct: type[Any], field: Field) -> Any:
    """Return the zero value of a required field, which is the term in the schema's prose."""
    key = (struct, field.name)
    if key in _ZEROS:
        return _ZEROS[key]
    kind = field.zero
    if is_struct(kind):
        return kind(**{each.name: zero(kind, each) for each in fields_of(kind) if each.required})
    return kind()
