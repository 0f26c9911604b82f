"""Raw messages → messages of Chat Completions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.prompt.images import url_of
from openresponses_bridge.prompt.raw import (
    CacheBreakpointPart,
    ChatMessage,
    Content,
    ContentPart,
    ImagePart,
    OpaquePart,
    TextPart,
    ThinkingPart,
    parts_of,
    text_of,
)

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
    """Messages of a Chat Completions body (Copilot's CAPI is one), as JSON objects.

    Content is a string where it is text alone. `cache_control` marks breakpoints as OpenRouter and others
    read them; `reasoning_field` is the name under which the server wants thinking back, such as
    `reasoning_content`. Images of results follow them in a user's message, since a tool's can't hold them.
    """
    return _Writer(
        cache_control, reasoning_field, Diagnostics() if diagnostics is None else diagnostics
    ).messages(messages)


class _Writer:
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

    def _say(self, message: ChatMessage) -> None:
        made = {"role": message.role, "content": self._content(message.content)}
        self._made.append(made | ({"name": message.name} if message.name else {}))

    def _answer(self, message: ChatMessage) -> None:
        made: dict[str, Any] = {"role": "assistant", "content": self._content(message.content)}
        thinking = [part for part in parts_of(message.content) if isinstance(part, ThinkingPart)]
        thought = "\n\n".join(part.thinking for part in thinking if part.thinking)
        if self._reasoning_field is not None and thought:
            made[self._reasoning_field] = thought
        elif thinking:
            self._diagnostics.loss("thinking", "can't be expressed")
        if message.tool_calls:
            made["content"] = made["content"] or None
            made["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.function.name, "arguments": call.function.arguments},
                }
                for call in message.tool_calls
            ]
        self._made.append(made)

    def _result(self, message: ChatMessage) -> None:
        content = self._content(message.content)
        if isinstance(content, list) and any(part["type"] != "text" for part in content):
            label = f"Attached to the result of tool call {message.tool_call_id}:"
            self._attached.append({"type": "text", "text": label})
            self._attached += [part for part in content if part["type"] != "text"]
            content = text_of(message.content) or _ELSEWHERE
            self._diagnostics.loss("tool.content", "images moved to a user message")
        made = {"role": "tool", "content": content, "tool_call_id": message.tool_call_id}
        self._made.append(made | ({"name": message.name} if message.name else {}))

    def _attach(self) -> None:
        if self._attached:
            self._made.append({"role": "user", "content": self._attached})
            self._attached = []

    # ── content ────────────────────────────────────────────────────────────────────────────────────
    def _content(self, content: Content) -> str | list[ChatPart]:
        if isinstance(content, str):
            return content
        made: list[ChatPart] = []
        for part in content:
            if isinstance(part, CacheBreakpointPart):
                self._mark(made, part)
            elif (chat := self._part(part)) is not None:
                made.append(chat)
        if all(part.keys() == {"type", "text"} for part in made):
            return "\n\n".join(part["text"] for part in made)
        return made

    def _mark(self, made: list[ChatPart], part: CacheBreakpointPart) -> None:
        if self._cache_control and made:
            made[-1] = {**made[-1], "cache_control": mark_of(part)}
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
        return None  # thinking stands beside the content


def mark_of(part: CacheBreakpointPart) -> dict[str, Any]:
    """The `cache_control` of a breakpoint."""
    return {"type": "ephemeral"} | ({"ttl": part.ttl} if part.ttl else {})


_WRITERS: Final[dict[str, Callable[[_Writer, ChatMessage], None]]] = {
    "system": _Writer._say,
    "user": _Writer._say,
    "assistant": _Writer._answer,
    "tool": _Writer._result,
}
