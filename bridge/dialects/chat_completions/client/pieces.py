"""The tool calls of one answer on their way to a Chat Completions client: dense indexes, id and name
first, then fragments."""

from __future__ import annotations

import json
from typing import Literal, NamedTuple

from bridge.dialects.chat_completions.types import ChatCustom, ChatFunction, ChatToolCall
from bridge.protocol.items import CustomToolCall, FunctionCall

AnyCall = FunctionCall | CustomToolCall
CustomForm = Literal["custom", "function"]


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
