"""Messages of Chat Completions → raw messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from openresponses_bridge.dialects.base import Fields, invalid
from openresponses_bridge.prompt.images import source_of
from openresponses_bridge.prompt.raw import (
    CacheBreakpointPart,
    ChatMessage,
    ChatMessageFunction,
    ChatMessageToolCall,
    ChatRole,
    Content,
    ContentPart,
    ImagePart,
    OpaquePart,
    TextPart,
    ThinkingPart,
    content_of,
    parts_of,
)

_THINKING: Final = ("reasoning_content", "reasoning", "reasoning_text")
CARRIER: Final = "cache_control"


def capi_to_raw_messages(messages: Iterable[Mapping[str, Any]]) -> list[ChatMessage]:
    """Messages of a body as raw ones; content that has no part of its own is opaque. The older
    `function_call` and role `function` are read as a call and its result, joined by their order.

    Raises InvalidRequestError (`invalid_value`) with the place of what is wrong: `messages[0].role`.
    """
    reader = _Reader()
    return [reader.message(fields) for fields in objects_of(messages, "messages")]


def objects_of(values: Iterable[Any], param: str) -> Iterable[Fields]:
    """Each of a list's objects with its place. Raises InvalidRequestError for anything else."""
    for index, value in enumerate(values):
        if not isinstance(value, Mapping):
            raise invalid(f"{param}[{index}]", "expected an object")
        yield Fields(value, f"{param}[{index}]")


class _Reader:
    def __init__(self) -> None:
        self._legacy: dict[str, list[str]] = {}  # function's name → ids made for its calls
        self._count = 0

    def message(self, message: Fields) -> ChatMessage:
        role = message.need("role", str)
        read = _ROLES.get(role)
        if read is None:
            raise invalid(message.at("role"), f"{role[:64]!r} is not one of {', '.join(_ROLES)}")
        return read(self, message)

    def _instruct(self, message: Fields) -> ChatMessage:
        return self._said(message, "system")

    def _ask(self, message: Fields) -> ChatMessage:
        return self._said(message, "user")

    def _said(self, message: Fields, role: ChatRole) -> ChatMessage:
        return ChatMessage(role=role, content=_content(message), name=message.get("name", str) or None)

    def _answer(self, message: Fields) -> ChatMessage:
        texts = [message.get(name, str) for name in _THINKING]
        thought = next(filter(None, texts), None)
        parts: list[ContentPart] = [ThinkingPart(thought)] if thought else []
        parts += parts_of(_content(message))
        refusal = message.get("refusal", str)
        if refusal:
            parts.append(TextPart(refusal))
        calls = [_call(call) for call in message.each("tool_calls")]
        function = message.maybe_inner("function_call")
        if function is not None:
            self._count += 1
            made = _function(function)
            self._legacy.setdefault(made.name, []).append(f"call_{self._count}")
            calls.append(ChatMessageToolCall(id=f"call_{self._count}", function=made))
        return ChatMessage(role="assistant", content=content_of(parts), tool_calls=calls or None)

    def _tool(self, message: Fields) -> ChatMessage:
        return ChatMessage(
            role="tool",
            content=_content(message),
            tool_call_id=message.need("tool_call_id", str),
            name=message.get("name", str) or None,
        )

    def _function_result(self, message: Fields) -> ChatMessage:
        name = message.need("name", str)
        waiting = self._legacy.get(name)
        if not waiting:
            raise invalid(message.at("name"), f"no call of {name[:64]!r} before it")
        return ChatMessage(role="tool", content=_content(message), tool_call_id=waiting.pop(0), name=name)


def _call(call: Fields) -> ChatMessageToolCall:
    return ChatMessageToolCall(id=call.need("id", str), function=_function(call.inner("function")))


def _function(function: Fields) -> ChatMessageFunction:
    return ChatMessageFunction(function.need("name", str), function.need("arguments", str))


def _content(message: Fields) -> Content:
    given = message.either("content", str, list)
    if not isinstance(given, list):
        return given or ""
    parts: list[ContentPart] = []
    for part in message.each("content"):
        parts.append(_PARTS.get(part.need("type", str), _opaque)(part))
        parts += breakpoint_of(part)
    return content_of(parts)


def breakpoint_of(part: Fields) -> list[CacheBreakpointPart]:
    """The breakpoint that a part carries, if it does."""
    mark = part.get(CARRIER, dict)
    return [] if mark is None else [CacheBreakpointPart(Fields(mark, part.at(CARRIER)).get("ttl", str))]


def bare(part: Fields) -> dict[str, Any]:
    """The part without its breakpoint."""
    return {name: value for name, value in part.whole().items() if name != CARRIER}


def _text(part: Fields) -> ContentPart:
    return TextPart(part.need("text", str))


def _refusal(part: Fields) -> ContentPart:
    return TextPart(part.need("refusal", str))


def _image(part: Fields) -> ContentPart:
    given = part.either("image_url", dict, str)
    if isinstance(given, str):  # some clients put the address where OpenAI has an object
        return ImagePart(source_of(given))
    image = part.inner("image_url")
    detail: Any = image.one_of("detail", ("low", "high", "auto", "original"))
    return ImagePart(source_of(image.need("url", str)), detail)


def _opaque(part: Fields) -> ContentPart:
    return OpaquePart(bare(part), scope="chat")


_PARTS: Final[dict[str, Callable[[Fields], ContentPart]]] = {
    "text": _text,
    "refusal": _refusal,
    "image_url": _image,
}
_ROLES: Final[dict[str, Callable[[_Reader, Fields], ChatMessage]]] = {
    "system": _Reader._instruct,
    "developer": _Reader._instruct,
    "user": _Reader._ask,
    "assistant": _Reader._answer,
    "tool": _Reader._tool,
    "function": _Reader._function_result,
}
