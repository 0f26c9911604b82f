"""The input of a request as a list of entries with their places, whatever dialect it goes out in, and what
is found by reading it: the tools that it declares, the calls and their outputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from openresponses_bridge.calls.declarations import TOOL_BEARERS, DeclaredTool, located, tools_of
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.presentation import View, call_view, output_view
from openresponses_bridge.protocol.input_items import InputItem, MessageParam, items_of
from openresponses_bridge.protocol.items import Item
from openresponses_bridge.protocol.request import CreateResponse

AnyItem = InputItem | Item
HISTORY: Final = "previous_response_id"  # what is wrong in earlier turns is wrong with the link
_INPUT: Final = "input"


class Entry(Struct, frozen=True):
    """One item; `param` names its place for errors, `where` for diagnostics."""

    item: AnyItem
    param: str
    where: str

    def at(self, field: str) -> str:
        """The path of a field of the item, such as `input[0].content`. Items of earlier turns and a text
        input have no fields in the client's request."""
        return self.param if self.param in (HISTORY, _INPUT) else f"{self.param}.{field}"


def entries_of(request: CreateResponse, history: Iterable[AnyItem]) -> list[Entry]:
    """Earlier turns' items, then the request's own."""
    entries: list[Entry] = []
    for index, item in enumerate(history):
        entries.append(Entry(item, HISTORY, f"history[{index}]"))
    whole = isinstance(request.input, str)
    for index, item in enumerate(items_of(request.input)):
        place = _INPUT if whole else f"{_INPUT}[{index}]"
        entries.append(Entry(item, place, place))
    return entries


def before_own(entries: Sequence[Entry], own: int) -> int | None:
    """The number of entries of earlier turns. None when the request's own are not `own`: places that were
    counted among so many are not theirs."""
    earlier = sum(entry.param == HISTORY for entry in entries)
    return earlier if len(entries) - earlier == own else None


def active_tools(request: CreateResponse, entries: Iterable[Entry]) -> list[DeclaredTool]:
    """The request's tools followed by those that its input declares, in order."""
    found = located(request.tools, "tools") if request.tools else []
    for entry in entries:
        if entry.item.type in TOOL_BEARERS:
            found += located(tools_of(entry.item), f"{entry.where}.tools")
    return found


def views_of(entries: Iterable[Entry], identities: ToolIdentityMap) -> list[View]:
    """Each entry as a function call or its output; None for what is neither."""
    views: list[View] = []
    for entry in entries:
        item = entry.item
        is_message = type(item) is MessageParam  # as most are
        views.append(None if is_message else call_view(item, identities) or output_view(item, identities))
    return views
