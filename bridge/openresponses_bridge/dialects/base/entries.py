"""The input of a request as a list of entries with their places, whatever dialect it goes out in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from openresponses_bridge.protocol.input_items import InputItem, items_of
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
        """The place of a field of the item, as `input[0].content`. Neither an earlier turn's item nor a text
        has fields in the client's request."""
        return self.param if self.param in (HISTORY, _INPUT) else f"{self.param}.{field}"


def entries_of(request: CreateResponse, history: Iterable[AnyItem]) -> list[Entry]:
    """Earlier turns' items, then the request's own."""
    entries = [Entry(item, HISTORY, f"history[{index}]") for index, item in enumerate(history)]
    whole = isinstance(request.input, str)
    for index, item in enumerate(items_of(request.input)):
        place = _INPUT if whole else f"{_INPUT}[{index}]"
        entries.append(Entry(item, place, place))
    return entries
