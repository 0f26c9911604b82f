"""Converts raw messages to input items of the Responses API and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET

from openresponses_agent.prompt.raw import (
    CacheBreakpointPart,
    ChatMessage,
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
    url_of,
)
from openresponses_agent.prompt.thinking import item_of, part_of_item
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.presentation import CallView, OutputView, call_view, output_view, pair
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import AnyItem, invalid
from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol import input_items as ii
from openresponses_bridge.protocol.unknown import UnknownItem, UnknownPart
from openresponses_bridge.seal import Sealer

_SCOPES: Final = ("responses", "any")


def raw_messages_to_input_items(
    messages: Iterable[ChatMessage],
    *,
    sealer: Sealer | None = None,
    diagnostics: Diagnostics | None = None,
) -> list[ii.InputItem]:
    """Convert messages to a request's `input`. `sealer` seals Anthropic's signatures; without one they are
    lost. Cache breakpoints can't be expressed."""
    notes = Diagnostics() if diagnostics is None else diagnostics
    return [item for message in messages for item in _items(message, sealer, notes)]


def _items(message: ChatMessage, sealer: Sealer | None, diagnostics: Diagnostics) -> Iterable[ii.InputItem]:
    if message.role == "tool":
        output = _content(message.content, ct.InputTextContent, diagnostics)
        status: Any = "incomplete" if message.is_error else UNSET  # the mark of a failure in the dialects
        yield ii.FunctionCallOutputParam(message.tool_call_id or "", output, status=status)
        return
    pending: list[ContentPart] = []
    text = ct.OutputTextParam if message.role == "assistant" else ct.InputTextContent
    for part in parts_of(message.content):
        if isinstance(part, ThinkingPart):
            item: ii.InputItem = item_of(part, sealer, diagnostics)
        elif isinstance(part, OpaquePart) and part.scope == "item" and isinstance(part.value, dict):
            item = UnknownItem(part.value)
        else:
            pending.append(part)
            continue
        yield from _message(message.role, pending, text, diagnostics)
        pending = []
        yield item
    yield from _message(message.role, pending, text, diagnostics)
    for call in message.tool_calls or ():
        yield ii.FunctionCallParam(call.id, call.function.name, call.function.arguments)


def _message(
    role: Any, parts: list[ContentPart], text: type[Any], diagnostics: Diagnostics
) -> Iterable[ii.MessageParam]:
    content = _content(content_of(parts), text, diagnostics)
    if content:
        yield ii.MessageParam(role, content)


def _content(content: Content, text: type[Any], diagnostics: Diagnostics) -> str | list[Any]:
    if isinstance(content, str):
        return content
    parts: list[Any] = []
    for part in content:
        if isinstance(part, TextPart):
            parts.append(text(part.text))
        elif isinstance(part, ImagePart):
            parts.append(ct.InputImageParam(url_of(part.source), part.detail or "auto"))
        elif isinstance(part, OpaquePart) and part.scope in _SCOPES and isinstance(part.value, dict):
            parts.append(UnknownPart(part.value))
        elif isinstance(part, CacheBreakpointPart):
            diagnostics.ignored("cache_breakpoint", "can't be expressed")
        else:
            diagnostics.loss(f"content.{part.type}", "can't be expressed")
    return parts


def input_items_to_raw_messages(
    items: Sequence[AnyItem],
    *,
    diagnostics: Diagnostics | None = None,
    identities: ToolIdentityMap | None = None,
) -> list[ChatMessage]:
    """Convert items of an input or an output to messages. Consecutive texts, thoughts and calls of an
    assistant are one message, followed by the results of its calls. Calls of all kinds are functions.

    Raises InvalidRequestError for a call without its output, an output without its call, and a reference.
    """
    reader = _InputReader(
        items,
        Diagnostics() if diagnostics is None else diagnostics,
        ToolIdentityMap() if identities is None else identities,
    )
    return reader.messages()


class _InputReader:
    def __init__(
        self, items: Sequence[AnyItem], diagnostics: Diagnostics, identities: ToolIdentityMap
    ) -> None:
        self._items = items
        self._diagnostics = diagnostics
        self._views = [call_view(item, identities) or output_view(item, identities) for item in items]
        self._answers = pair(self._views, lambda index: f"input[{index}]")
        self._made: list[ChatMessage] = []
        self._parts: list[ContentPart] = []
        self._calls: list[tuple[CallView, int]] = []

    def messages(self) -> list[ChatMessage]:
        for index, item in enumerate(self._items):
            view = self._views[index]
            if isinstance(view, CallView):
                self._call(view, self._answers[index])
            elif isinstance(view, OutputView):
                self._flush()
            else:
                _KINDS.get(item.type, _InputReader._other)(self, item, index)
        self._flush()
        return self._made

    def _call(self, view: CallView, answer: int | None) -> None:
        if answer is None:
            self._diagnostics.loss("function_call", "was cut off and never run, left out")
        else:
            self._calls.append((view, answer))

    def _flush(self) -> None:
        """End the assistant's turn: append its message, then the results of its calls."""
        if not self._parts and not self._calls:
            return
        calls = [ChatMessageToolCall.of(view.call_id, view.name, view.arguments) for view, _ in self._calls]
        content = content_of(self._parts)
        self._made.append(ChatMessage(role="assistant", content=content, tool_calls=calls or None))
        answered, self._parts, self._calls = self._calls, [], []
        for view, answer in answered:
            output = self._views[answer]
            assert isinstance(output, OutputView)
            self._made.append(
                ChatMessage(
                    role="tool",
                    content=self._read(output.output),
                    tool_call_id=view.call_id,
                    name=view.name,
                    is_error=output.failed,
                )
            )

    def _message(self, item: Any, _index: int) -> None:
        content = self._read(item.content)
        if item.role == "assistant":
            self._parts += parts_of(content)
            return
        self._flush()
        role: ChatRole = "user" if item.role == "user" else "system"
        if content:
            self._made.append(ChatMessage(role=role, content=content))

    def _reasoning(self, item: Any, _index: int) -> None:
        self._parts.append(part_of_item(item))

    def _reference(self, item: Any, index: int) -> None:
        raise invalid(f"input[{index}]", f"the item {item.id[:64]!r} is not known here")

    def _other(self, item: Any, _index: int) -> None:
        self._diagnostics.loss(f"item.{item.type[:64]}", "can't be expressed")

    def _read(self, content: str | list[Any]) -> Content:
        if isinstance(content, str):
            return content
        return content_of(map(_part, content))


def _part(part: Any) -> ContentPart:
    text = getattr(part, "text", getattr(part, "refusal", None))
    if isinstance(text, str):
        return TextPart(text)
    url = getattr(part, "image_url", None)
    if isinstance(url, str):
        return ImagePart(source_of(url), None if part.detail in (UNSET, None, "auto") else part.detail)
    plain = part.raw if isinstance(part, UnknownPart) else msgspec.to_builtins(part)
    return OpaquePart(plain, scope="responses")


_KINDS: Final[dict[str, Callable[[_InputReader, Any, int], None]]] = {
    "message": _InputReader._message,
    "reasoning": _InputReader._reasoning,
    "item_reference": _InputReader._reference,
}
