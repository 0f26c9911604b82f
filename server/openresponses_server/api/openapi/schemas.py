"""The schemas of the document, out of the structs that requests are decoded into and answers encoded from.

What the structs can't say is added from the same tables that the lenient decoder walks: every place that
takes one of several objects takes extensions too, and input messages may come without `type`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from openresponses_bridge.dialects.vscode import LanguageModelErrorBody
from openresponses_bridge.protocol import vocabulary
from openresponses_bridge.protocol.events import KnownEvent
from openresponses_bridge.protocol.request import (
    CompactRequest,
    CreateResponse,
    Native,
    ResponseCreateMessage,
    WebSocketError,
)
from openresponses_bridge.protocol.response import OURS, CompactResource, ErrorBody, Response
from openresponses_server.api.openapi import resources

Schema = dict[str, Any]
BEYOND: Final = f"{OURS}beyond"
NATIVE: Final = f"{OURS}native"
STREAM_EVENT: Final = "StreamEvent"
_TYPELESS: Final = "MessageWithoutType"
_REFERENCE: Final = "#/components/schemas/"

ROOTS: Final[tuple[type[Any], ...]] = (
    CreateResponse,
    Response,
    CompactRequest,
    CompactResource,
    ErrorBody,
    ResponseCreateMessage,
    WebSocketError,
    resources.Model,
    resources.ModelList,
    resources.DeletedResponse,
    resources.InputItemList,
    resources.InputTokens,
    resources.ListedResponses,
    resources.MeasuredContext,
    resources.Status,
    resources.ChatCompletionRequest,
    resources.ChatCompletion,
    resources.MessagesRequest,
    resources.AnthropicMessage,
    resources.AnthropicError,
    resources.CountTokensRequest,
    resources.MessageTokens,
    resources.UsageReport,
    resources.ChatRequest,
    resources.LanguageModels,
    resources.TokensRequest,
    resources.Tokens,
    LanguageModelErrorBody,
)


def reference(name: str) -> Schema:
    """A reference to the schema of this name."""
    return {"$ref": _REFERENCE + name}


def schemas() -> dict[str, Schema]:
    """Every schema, by the name of its struct; `StreamEvent` is any event of a stream."""
    (*_, event), found = msgspec.json.schema_components(
        [*ROOTS, KnownEvent], ref_template=_REFERENCE + "{name}"
    )
    for name in ("CreateResponse", "CompactRequest", "ResponseCreateMessage"):
        for internal in (BEYOND, NATIVE):
            found[name]["properties"].pop(internal, None)
    found.pop(Native.__name__, None)
    found[STREAM_EVENT] = {"description": "Any event of a stream.", **event}
    found[_TYPELESS] = _without_type(found["MessageParam"])
    _admit_extensions(found[STREAM_EVENT], vocabulary.EVENTS)
    for struct, fields in vocabulary.CHILDREN.items():
        properties = found.get(struct.__name__, {}).get("properties", {})
        for name, slot in fields.items():
            if name in properties:
                _admit_extensions(properties[name], slot)
    return found


def _without_type(message: Schema) -> Schema:
    """A message as several clients send it: recognised by its role."""
    kept = {name: schema for name, schema in message["properties"].items() if name != "type"}
    required = [name for name in message["required"] if name != "type"]
    return {
        "type": "object",
        "description": "A message whose type is not said.",
        "properties": kept,
        "required": required,
        "not": {"required": ["type"]},
    }


def _admit_extensions(schema: Schema, slot: vocabulary.Slot) -> None:
    """Let objects of other types stand where the slot's stand; they pass through as they are."""
    for union in _unions(schema):
        mapping = union.pop("discriminator")["mapping"]
        kind = {"type": "string", "not": {"enum": sorted(mapping)}}
        union["anyOf"].append(
            {
                "type": "object",
                "description": "An extension (`slug:name`) or what another server defines.",
                "required": ["type"],
                "properties": {"type": kind},
            }
        )
        if slot is vocabulary.INPUT_ITEMS:
            union["anyOf"].append(reference(_TYPELESS))


def _unions(schema: Any) -> Iterator[Schema]:
    """The unions within a schema whose members are distinguished by `type`."""
    if isinstance(schema, dict):
        if "discriminator" in schema:
            yield schema
        for inner in list(schema.values()):
            yield from _unions(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _unions(inner)
