"""The tool calls of one choice on their way to Copilot, which gets them whole and all at once."""

from __future__ import annotations

import json

from openresponses_bridge.calls.json_input import INPUT_KEY
from openresponses_bridge.calls.unwrap import wrap_input
from openresponses_bridge.decoder.call_ids import unique_call_id
from openresponses_bridge.dialects.copilot.growing import GrowingText
from openresponses_bridge.dialects.copilot.types import BeginToolCall, ToolCall, ToolCallUpdate
from openresponses_bridge.protocol.items import CustomToolCall, FunctionCall

AnyCall = FunctionCall | CustomToolCall
_BEGIN_INPUT = f'{{"{INPUT_KEY}":"'
_END_INPUT = '"}'


def arguments_of(item: AnyCall) -> str:
    """The JSON text of a call's arguments; free text goes under `input`."""
    if isinstance(item, CustomToolCall):
        return wrap_input(item.input)
    return item.arguments


class OutgoingCalls:
    """Calls by output index: announced, growing, whole. Those that never become whole are never
    handed out (field case 25)."""

    __slots__ = ("_growing", "_open", "_settled", "_whole")

    def __init__(self) -> None:
        self._open: dict[int, AnyCall] = {}
        self._growing: dict[int, GrowingText] = {}
        self._settled: set[tuple[str, str, str]] = set()
        self._whole: dict[str, ToolCall] = {}

    def __len__(self) -> int:
        return len(self._whole)

    def begin(self, output_index: int, item: AnyCall) -> BeginToolCall | None:
        """What Copilot gets when a call begins: the first one only, to show that tools follow."""
        first = not self._open and not self._whole
        self._open[output_index] = item
        return BeginToolCall(item.name, item.call_id) if first else None

    def grow(self, output_index: int, delta: str) -> ToolCallUpdate | None:
        """The arguments so far; None for a call nobody announced."""
        item = self._open.get(output_index)
        if item is None:
            return None
        text = self._growing.get(output_index)
        if text is None:
            text = self._growing[output_index] = GrowingText()
        return ToolCallUpdate(item.name, text.add(delta), item.call_id)

    def quoted(self, output_index: int, delta: str) -> str:
        """The next piece of a custom tool's input within the JSON that it is shown as."""
        begun = output_index in self._growing
        return ("" if begun else _BEGIN_INPUT) + json.dumps(delta, ensure_ascii=False)[1:-1]

    def end_quote(self, output_index: int) -> str:
        """What ends that JSON; empty where nothing of it was shown."""
        return _END_INPUT if output_index in self._growing else ""

    def end(self, output_index: int, item: AnyCall) -> None:
        """A call's item is done."""
        self._growing.pop(output_index, None)
        self.settle(item)

    def settle(self, item: AnyCall) -> None:
        """A whole item: kept once, whichever event brought it. Another call under an id that was given
        before gets one of its own."""
        facts = item.name, arguments_of(item), item.call_id
        if item.status != "incomplete" and facts not in self._settled:
            self._settled.add(facts)
            call_id = unique_call_id(item.call_id, set(self._whole))
            self._whole[call_id] = ToolCall(item.name, facts[1], call_id)

    def all(self) -> list[ToolCall]:
        """The whole calls, in order."""
        return list(self._whole.values())
