"""Copilot's tool calls on their way into the machine: announced, repeated as they grow, then whole."""

from __future__ import annotations

from typing import Any

from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.protocol.events import Event


class _Call:
    __slots__ = ("call_id", "done", "index", "name", "sent")

    def __init__(self, index: int, call_id: str, name: str) -> None:
        self.index = index
        self.call_id = call_id
        self.name = name
        self.sent = ""
        self.done = False


class IncomingCalls:
    """Calls in order of first appearance, known by their call id, or by their name while they have
    none."""

    __slots__ = ("_calls", "_diagnostics", "_machine")

    def __init__(self, machine: ResponseStream) -> None:
        self._machine = machine
        self._diagnostics = machine.diagnostics
        self._calls: list[_Call] = []

    @property
    def settled(self) -> bool:
        """Whole calls have come."""
        return any(call.done for call in self._calls)

    def begin(self, facts: dict[str, Any]) -> list[Event]:
        """A call is announced. One without an id waits, since its id may still come."""
        call = self._find(facts)
        return self._machine.tool_call(call.index, call.call_id, call.name) if call and call.call_id else []

    def grow(self, facts: dict[str, Any]) -> list[Event]:
        """The arguments so far."""
        call = self._find(facts)
        return [] if call is None or call.done else self._show(call, _text(facts.get("arguments")))

    def settle(self, facts: dict[str, Any]) -> list[Event]:
        """A whole call; one that comes again is left out."""
        call = self._find(facts)
        if call is None or call.done:
            return []
        call.done = True
        events = self._show(call, _text(facts.get("arguments")))
        return events + self._machine.tool_call_done(call.index)

    def _find(self, facts: dict[str, Any]) -> _Call | None:
        call_id, name = _text(facts.get("id")), _text(facts.get("name"))
        for call in self._calls:
            same = call.call_id == call_id if call.call_id and call_id else call.name == name
            if same and not (call.done and not call_id):
                call.call_id = call.call_id or call_id
                return call
        if not name:
            self._diagnostics.loss("tool_calls", "a call without a name")
            return None
        call = _Call(len(self._calls), call_id, name)
        self._calls.append(call)
        return call

    def _show(self, call: _Call, arguments: str) -> list[Event]:
        rest = ""
        if arguments.startswith(call.sent):
            rest = arguments[len(call.sent) :]
            call.sent = arguments
        elif arguments:
            self._diagnostics.loss("tool_calls.arguments", "differ from what was streamed, which stands")
        return self._machine.tool_call(call.index, call.call_id, call.name, rest)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
