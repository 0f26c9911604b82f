"""VS Code's language-model parts: its classes as structs, under its own names and field names.

On the wire a part is one JSON object: the class name under `type`, the fields as VS Code spells them, and
`$mid`, the number that the extension host puts on the parts that it marshals (text 21, thinking 22,
prompt-tsx 23, data 24; the two tool parts have none). Bytes are base64. So
`{"type":"LanguageModelTextPart","value":"Hi","$mid":21}` has everything that a client needs to call the
constructor. `$mid` is optional in parts that are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

TEXT_MIME = "text/plain"
JSON_MIME = "text/x-json"
"""The media type of the extension host's `LanguageModelDataPart.json` if none is given."""


class LanguageModelTextPart(Struct, frozen=True, gc=False, tag=True, tag_field="type"):
    """Text; any number of pieces."""

    type: ClassVar[Literal["LanguageModelTextPart"]] = "LanguageModelTextPart"
    value: str
    mid: int = field(default=21, name="$mid")


class LanguageModelToolCallPart(Struct, frozen=True, tag=True, tag_field="type", rename="camel"):
    """A complete tool call: `input` is its arguments, parsed."""

    type: ClassVar[Literal["LanguageModelToolCallPart"]] = "LanguageModelToolCallPart"
    call_id: str
    name: str
    input: dict[str, Any]


class LanguageModelPromptTsxPart(Struct, frozen=True, tag=True, tag_field="type"):
    """A rendered prompt-tsx tree, in tool results only."""

    type: ClassVar[Literal["LanguageModelPromptTsxPart"]] = "LanguageModelPromptTsxPart"
    value: Any
    mid: int = field(default=23, name="$mid")


class LanguageModelDataPart(Struct, frozen=True, tag=True, tag_field="type", rename="camel"):
    """Bytes of a media type; in JSON, base64. `data` comes first, as in VS Code's constructor."""

    type: ClassVar[Literal["LanguageModelDataPart"]] = "LanguageModelDataPart"
    data: bytes
    mime_type: str
    mid: int = field(default=24, name="$mid")

    @classmethod
    def image(cls, data: bytes, mime_type: str) -> LanguageModelDataPart:
        """Return a part with an image's bytes."""
        return cls(data, mime_type)

    @classmethod
    def json(cls, value: Any, mime_type: str = JSON_MIME) -> LanguageModelDataPart:
        """Return a part with a JSON value, indented by tabs like VS Code's own."""
        return cls(json.dumps(value, indent="\t", ensure_ascii=False).encode(), mime_type)

    @classmethod
    def text(cls, value: str, mime_type: str = TEXT_MIME) -> LanguageModelDataPart:
        """Return a part with text as UTF-8."""
        return cls(value.encode(), mime_type)


class LanguageModelThinkingPart(Struct, frozen=True, tag=True, tag_field="type"):
    """Reasoning; any number of pieces. Pieces of one block share `id`."""

    type: ClassVar[Literal["LanguageModelThinkingPart"]] = "LanguageModelThinkingPart"
    value: str | list[str]
    id: str | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    mid: int = field(default=22, name="$mid")


class LanguageModelToolResultPart(Struct, frozen=True, tag=True, tag_field="type", rename="camel"):
    """A tool's answer. `content` has text, data and prompt-tsx parts, and any other values, as in VS Code."""

    type: ClassVar[Literal["LanguageModelToolResultPart"]] = "LanguageModelToolResultPart"
    call_id: str
    content: list[Any]
    is_error: bool = False


Part = (
    LanguageModelTextPart
    | LanguageModelToolCallPart
    | LanguageModelToolResultPart
    | LanguageModelDataPart
    | LanguageModelThinkingPart
    | LanguageModelPromptTsxPart
)

_encoder = msgspec.json.Encoder()


def encode_part(part: Part) -> bytes:
    """Encode one part as one line of JSON, without the line end."""
    return _encoder.encode(part)


def encode_parts(parts: Iterable[Part]) -> bytes:
    """Encode parts as JSON lines, each with its line end."""
    return _encoder.encode_lines(list(parts))  # msgspec keeps the iterator of anything but a list
