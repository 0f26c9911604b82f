"""A proxy's tool calls: by which of their names a fragment calls them, and what was sent of them."""

from __future__ import annotations

from typing import Any

from bridge.dialects.codex.types import object_of, text_of
from bridge.emitter.stream import ResponseStream
from bridge.protocol.events import Event
from bridge.tools.aggregator import AggregatedCall, ToolCallAggregator

CALL_TYPES = ("function_call", "custom_tool_call")


class ProxyCalls:
    """Calls on their way into the machine. Each is sent once, however often it is named; arguments
    beyond the aggregator's limit raise ToolError."""

    def __init__(self, machine: ResponseStream) -> None:
        self._machine = machine
        self._calls = ToolCallAggregator()
        self._finished: set[str] = set()

    def begin(self, item: dict[str, Any], body: dict[str, Any]) -> list[Event]:
        """A call is announced. Arguments that come with it may yet be streamed, so they wait."""
        if self._is_finished(item):
            return []
        return self._tell(self._open(item, body), item, "")

    def grow(self, body: dict[str, Any]) -> list[Event]:
        """The next piece of a call's arguments."""
        delta = text_of(body.get("delta")) or text_of(body.get("arguments_delta"))
        call = self._named(body)
        if not delta or (call is not None and call.arguments_done):
            return []
        call = self._calls.append(delta, *_aliases(body))
        return self._tell(call, {}, delta)

    def settle_arguments(self, body: dict[str, Any]) -> list[Event]:
        """A call's arguments are whole; what was not streamed of them follows (field case 7)."""
        call = self._named(body)
        if call is None:
            return []
        return self._complete(call, {}, text_of(body.get("arguments")) or text_of(body.get("input")))

    def settle(self, item: dict[str, Any], body: dict[str, Any]) -> list[Event]:
        """A call's item is done."""
        if self._is_finished(item):
            return []
        call = self._open(item, body)
        events = self._complete(call, item, text_of(item.get("arguments")) or text_of(item.get("input")))
        self._calls.evict(call)
        self._finished |= {call.item_id, call.call_id} - {""}
        if not call.name:
            self._machine.diagnostics.loss("tool_call", "an item without a name")
            return events
        return events + self._machine.tool_call_done(call.index)

    def _is_finished(self, item: dict[str, Any]) -> bool:
        return bool(self._finished & {text_of(item.get("id")), text_of(item.get("call_id"))})

    def _named(self, body: dict[str, Any]) -> AggregatedCall | None:
        return self._calls.find(*_aliases(body))

    def _open(self, item: dict[str, Any], body: dict[str, Any]) -> AggregatedCall:
        function = object_of(item.get("function"))
        return self._calls.begin(
            _index(body),
            text_of(item.get("id")),
            text_of(item.get("call_id")),
            text_of(item.get("name")) or text_of(function.get("name")),
            custom=item.get("type") == "custom_tool_call",
        )

    def _complete(self, call: AggregatedCall, item: dict[str, Any], whole: str) -> list[Event]:
        sent, rest = call.arguments, ""
        if not call.arguments_done and whole.startswith(sent):
            rest = whole[len(sent) :]
        elif whole and whole != sent:
            self._machine.diagnostics.loss(
                "tool_call.arguments", "differ from what was streamed, which stands"
            )
        if rest:
            self._calls.append(rest, call.output_index, call.item_id, call.call_id)
        call.arguments_done = bool(whole or sent)
        return self._tell(call, item, rest)

    def _tell(self, call: AggregatedCall, item: dict[str, Any], arguments: str) -> list[Event]:
        return self._machine.tool_call(
            call.index,
            call.call_id or call.item_id,
            call.name,
            arguments,
            "custom" if call.custom else "function",
            text_of(item.get("namespace")) or None,
        )


def _index(body: dict[str, Any]) -> int | None:
    index = body.get("output_index")
    return index if isinstance(index, int) else None


def _aliases(body: dict[str, Any]) -> tuple[int | None, str, str]:
    """(output index, item id, call id); a bare `id` may be either of the two."""
    item_id, call_id = text_of(body.get("item_id")), text_of(body.get("call_id"))
    bare = text_of(body.get("id"))
    return _index(body), item_id or bare, call_id or bare
