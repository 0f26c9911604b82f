"""The input of a request as a list of entries with their places."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bridge.protocol.input_items import InputItem, MessageParam
from bridge.protocol.items import Item

AnyItem = InputItem | Item
HISTORY = "previous_response_id"  # faults of earlier turns are laid to the link


class Entry(NamedTuple):
    """One item; `param` names its place for errors, `where` for diagnostics."""

    item: AnyItem
    param: str
    where: str


def entries_of(given: str | Sequence[AnyItem] | None, history: Iterable[AnyItem]) -> list[Entry]:
    """Earlier turns' items, then the request's own."""
    earlier = [Entry(item, HISTORY, f"history[{index}]") for index, item in enumerate(history)]
    if isinstance(given, str):
        return [*earlier, Entry(MessageParam("user", given), "input", "input")]
    own = (Entry(item, f"input[{index}]", f"input[{index}]") for index, item in enumerate(given or ()))
    return [*earlier, *own]
