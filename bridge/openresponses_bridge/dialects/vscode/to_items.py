"""Converts VS Code's messages to input items.

A message becomes as many items as it has kinds of content: what was collected is flushed at each tool call,
result and piece of reasoning, so that the order is kept. A tool's answer is never dropped, even if it is
empty, because the next request would be refused for a call without an answer (field case 45).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import UNSET, UnsetType

from openresponses_bridge.decoder import (
    LanguageModelDataPart,
    LanguageModelPromptTsxPart,
    LanguageModelTextPart,
    LanguageModelThinkingPart,
    LanguageModelToolCallPart,
    LanguageModelToolResultPart,
)
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.vscode import types as vs
from openresponses_bridge.dialects.vscode.inbound import compaction_of, marker_of, phase_of, thinking_of
from openresponses_bridge.dialects.vscode.media import content_of, output_of
from openresponses_bridge.dialects.vscode.thinking import ThinkingCollector
from openresponses_bridge.dialects.vscode.types import arguments_of, call_id_of
from openresponses_bridge.protocol.content import InputPart, InputTextContent, OutputTextParam
from openresponses_bridge.protocol.input_items import (
    FunctionCallOutputParam,
    FunctionCallParam,
    InputItem,
    MessageParam,
)
from openresponses_bridge.protocol.items import ItemStatus, MessagePhase, MessageRole

_ROLE_NAMES: dict[vs.Role, MessageRole] = {
    vs.Role.USER: "user",
    vs.Role.ASSISTANT: "assistant",
    vs.Role.SYSTEM: "system",
}


class ItemBuilder:
    """Collects input items. `markers` has the stateful markers: (model, marker, number of items before
    it)."""

    def __init__(self, diagnostics: Diagnostics, prefix: str) -> None:
        self.items: list[InputItem] = []
        self.markers: list[tuple[str, str, int]] = []
        self._diagnostics = diagnostics
        self._prefix = prefix
        self._role = vs.Role.USER
        self._content: list[InputPart] = []
        self._phase: MessagePhase | None = None
        self._thinking = ThinkingCollector(diagnostics)

    def add(self, message: vs.ChatMessage) -> None:
        """Add one message."""
        self._role = message.role
        self._phase = None
        self._thinking.any = False
        if message.name:
            self._diagnostics.loss("message.name", "the protocol has no names in messages")
        for part in message.content:
            _TAKERS.get(type(part), ItemBuilder._read_unknown)(self, part)
        self._flush()

    def _read_text(self, part: LanguageModelTextPart) -> None:
        self._content.append(InputTextContent(part.value))

    def _read_data(self, part: LanguageModelDataPart) -> None:
        _MARKED.get(part.mime_type, ItemBuilder._read_content)(self, part)

    def _read_thinking(self, part: LanguageModelThinkingPart) -> None:
        if self._content:
            self._flush()
        self.items += self._thinking.feed(part)

    def _read_call(self, part: LanguageModelToolCallPart) -> None:
        self._flush()
        call_id = call_id_of(part.call_id, self._prefix)
        self.items.append(FunctionCallParam(call_id, part.name, arguments_of(part)))

    def _read_result(self, part: LanguageModelToolResultPart) -> None:
        self._flush()
        status: ItemStatus | UnsetType = "incomplete" if part.is_error else UNSET
        call_id = call_id_of(part.call_id, self._prefix)
        self.items.append(FunctionCallOutputParam(call_id, output_of(part.content), status=status))

    def _read_unknown(self, value: Any) -> None:
        self._diagnostics.loss("message.content", f"no part of a message: {type(value).__name__}")

    def _read_content(self, part: LanguageModelDataPart) -> None:
        self._content.append(content_of(part))

    def _skip(self, part: LanguageModelDataPart) -> None:
        """Skip a part that only VS Code needs."""

    def _read_marker(self, part: LanguageModelDataPart) -> None:
        marker = marker_of(part.data)
        if marker is not None:
            self._flush()
            self.markers.append((*marker, len(self.items)))

    def _read_thinking_data(self, part: LanguageModelDataPart) -> None:
        # if there are thinking parts, the data repeats them
        block, text, encrypted = thinking_of(part.data)
        self._flush()
        self.items += self._thinking.feed_whole(block, "" if self._thinking.any else text, encrypted)

    def _read_compaction(self, part: LanguageModelDataPart) -> None:
        compaction = compaction_of(part.data)
        if compaction is None:
            self._diagnostics.loss(vs.CONTEXT_MANAGEMENT, "has no compacted history")
            return
        self._flush()
        self.items.append(compaction)

    def _read_phase(self, part: LanguageModelDataPart) -> None:
        self._phase = phase_of(part.data)

    def _flush(self) -> None:
        self.items += self._thinking.flush()
        content, self._content = self._content, []
        texts = [part.text for part in content if isinstance(part, InputTextContent)]
        if len(texts) < len(content) or "".join(texts).strip():
            self.items += _MESSAGES[self._role is vs.Role.ASSISTANT](self, content, texts)

    def _other_message(self, content: list[InputPart], texts: list[str]) -> list[InputItem]:
        content_or_text = "".join(texts) if len(texts) == len(content) else content
        return [MessageParam(_ROLE_NAMES[self._role], content_or_text)]

    def _assistant_message(self, content: list[InputPart], texts: list[str]) -> list[InputItem]:
        # an assistant's message has only text; its other content becomes the user's
        items: list[InputItem] = []
        text = "".join(texts)
        if text.strip():
            phase = self._phase or UNSET
            items.append(MessageParam("assistant", [OutputTextParam(text)], phase=phase))
        shown: list[InputPart] = [part for part in content if not isinstance(part, InputTextContent)]
        if shown:
            self._diagnostics.repair("message.content", "an assistant's image or file, sent as the user's")
            items.append(MessageParam("user", shown))
        return items


_TAKERS: Final[dict[type[Any], Callable[[ItemBuilder, Any], None]]] = {
    LanguageModelTextPart: ItemBuilder._read_text,
    LanguageModelDataPart: ItemBuilder._read_data,
    LanguageModelThinkingPart: ItemBuilder._read_thinking,
    LanguageModelToolCallPart: ItemBuilder._read_call,
    LanguageModelToolResultPart: ItemBuilder._read_result,
    LanguageModelPromptTsxPart: ItemBuilder._read_unknown,
}


_MARKED: Final[dict[str, Callable[[ItemBuilder, LanguageModelDataPart], None]]] = {
    vs.CACHE_CONTROL: ItemBuilder._skip,
    vs.USAGE: ItemBuilder._skip,
    vs.STATEFUL_MARKER: ItemBuilder._read_marker,
    vs.THINKING: ItemBuilder._read_thinking_data,
    vs.CONTEXT_MANAGEMENT: ItemBuilder._read_compaction,
    vs.PHASE_DATA: ItemBuilder._read_phase,
}


_MESSAGES: dict[bool, Callable[[ItemBuilder, list[InputPart], list[str]], list[InputItem]]] = {
    True: ItemBuilder._assistant_message,
    False: ItemBuilder._other_message,
}
