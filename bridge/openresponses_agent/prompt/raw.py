"""Raw messages: the messages of a prompt before they are converted to a provider's format.

Names and JSON are those of prompt-tsx's `Raw.ChatMessage`: calls are in `tool_calls`, a result is a message
of the role `tool`. Content is a text, or parts of five kinds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final, Literal

from msgspec import Struct

__all__ = [
    "Base64Image",
    "CacheBreakpointPart",
    "ChatMessage",
    "ChatMessageFunction",
    "ChatMessageToolCall",
    "ChatRole",
    "Content",
    "ContentPart",
    "ImageDetail",
    "ImagePart",
    "ImageSource",
    "ImageUrl",
    "OpaquePart",
    "OpaqueScope",
    "TextPart",
    "ThinkingPart",
    "content_of",
    "parts_of",
    "source_of",
    "text_of",
    "url_of",
]

ChatRole = Literal["system", "user", "assistant", "tool"]
ImageDetail = Literal["low", "high", "auto", "original"]
OpaqueScope = Literal["chat", "anthropic", "responses", "item", "any"]


class Base64Image(Struct, frozen=True, tag="base64", tag_field="type"):
    """An image in the prompt. `data` is base64."""

    media_type: str
    data: str


class ImageUrl(Struct, frozen=True, tag="url", tag_field="type"):
    """An image that the provider fetches; nothing here opens the address."""

    url: str


ImageSource = Base64Image | ImageUrl


class TextPart(Struct, frozen=True, tag="text", tag_field="type"):
    """Text."""

    type: ClassVar[Literal["text"]] = "text"
    text: str


class ImagePart(Struct, frozen=True, tag="image", tag_field="type", omit_defaults=True):
    """An image. `detail` is the resolution at which the model looks at it, if the API has that."""

    type: ClassVar[Literal["image"]] = "image"
    source: ImageSource
    detail: ImageDetail | None = None


class OpaquePart(Struct, frozen=True, tag="opaque", tag_field="type", omit_defaults=True):
    """A content part in the form of one API, passed to it unchanged. `scope` names the API; others leave the
    part out. `item` is an item of the Responses API, which is placed beside the message's own. `token_usage`
    is its cost in tokens; 0 means that its JSON is counted."""

    type: ClassVar[Literal["opaque"]] = "opaque"
    value: Any
    token_usage: int = 0
    scope: OpaqueScope = "any"


class CacheBreakpointPart(Struct, frozen=True, tag="cache_breakpoint", tag_field="type", omit_defaults=True):
    """The provider may cache the prompt up to the part before this one, for `ttl`, such as `5m` or `1h`."""

    type: ClassVar[Literal["cache_breakpoint"]] = "cache_breakpoint"
    ttl: str | None = None


class ThinkingPart(Struct, frozen=True, tag="thinking", tag_field="type", omit_defaults=True):
    """A block of the model's reasoning, unchanged: otherwise it is not valid.

    `signature` and `redacted` (the data of a block without text) are Anthropic's, `encrypted_content`, `id`
    and `summary` are those of an item of the Responses API.
    """

    type: ClassVar[Literal["thinking"]] = "thinking"
    thinking: str = ""
    signature: str | None = None
    redacted: str | None = None
    encrypted_content: str | None = None
    id: str | None = None
    summary: list[str] | None = None


ContentPart = TextPart | ImagePart | OpaquePart | CacheBreakpointPart | ThinkingPart
Content = str | list[ContentPart]


class ChatMessageFunction(Struct, frozen=True):
    """The function of a call; `arguments` is the model's JSON text."""

    name: str
    arguments: str


class ChatMessageToolCall(Struct, frozen=True, kw_only=True):
    """A call in an assistant's message."""

    id: str
    type: Literal["function"] = "function"
    function: ChatMessageFunction

    @classmethod
    def of(cls, call_id: str, name: str, arguments: str) -> ChatMessageToolCall:
        """The call of this function."""
        return cls(id=call_id, function=ChatMessageFunction(name, arguments))


class ChatMessage(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A message. `tool_calls` are an assistant's; `tool_call_id`, `name` (the tool's) and `is_error` are a
    result's. `name` may name a user too."""

    role: ChatRole
    content: Content
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[ChatMessageToolCall] | None = None
    is_error: bool = False


def parts_of(content: Content) -> list[ContentPart]:
    """Return content as parts; an empty text has none."""
    if isinstance(content, str):
        return [TextPart(content)] if content else []
    return list(content)


def content_of(parts: Iterable[ContentPart]) -> Content:
    """Return parts as content: a string if there is only text."""
    content = list(parts)
    if not content:
        return ""
    if len(content) == 1 and isinstance(content[0], TextPart):
        return content[0].text
    return content


def text_of(content: Content) -> str:
    """Return the texts of the content, joined as paragraphs."""
    if isinstance(content, str):
        return content
    return "\n\n".join(part.text for part in content if isinstance(part, TextPart))


# The APIs accept an image as a single text: an address or a data URL.

_SCHEME: Final = "data:"
_BASE64: Final = ";base64"


def url_of(source: ImageSource) -> str:
    """Return the address of an image, or its data as a data URL."""
    if isinstance(source, ImageUrl):
        return source.url
    return f"{_SCHEME}{source.media_type}{_BASE64},{source.data}"


def source_of(url: str) -> ImageSource:
    """Return an address or a data URL as a source. A data URL without base64 remains an address."""
    head, comma, data = url.partition(",")
    if comma and head.startswith(_SCHEME) and head.endswith(_BASE64):
        return Base64Image(head[len(_SCHEME) :].partition(";")[0].lower(), data)
    return ImageUrl(url)
