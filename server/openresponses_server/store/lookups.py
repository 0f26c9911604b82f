"""Items by their ids: which of a response's items can be referred to, and what is stored at a location.

Input items are found under the ids that they are listed under, items of the output under their own once the
response has ended. An id longer than any that servers assign finds nothing: indexes of databases don't accept
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from openresponses_bridge.protocol.codec import decode_response, encode
from openresponses_bridge.protocol.input_items import InputItem, ItemReference
from openresponses_bridge.protocol.response import Response
from openresponses_server.store.base import ChainError, CursorError, Order
from openresponses_server.store.records import decode_input, id_bytes, reading

LONGEST_NAME: Final = 512  # bytes


class ItemLocation(NamedTuple):
    """The location of an item: the response that has it, and its JSON if it is in the input, or None if it is
    in the output."""

    response_id: str
    item: bytes | None


def can_name(item_id: bytes) -> bool:
    """Return True if an item can be found under this id."""
    return 0 < len(item_id) <= LONGEST_NAME


def output_names(response: Response) -> list[bytes]:
    """Return the distinct ids of the items in the response's output that can be found by them."""
    names = dict.fromkeys(id_bytes(item.id) for item in response.output)
    return [name for name in names if can_name(name)]


def items_at(locations: Mapping[bytes, ItemLocation], bodies: Mapping[str, bytes]) -> dict[str, InputItem]:
    """Return the items at these locations as input, by id. `bodies` has the JSON of the responses that are
    needed for their output. Stored references are left out. Raises UnreadableRecord."""
    outputs = {response_id: _outputs(response_id, body) for response_id, body in bodies.items()}
    items: dict[str, InputItem] = {}
    for name, (response_id, item) in locations.items():
        data = outputs.get(response_id, {}).get(name) if item is None else item
        if data is None:
            continue
        with reading(response_id):
            (read,) = decode_input([data])
        if not isinstance(read, ItemReference):
            items[name.decode("utf-8", "surrogatepass")] = read
    return items


def _outputs(response_id: str, body: bytes) -> dict[bytes, bytes]:
    with reading(response_id):
        return {id_bytes(item.id): encode(item) for item in decode_response(body).output}


class PositionRange(Struct, frozen=True):
    """The positions of a page: those between `low` and `high`, both exclusive, None for no limit. They are
    read in descending order if `downwards`, and then reversed if `reverse`."""

    low: int | None
    high: int | None
    downwards: bool
    reverse: bool


def window(after: int | None, before: int | None, order: Order) -> PositionRange:
    """Return The positions of a page between two positions in the requested order."""
    backwards = before is not None and after is None
    low, high = (after, before) if order == "asc" else (before, after)
    return PositionRange(low, high, downwards=(order == "desc") != backwards, reverse=backwards)


def position(ids: Sequence[bytes], param: str, item_id: str | None) -> int | None:
    """Return the index of this id among `ids`; None without an id. Raises CursorError, which names the
    parameter, if it is not among them."""
    if item_id is None:
        return None
    try:
        return ids.index(id_bytes(item_id))
    except ValueError:
        raise CursorError(param, item_id) from None


class ItemIndex:
    """(owner, item's id) → the ids of the responses that hold it."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, bytes], set[str]] = {}

    def add(self, owner: str, names: Iterable[bytes], response_id: str) -> None:
        """Add a response that holds items with these ids."""
        for name in filter(can_name, names):
            self._found.setdefault((owner, name), set()).add(response_id)

    def drop(self, owner: str, names: Iterable[bytes], response_id: str) -> None:
        """Remove the response from those that hold items with these ids."""
        for name in names:
            holders = self._found.get((owner, name), set())
            holders.discard(response_id)
            if not holders:
                self._found.pop((owner, name), None)

    def holders(self, owner: str, name: bytes) -> set[str]:
        """Return the ids of the owner's responses that hold the item."""
        return self._found.get((owner, name), set())

    def clear(self) -> None:
        """Remove everything."""
        self._found.clear()


def in_order(response_id: str, links: Mapping[str, str | None]) -> list[str]:
    """Return the ids of a chain, oldest first. `links` maps the id of each turn that was found to the id of
    the turn before it. Raises ChainError if a turn is missing or comes twice.
    """
    order: dict[str, None] = {}
    link: str | None = response_id
    while link is not None:
        if link in order:
            circle = f"The conversation of response '{response_id[:80]}' leads back to '{link[:80]}'."
            raise ChainError(ChainError.CYCLE, circle)
        if link not in links:
            raise ChainError(ChainError.MISSING, f"Previous response with id '{link[:80]}' not found.")
        order[link] = None
        link = links[link]
    return list(reversed(order))
