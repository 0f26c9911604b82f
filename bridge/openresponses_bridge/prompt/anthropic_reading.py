"""System text and messages of Anthropic's Messages API → raw messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from openresponses_bridge.dialects.base import Fields, invalid
from openresponses_bridge.prompt.chat_reading import bare, breakpoint_of, objects_of
from openresponses_bridge.prompt.raw import (
    Base64Image,
    ChatMessage,
    ChatMessageToolCall,
    ChatRole,
    Content,
    ContentPart,
    ImagePart,
    ImageUrl,
    OpaquePart,
    TextPart,
    content_of,
    parts_of,
)
from openresponses_bridge.prompt.thinking import part_of_block
from openresponses_bridge.protocol.codec import encode


def anthropic_messages_to_raw_messages(
    messages: Iterable[Mapping[str, Any]], system: str | list[Mapping[str, Any]] = ""
) -> list[ChatMessage]:
    """Messages of a body, with its system text as the first one. A `tool_result` is a message of the role
    `tool`, named by its call; `cache_control` is a breakpoint after its part; blocks that have no part of
    their own are opaque.

    Raises InvalidRequestError (`invalid_value`) with the place of what is wrong: `messages[0].content[1]`.
    """
    reader = _Reader()
    reader.system(Fields({"system": system}))
    for message in objects_of(messages, "messages"):
        reader.message(message)
    return reader.made


class _Reader:
    def __init__(self) -> None:
        self.made: list[ChatMessage] = []
        self._names: dict[str, str] = {}  # a call's id → its tool
        self._parts: list[ContentPart] = []
        self._calls: list[ChatMessageToolCall] = []

    def system(self, fields: Fields) -> None:
        content = self._content(fields, "system")
        if content:
            self.made.append(ChatMessage(role="system", content=content))

    def message(self, message: Fields) -> None:
        role: Any = message.one_of("role", ("user", "assistant"))
        if role is None:
            raise invalid(message.at("role"), "is required")
        if isinstance(message.either("content", str, list), list):
            for block in message.each("content"):
                self._block(block, role)
        else:
            self._parts.append(TextPart(message.need("content", str)))
        self._flush(role)

    def _block(self, block: Fields, role: ChatRole) -> None:
        kind = block.need("type", str)
        if kind == "tool_use":
            call_id, name = block.need("id", str), block.need("name", str)
            arguments = encode(block.need("input", dict)).decode()
            self._calls.append(ChatMessageToolCall.of(call_id, name, arguments))
            self._names[call_id] = name
            self._parts += breakpoint_of(block)  # a call has no parts: the cache ends before it
        elif kind == "tool_result":
            self._flush(role)
            self._result(block)
        else:
            self._parts += [_part(block), *breakpoint_of(block)]

    def _result(self, block: Fields) -> None:
        call_id = block.need("tool_use_id", str)
        self.made.append(
            ChatMessage(
                role="tool",
                content=content_of([*parts_of(self._content(block, "content")), *breakpoint_of(block)]),
                tool_call_id=call_id,
                name=self._names.get(call_id),
                is_error=bool(block.get("is_error", bool)),
            )
        )

    def _flush(self, role: ChatRole) -> None:
        parts, self._parts = self._parts, []
        calls, self._calls = self._calls, []
        if parts or calls:
            self.made.append(ChatMessage(role=role, content=content_of(parts), tool_calls=calls or None))

    def _content(self, fields: Fields, name: str) -> Content:
        given = fields.either(name, str, list)
        if not isinstance(given, list):
            return given or ""
        return content_of(
            part for block in fields.each(name) for part in (_part(block), *breakpoint_of(block))
        )


def _part(block: Fields) -> ContentPart:
    return _PARTS.get(block.need("type", str), _opaque)(block)


def _text(block: Fields) -> ContentPart:
    return TextPart(block.need("text", str))


def _image(block: Fields) -> ContentPart:
    source = block.inner("source")
    kind = source.need("type", str)
    if kind == "base64":
        return ImagePart(Base64Image(source.need("media_type", str), source.need("data", str)))
    return ImagePart(ImageUrl(source.need("url", str))) if kind == "url" else _opaque(block)


def _thinking(block: Fields) -> ContentPart:
    block.need("thinking", str)
    block.get("signature", str)
    return part_of_block(block.whole())


def _redacted(block: Fields) -> ContentPart:
    block.need("data", str)
    return part_of_block(block.whole())


def _opaque(block: Fields) -> ContentPart:
    return OpaquePart(bare(block), scope="anthropic")


_PARTS: Final[dict[str, Callable[[Fields], ContentPart]]] = {
    "text": _text,
    "image": _image,
    "thinking": _thinking,
    "redacted_thinking": _redacted,
}
