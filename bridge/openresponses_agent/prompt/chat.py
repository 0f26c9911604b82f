"""Converts raw messages to messages of Chat Completions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from openresponses_agent.prompt.raw import (
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
    source_of,
    text_of,
    url_of,
)
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import Fields, invalid

_THINKING: Final = ("reasoning_content", "reasoning", "reasoning_text")
CARRIER: Final = "cache_control"


def capi_to_raw_messages(messages: Iterable[Mapping[str, Any]]) -> list[ChatMessage]:
    """Convert the messages of a body to raw ones; content that has no part of its own is opaque. The older
    `function_call` and role `function` are read as a call and its result, joined by their order.

    Raises InvalidRequestError (`invalid_value`) with the place of what is wrong: `messages[0].role`.
    """
    reader = _ChatReader()
    return [reader.message(fields) for fields in objects_of(messages, "messages")]


def objects_of(values: Iterable[Any], param: str) -> Iterable[Fields]:
    """Yield a list's objects with their places. Raises InvalidRequestError for anything else."""
    for index, value in enumerate(values):
        if not isinstance(value, Mapping):
            raise invalid(f"{param}[{index}]", "expected an object")
        yield Fields(value, f"{param}[{index}]")


class _ChatReader:
    def __init__(self) -> None:
        self._legacy: dict[str, list[str]] = {}  # function's name → ids that were made for its calls
        self._count = 0

    def message(self, message: Fields) -> ChatMessage:
        role = message.need("role", str)
        read = _ROLES.get(role)
        if read is None:
            raise invalid(message.at("role"), f"{role[:64]!r} is not one of {', '.join(_ROLES)}")
        return read(self, message)

    def _system(self, message: Fields) -> ChatMessage:
        return self._plain(message, "system")

    def _user(self, message: Fields) -> ChatMessage:
        return self._plain(message, "user")

    def _plain(self, message: Fields, role: ChatRole) -> ChatMessage:
        return ChatMessage(role=role, content=_content(message), name=message.get("name", str) or None)

    def _assistant(self, message: Fields) -> ChatMessage:
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
            function_call = _function(function)
            self._legacy.setdefault(function_call.name, []).append(f"call_{self._count}")
            calls.append(ChatMessageToolCall(id=f"call_{self._count}", function=function_call))
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
    content = message.either("content", str, list)
    if not isinstance(content, list):
        return content or ""
    parts: list[ContentPart] = []
    for part in message.each("content"):
        parts.append(_PARTS.get(part.need("type", str), _opaque)(part))
        parts += breakpoint_of(part)
    return content_of(parts)


def breakpoint_of(part: Fields) -> list[CacheBreakpointPart]:
    """Return the breakpoint of a part, if it has one."""
    mark = part.get(CARRIER, dict)
    return [] if mark is None else [CacheBreakpointPart(Fields(mark, part.at(CARRIER)).get("ttl", str))]


def bare(part: Fields) -> dict[str, Any]:
    """Return the part without its breakpoint."""
    return {name: value for name, value in part.whole().items() if name != CARRIER}


def _text(part: Fields) -> ContentPart:
    return TextPart(part.need("text", str))


def _refusal(part: Fields) -> ContentPart:
    return TextPart(part.need("refusal", str))


def _image(part: Fields) -> ContentPart:
    image_url = part.either("image_url", dict, str)
    if isinstance(image_url, str):  # some clients send the address instead of OpenAI's object
        return ImagePart(source_of(image_url))
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
_ROLES: Final[dict[str, Callable[[_ChatReader, Fields], ChatMessage]]] = {
    "system": _ChatReader._system,
    "developer": _ChatReader._system,
    "user": _ChatReader._user,
    "assistant": _ChatReader._assistant,
    "tool": _ChatReader._tool,
    "function": _ChatReader._function_result,
}


ChatPart = dict[str, Any]

_SCOPES: Final = ("chat", "any")
_DETAILS: Final = {"original": "high"}  # Chat knows auto, low and high
_ELSEWHERE: Final = "(attached below)"


def raw_messages_to_capi(
    messages: Iterable[ChatMessage],
    *,
    cache_control: bool = False,
    reasoning_field: str | None = None,
    diagnostics: Diagnostics | None = None,
) -> list[dict[str, Any]]:
    """Convert messages to those of a Chat Completions body (Copilot's CAPI is one), as JSON objects.

    Content is a string if it is only text. `cache_control` marks breakpoints as OpenRouter and others read
    them; `reasoning_field` is the field in which the server wants thinking back, such as `reasoning_content`.
    Images of results follow them in a user's message, since a tool's message can't have them.
    """
    return _ChatWriter(
        cache_control, reasoning_field, Diagnostics() if diagnostics is None else diagnostics
    ).messages(messages)


class _ChatWriter:
    def __init__(self, cache_control: bool, reasoning_field: str | None, diagnostics: Diagnostics) -> None:
        self._cache_control = cache_control
        self._reasoning_field = reasoning_field
        self._diagnostics = diagnostics
        self._attached: list[ChatPart] = []
        self._made: list[dict[str, Any]] = []

    def messages(self, messages: Iterable[ChatMessage]) -> list[dict[str, Any]]:
        for message in messages:
            if message.role != "tool":
                self._attach()
            _WRITERS[message.role](self, message)
        self._attach()
        return self._made

    def _plain(self, message: ChatMessage) -> None:
        entry = {"role": message.role, "content": self._content(message.content)}
        self._made.append(entry | ({"name": message.name} if message.name else {}))

    def _assistant(self, message: ChatMessage) -> None:
        entry: dict[str, Any] = {"role": "assistant", "content": self._content(message.content)}
        thinking = [part for part in parts_of(message.content) if isinstance(part, ThinkingPart)]
        thought = "\n\n".join(part.thinking for part in thinking if part.thinking)
        if self._reasoning_field is not None and thought:
            entry[self._reasoning_field] = thought
        elif thinking:
            self._diagnostics.loss("thinking", "can't be expressed")
        if message.tool_calls:
            entry["content"] = entry["content"] or None
            entry["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.function.name, "arguments": call.function.arguments},
                }
                for call in message.tool_calls
            ]
        self._made.append(entry)

    def _result(self, message: ChatMessage) -> None:
        content = self._content(message.content)
        if isinstance(content, list) and any(part["type"] != "text" for part in content):
            label = f"Attached to the result of tool call {message.tool_call_id}:"
            self._attached.append({"type": "text", "text": label})
            self._attached += [part for part in content if part["type"] != "text"]
            content = text_of(message.content) or _ELSEWHERE
            self._diagnostics.loss("tool.content", "images moved to a user message")
        entry = {"role": "tool", "content": content, "tool_call_id": message.tool_call_id}
        self._made.append(entry | ({"name": message.name} if message.name else {}))

    def _attach(self) -> None:
        if self._attached:
            self._made.append({"role": "user", "content": self._attached})
            self._attached = []

    def _content(self, content: Content) -> str | list[ChatPart]:
        if isinstance(content, str):
            return content
        parts: list[ChatPart] = []
        for part in content:
            if isinstance(part, CacheBreakpointPart):
                self._mark(parts, part)
            elif (chat := self._part(part)) is not None:
                parts.append(chat)
        if all(part.keys() == {"type", "text"} for part in parts):
            return "\n\n".join(part["text"] for part in parts)
        return parts

    def _mark(self, parts: list[ChatPart], part: CacheBreakpointPart) -> None:
        if self._cache_control and parts:
            parts[-1] = {**parts[-1], "cache_control": mark_of(part)}
        else:
            self._diagnostics.ignored("cache_breakpoint", "not sent")

    def _part(self, part: ContentPart) -> ChatPart | None:
        if isinstance(part, TextPart):
            return {"type": "text", "text": part.text}
        if isinstance(part, ImagePart):
            detail = {"detail": _DETAILS.get(part.detail, part.detail)} if part.detail else {}
            return {"type": "image_url", "image_url": {"url": url_of(part.source)} | detail}
        if isinstance(part, OpaquePart):
            if part.scope in _SCOPES and isinstance(part.value, dict) and "type" in part.value:
                return part.value
            self._diagnostics.loss("content.opaque", "can't be expressed")
        return None  # thinking has a field of its own


def mark_of(part: CacheBreakpointPart) -> dict[str, Any]:
    """Return the `cache_control` of a breakpoint."""
    return {"type": "ephemeral"} | ({"ttl": part.ttl} if part.ttl else {})


_WRITERS: Final[dict[str, Callable[[_ChatWriter, ChatMessage], None]]] = {
    "system": _ChatWriter._plain,
    "user": _ChatWriter._plain,
    "assistant": _ChatWriter._assistant,
    "tool": _ChatWriter._result,
}
