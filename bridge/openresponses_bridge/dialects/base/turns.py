"""Puts items in order, for APIs whose blocks come one after another, while several items of the protocol may
be open at once."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.protocol.events import Event


class ItemTurns:
    """Keeps the events of each item until the items before it have ended."""

    __slots__ = ("_diagnostics", "_done", "_in_line", "current", "waiting")

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._done: set[int] = set()
        self._in_line: list[int] = []  # a heap of the indexes of waiting items
        self.current: int | None = None
        """The index of the item whose turn it is; None between two items."""
        self.waiting: dict[int, list[Event]] = {}
        """Index of an item → its waiting events."""

    def waits(self, event: Any) -> bool:
        """Buffer an event, if it is of another item than the current one. Returns False if it is the turn of
        its item."""
        index: int = event.output_index
        if index in self._done:
            self._diagnostics.ignored(event.type, "came after its item")
            return True
        if self.current is None:
            self.current = index
            return False
        if index not in self.waiting:
            self.waiting[index] = []
            heappush(self._in_line, index)
        self.waiting[index].append(event)
        return True

    def end(self) -> None:
        """End the current item."""
        if self.current is not None:
            self._done.add(self.current)
            self.current = None

    def following(self) -> list[Event]:
        """Return the events of the next waiting item, whose turn begins; [] while another item has its turn,
        or if none waits."""
        if self.current is not None or not self.waiting:
            return []
        self.current = heappop(self._in_line)
        return self.waiting.pop(self.current)
