"""Converts events from one wire's spelling to the other's (law E10). Items keep their types, which are chosen
when they are emitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.emitter.failures import error_event
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.state import WIRES, Wire


class Outbound:
    """Converts events with `feed(event)` to the spelling `wire`; most are unchanged."""

    def __init__(self, wire: str = "openresponses") -> None:
        self.diagnostics = Diagnostics()
        self._respell = _respellings(WIRES[wire])

    def feed(self, event: Event) -> list[Event]:
        respell = self._respell.get(type(event))
        return [event if respell is None else respell(event)]

    def close(self) -> list[Event]:
        return []


def _as(struct: type[Any]) -> Callable[[Any], Event]:
    names = struct.__struct_fields__
    return lambda event: struct(*(getattr(event, name) for name in names))


_Respellings = dict[type[Any], Callable[[Any], Event]]
_REASONING: dict[str, _Respellings] = {
    "openresponses": {
        ev.ReasoningTextDelta: _as(ev.ReasoningDelta),
        ev.ReasoningTextDone: _as(ev.ReasoningDone),
    },
    "openai": {
        ev.ReasoningDelta: _as(ev.ReasoningTextDelta),
        ev.ReasoningDone: _as(ev.ReasoningTextDone),
    },
}


def _respellings(wire: Wire) -> _Respellings:
    return _REASONING[wire.name] | {
        ev.ErrorEvent: lambda event: error_event(event.sequence_number, event.payload, wire)
    }
