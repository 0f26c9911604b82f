"""Pieces of one answer on their way to a Chat Completions client: its tool calls with dense indexes, id and
name first, then fragments; its reasoning, for which a client has one field or none."""

from __future__ import annotations

import json
from typing import Literal, NamedTuple

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.chat_completions.client.options import CustomForm, ReasoningField
from openresponses_bridge.dialects.chat_completions.types import (
    ChatCustom,
    ChatDelta,
    ChatFunction,
    ChatToolCall,
)
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.items import CustomToolCall, FunctionCall

AnyCall = FunctionCall | CustomToolCall


class _Known(NamedTuple):
    """A call that was begun: its index there, and what its fragments are."""

    at: int
    form: Literal["function", "custom", "wrapped"]


class OutgoingCalls:
    """`custom` is how free-text calls leave: as Chat's `custom` calls, or as functions whose argument
    is `{"input": "…"}`, for clients that know nothing else."""

    __slots__ = ("_custom", "_known", "whole")

    def __init__(self, custom: CustomForm) -> None:
        self._custom = custom
        self._known: dict[int, _Known] = {}
        self.whole = 0
        """How many were complete."""

    def __len__(self) -> int:
        return len(self._known)

    def begin(self, output_index: int, item: AnyCall) -> ChatToolCall:
        """Id and name."""
        index = len(self._known)
        if isinstance(item, FunctionCall):
            self._known[output_index] = _Known(index, "function")
        elif self._custom == "custom":
            self._known[output_index] = _Known(index, "custom")
            return ChatToolCall(index, item.call_id, "custom", None, ChatCustom(item.name, ""))
        else:
            self._known[output_index] = _Known(index, "wrapped")
            return ChatToolCall(index, item.call_id, "function", ChatFunction(item.name, '{"input":"'))
        return ChatToolCall(index, item.call_id, "function", ChatFunction(item.name, ""))

    def grow(self, output_index: int, delta: str) -> ChatToolCall | None:
        """The next fragment; None for a call nobody announced."""
        known = self._known.get(output_index)
        if known is None:
            return None
        if known.form == "custom":
            return ChatToolCall(known.at, custom=ChatCustom(None, delta))
        if known.form == "wrapped":
            delta = json.dumps(delta, ensure_ascii=False)[1:-1]
        return ChatToolCall(known.at, function=ChatFunction(None, delta))

    def end(self, output_index: int, item: AnyCall) -> ChatToolCall | None:
        """The item is done; what is still to be said of it. One that was cut is not closed: it must
        not look whole (field case 25)."""
        known = self._known.get(output_index)
        if known is None or item.status == "incomplete":
            return None
        self.whole += 1
        if known.form != "wrapped":
            return None
        return ChatToolCall(known.at, function=ChatFunction(None, '"}'))


class OutgoingReasoning:
    """A summary goes where reasoning goes. Of an item that has both, the form that comes first is sent."""

    __slots__ = ("_diagnostics", "_field", "_shown", "_summary")

    def __init__(self, field: ReasoningField, diagnostics: Diagnostics) -> None:
        self._field = field
        self._diagnostics = diagnostics
        self._shown = (-1, "")  # the item, and the form of it that is sent
        self._summary: tuple[int, int] | None = None

    def raw(self, event: ev.ReasoningDelta | ev.ReasoningTextDelta) -> ChatDelta | None:
        if not self._shows(event.output_index, "content"):
            self._diagnostics.loss("reasoning.content", "left out beside its summary")
            return None
        return self._delta(event.delta)

    def summary(self, event: ev.ReasoningSummaryTextDelta) -> ChatDelta | None:
        """Parts of summaries stand apart by a blank line."""
        if not self._shows(event.output_index, "summary"):
            self._diagnostics.loss("reasoning.summary", "left out beside the reasoning itself")
            return None
        before, self._summary = self._summary, (event.output_index, event.summary_index)
        apart = "" if before in (None, self._summary) else "\n\n"
        delta = self._delta(apart + event.delta)
        if delta is not None:
            self._diagnostics.loss("reasoning.summary", "sent as reasoning")
        return delta

    def _shows(self, output_index: int, form: str) -> bool:
        if self._shown[0] != output_index:
            self._shown = (output_index, form)
        return self._shown[1] == form

    def _delta(self, text: str) -> ChatDelta | None:
        if self._field == "reasoning_content":
            return ChatDelta(reasoning_content=text)
        if self._field == "reasoning":
            return ChatDelta(reasoning=text)
        self._diagnostics.loss("reasoning", "left out, as asked")
        return None
