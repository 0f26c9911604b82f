"""A proxy's tool calls on their way into the machine."""

from __future__ import annotations

from typing import Any

from openresponses_bridge.calls.aggregated import AggregatedCall
from openresponses_bridge.calls.aggregator import ToolCallAggregator
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.protocol.events import Event


class ProxyCalls:
    """Each call is sent once, however often it is named; arguments beyond the aggregator's limit raise
    ToolError. What is kept follows the open calls: `open` counts them, `ended` those that are over."""

    def __init__(self, machine: ResponseStream) -> None:
        self._machine = machine
        self._calls = ToolCallAggregator()
        self.ended = 0

    @property
    def open(self) -> int:
        return len(self._calls)

    def read(self, name: str, body: dict[str, Any]) -> list[Event]:
        """A notification that is about a call. What was not streamed of its arguments follows once (field
        case 7)."""
        change = self._calls.ingest_delta(body if body.get("type") == name else {**body, "type": name})
        if change is None:
            return []
        if change.differs:
            self._machine.diagnostics.loss(
                "tool_call.arguments", "differ from what was streamed, which stands"
            )
        events = self._announce(change.call, change.arguments)
        for call in self._calls.drain_completed_calls():
            self.ended += 1
            if call.name:
                events += self._machine.tool_call_done(call.index)
            else:
                self._machine.diagnostics.loss("tool_call", "an item without a name")
        return events

    def _announce(self, call: AggregatedCall, arguments: str) -> list[Event]:
        return self._machine.tool_call(
            call.index,
            call.call_id or call.item_id,
            call.name,
            arguments,
            "custom" if call.custom else "function",
            call.namespace or None,
        )
