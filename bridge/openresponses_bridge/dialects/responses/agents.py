"""Items of agents that a server runs side by side (`multi_agent` of a request), one agent after the other.

Their texts come in turns, delta by delta, and a response has one text open (law E5): what another agent says
waits until the items that are open have ended.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET

from openresponses_bridge.protocol import items as it
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.unknown import UnknownItem

_AGENT: Final = "agent"
_MOST_ITEMS: Final = 256
_MOST_BYTES: Final = 4 * 1024 * 1024


class AgentTurns:
    """`waiting` has the events of each item that waits, by its output index, in the order in which these
    began."""

    __slots__ = ("_agent", "_bytes", "_open", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[int, list[Event]] = {}
        self._open: set[int] = set()
        self._agent: Any = None
        self._bytes = 0  # of all that waits

    def waits(self, event: Event, index: int, item: it.Item) -> bool:
        """Return True if the item that begins with this event has to wait: then the event is kept."""
        agent = _agent_of(item)
        if agent is None:
            return False
        if self._open and agent != self._agent and len(self.waiting) < _MOST_ITEMS:
            self.waiting[index] = [event]
            return True
        self._open.add(index)
        self._agent = agent
        return False

    def keep(self, event: Event, index: int, size: int) -> None:
        """Keep an event of an item that waits. Beyond a limit the first one does not wait any more."""
        self.waiting[index].append(event)
        self._bytes += size
        if self._bytes > _MOST_BYTES:
            self.end_all()

    def end(self, index: int) -> None:
        """The item at this index has ended."""
        self._open.discard(index)

    def end_all(self) -> None:
        """The items that are open do not end before those that wait."""
        self._open.clear()

    def next(self) -> list[Event]:
        """Return the events of the next item; none while one is open."""
        if self._open or not self.waiting:
            return []
        events = self.waiting.pop(next(iter(self.waiting)))
        if not self.waiting:
            self._bytes = 0
        return events


def _agent_of(item: it.Item) -> Any:
    if isinstance(item, UnknownItem):
        return item.raw.get(_AGENT)
    extra = getattr(item, "extra", UNSET)
    return extra.get(_AGENT) if extra else None
