"""Converts input items to VS Code's messages. Consecutive items of one side share a message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.presentation import pair
from openresponses_bridge.decoder import (
    LanguageModelDataPart,
    LanguageModelThinkingPart,
    LanguageModelToolCallPart,
    LanguageModelToolResultPart,
    Part,
    namespace_call_id,
)
from openresponses_bridge.decoder.tool_calls import tool_input
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import Entry, views_of
from openresponses_bridge.dialects.vscode import types as vs
from openresponses_bridge.dialects.vscode.media import content_parts, text_or_nothing
from openresponses_bridge.dialects.vscode.thinking import parts_of
from openresponses_bridge.protocol import input_items as params
from openresponses_bridge.protocol import items as it
from openresponses_bridge.protocol.unknown import UnknownItem

_ROLES = {
    "user": vs.Role.USER,
    "assistant": vs.Role.ASSISTANT,
    "system": vs.Role.SYSTEM,
    "developer": vs.Role.SYSTEM,
}
# OpenAI's own calls → the name under which they are shown, and the field that is their input
_OWN_CALLS: dict[type[Any], tuple[str, str]] = {
    params.ShellCallParam: ("shell", "action"),
    params.LocalShellCallParam: ("local_shell", "action"),
    params.ApplyPatchCallParam: ("apply_patch", "operation"),
    params.ToolSearchCallParam: ("tool_search", "arguments"),
}


class MessageBuilder:
    """Collects messages. If `system_role` is False, system messages are the user's, since VS Code's stable
    interface has no third role."""

    def __init__(
        self, diagnostics: Diagnostics, identities: ToolIdentityMap, prefix: str, system_role: bool
    ) -> None:
        self.messages: list[vs.ChatMessage] = []
        self._diagnostics = diagnostics
        self._identities = identities
        self._prefix = prefix
        self._system = vs.Role.SYSTEM if system_role else vs.Role.USER

    def system(self, text: str) -> None:
        """Add instructions."""
        self._add(self._system, list(text_or_nothing(text)))

    def build(self, entries: Sequence[Entry]) -> None:
        """Convert the items, in order. Raises InvalidRequestError for a call without its output, or an output
        without its call."""
        answers = pair(views_of(entries, self._identities), lambda index: entries[index].param)
        for index, entry in enumerate(entries):
            if answers.get(index, index) is None:
                self._diagnostics.loss(entry.where, "a call that was cut off and never run, left out")
            else:
                _BUILDERS.get(type(entry.item), MessageBuilder._unknown)(self, entry.item)

    def _add(self, role: vs.Role, parts: list[Part | Any]) -> None:
        if not parts:
            return
        last = self.messages[-1] if self.messages else None
        if last is not None and last.role is role:
            self.messages[-1] = vs.ChatMessage(role, [*last.content, *parts])
        else:
            self.messages.append(vs.ChatMessage(role, parts))

    def _message(self, item: Any) -> None:
        role = _ROLES[item.role]
        content = item.content
        contents = (
            text_or_nothing(content)
            if isinstance(content, str)
            else content_parts(content, self._diagnostics)
        )
        parts: list[Part | Any] = list(contents)
        if item.phase:
            value = {"type": vs.PHASE_DATA, "phase": item.phase}
            parts.append(LanguageModelDataPart.json(value, vs.PHASE_DATA))
        if role is vs.Role.ASSISTANT and self._is_speechless():
            self._add(role, parts)
        elif parts:
            # texts of two messages are kept apart: VS Code joins neither texts nor phases
            shown = self._system if role is vs.Role.SYSTEM else role
            self.messages.append(vs.ChatMessage(shown, parts))

    def _is_speechless(self) -> bool:
        """Return True if the last message has no text yet: reasoning and what follows it are one turn."""
        last = self.messages[-1].content if self.messages else ()
        return all(isinstance(part, LanguageModelThinkingPart) for part in last)

    def _reasoning(self, item: Any) -> None:
        self._add(vs.Role.ASSISTANT, list(parts_of(item)))

    def _call(self, item: Any, name: str, value: dict[str, Any]) -> None:
        call_id = namespace_call_id(item.call_id or item.id or "", self._prefix)
        self._add(vs.Role.ASSISTANT, [LanguageModelToolCallPart(call_id, name, value)])

    def _function_call(self, item: Any) -> None:
        read = tool_input(item.arguments)
        if read.value is None:
            self._diagnostics.loss("function_call.arguments", "are not JSON, shown as {}")
        elif read.repair is not None:
            self._diagnostics.repair("function_call.arguments", read.repair)
        self._call(item, self._identities.upstream_name(item.name, item.namespace or None), read.value or {})

    def _custom_call(self, item: Any) -> None:
        name = self._identities.upstream_name(item.name, item.namespace or None)
        self._call(item, name, {"input": item.input})

    def _own_call(self, item: Any) -> None:
        name, field = _OWN_CALLS[type(item)]
        value = getattr(item, field)
        self._call(item, name, value if isinstance(value, dict) else {"input": value})

    def _result(self, item: Any, parts: list[Any]) -> None:
        call_id = namespace_call_id(item.call_id or item.id or "", self._prefix)
        failed = item.status == "incomplete"
        self._add(vs.Role.USER, [LanguageModelToolResultPart(call_id, parts, failed)])

    def _output(self, item: Any) -> None:
        self._result(item, content_parts(item.output, self._diagnostics))

    def _own_output(self, item: Any) -> None:
        output = getattr(item, "output", None) or getattr(item, "tools", "")
        text = output if isinstance(output, str) else msgspec.json.encode(output).decode()
        self._result(item, list(text_or_nothing(text)))

    def _compaction(self, item: Any) -> None:
        value = {"type": "compaction", "id": item.id or "", "encrypted_content": item.encrypted_content}
        self._add(vs.Role.ASSISTANT, [LanguageModelDataPart.json(value, vs.CONTEXT_MANAGEMENT)])

    def _skip(self, _item: Any) -> None:
        """Skip the tools that the input declares, since the request's tools have them already."""

    def _unknown(self, item: Any) -> None:
        kind = item.type if isinstance(item, UnknownItem) else type(item).type
        self._diagnostics.loss(f"input.{kind[:64]}", "has no form in a message")


_BUILDERS: Final[dict[type[Any], Callable[[MessageBuilder, Any], None]]] = {
    params.MessageParam: MessageBuilder._message,
    it.Message: MessageBuilder._message,
    params.ReasoningParam: MessageBuilder._reasoning,
    it.ReasoningItem: MessageBuilder._reasoning,
    params.FunctionCallParam: MessageBuilder._function_call,
    it.FunctionCall: MessageBuilder._function_call,
    params.CustomToolCallParam: MessageBuilder._custom_call,
    it.CustomToolCall: MessageBuilder._custom_call,
    params.FunctionCallOutputParam: MessageBuilder._output,
    it.FunctionCallOutput: MessageBuilder._output,
    params.CustomToolCallOutputParam: MessageBuilder._output,
    params.ShellCallOutputParam: MessageBuilder._own_output,
    params.LocalShellCallOutputParam: MessageBuilder._own_output,
    params.ApplyPatchCallOutputParam: MessageBuilder._own_output,
    params.ToolSearchOutputParam: MessageBuilder._own_output,
    params.AdditionalTools: MessageBuilder._skip,
    params.CompactionParam: MessageBuilder._compaction,
    it.CompactionItem: MessageBuilder._compaction,
    **dict.fromkeys(_OWN_CALLS, MessageBuilder._own_call),
}
