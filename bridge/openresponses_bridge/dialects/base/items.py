"""Items that only OpenAI's own servers take, as those that every model reads.

A message from another agent becomes a user's. A program that a server ran and its output become texts: a call
of a function would need a declaration. What no model can be shown stays as it is, for the dialect to report.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base.agents import from_agent
from openresponses_bridge.dialects.base.configuration import UPDATE
from openresponses_bridge.dialects.base.entries import AnyItem, Entry
from openresponses_bridge.dialects.base.fields import Fields
from openresponses_bridge.protocol.input_items import MessageParam
from openresponses_bridge.protocol.items import MessageRole
from openresponses_bridge.protocol.unknown import UnknownItem

TRIGGER: Final = "compaction_trigger"


def is_answered_trigger(entry: Entry, last: Entry) -> bool:
    """Whether it asked for a compaction earlier in the conversation that ends with `last`."""
    return entry is not last and isinstance(entry.item, UnknownItem) and entry.item.type == TRIGGER


def understood(entries: Sequence[Entry], diagnostics: Diagnostics) -> list[Entry]:
    """The entries with such items replaced, those left out that are honoured otherwise (see
    `configuration`). Raises InvalidRequestError with the place of what is not as it should be."""
    if UnknownItem not in {type(entry.item) for entry in entries}:
        return list(entries)
    return _Reader(entries, diagnostics).read()


class _Reader:
    def __init__(self, entries: Sequence[Entry], diagnostics: Diagnostics) -> None:
        self._entries = entries
        self._diagnostics = diagnostics

    def read(self) -> list[Entry]:
        found = []
        for index, entry in enumerate(self._entries):
            item: AnyItem | None = entry.item
            if isinstance(item, UnknownItem):
                item = _READERS.get(item.type.removeprefix("openai:"), _Reader.other)(self, item, index)
            if item is not None:
                found.append(replace(entry, item=item))
        return found

    def agent_message(self, item: UnknownItem, index: int) -> AnyItem | None:
        return from_agent(self._entries[index], item, self._diagnostics)

    def update(self, _item: UnknownItem, _index: int) -> None:
        """The request says by now what it left: see `configured`."""

    def trigger(self, item: UnknownItem, index: int) -> AnyItem | None:
        """One that something follows has been answered."""
        return item if index == len(self._entries) - 1 else None

    def program(self, item: UnknownItem, index: int) -> AnyItem:
        given = Fields(item.raw, self._entries[index].param)
        return _said("assistant", "ran a program", given, "code")

    def program_output(self, item: UnknownItem, index: int) -> AnyItem:
        given = Fields(item.raw, self._entries[index].param)
        return _said("user", "output of the program", given, "result")

    def other(self, item: UnknownItem, _index: int) -> AnyItem | None:
        return item


def _said(role: MessageRole, what: str, given: Fields, field: str) -> MessageParam:
    return MessageParam(role, f"[{what}, {given.need('call_id', str)}]\n{given.need(field, str)}")


_READERS: Final[dict[str, Callable[[_Reader, UnknownItem, int], AnyItem | None]]] = {
    "agent_message": _Reader.agent_message,
    UPDATE: _Reader.update,
    TRIGGER: _Reader.trigger,
    "program": _Reader.program,
    "program_output": _Reader.program_output,
}
