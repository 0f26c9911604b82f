"""Items of agents that a server runs side by side (`multi_agent` of a request), put in order.

The agents' texts arrive in turns, delta by delta, but a response has one text open at a time (law E5). So
what another agent says waits until the open items have ended.
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
    """Items that wait for their turn. `waiting` has the events of each, by its output index, in the order in
    which they began."""

    __slots__ = ("_agent", "_bytes", "_open", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[int, list[Event]] = {}
        self._open: set[int] = set()
        self._agent: Any = None
        self._bytes = 0  # of all waiting events

    def waits(self, event: Event, index: int, item: it.Item) -> bool:
        """Return True if the item that begins with this event must wait; the event is then buffered."""
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
        """Buffer an event of an item that waits. If that exceeds a limit, the first item need not wait any
        more."""
        self.waiting[index].append(event)
        self._bytes += size
        if self._bytes > _MOST_BYTES:
            self.end_all()

    def end(self, index: int) -> None:
        """Handle the end of the item at this index."""
        self._open.discard(index)

    def end_all(self) -> None:
        """Let the waiting items follow, since the open ones do not end before them."""
        self._open.clear()

    def next(self) -> list[Event]:
        """Return the events of the next waiting item; none while an item is open."""
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
