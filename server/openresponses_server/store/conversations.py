"""Items of conversations: their ids there, what a response appends, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.ids import prefix_of
from openresponses_bridge.protocol.input_items import InputItem
from openresponses_bridge.protocol.items import Item
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.random_ids import random_id
from openresponses_server.errors import HttpError
from openresponses_server.store.base import ConversationSize, ListedItem
from openresponses_server.store.records import InputRow, can_be_id, id_bytes


def unknown_conversation(conversation_id: str, param: str | None = None) -> HttpError:
    """Return the error for an id that is unknown or belongs to another owner (law S7)."""
    what = f"Conversation with id '{conversation_id[:80]}' not found."
    return HttpError(404, what, code="conversation_not_found", param=param)


def full(size: ConversationSize, most: ConversationSize) -> HttpError:
    """Return the error for a conversation that would be larger than `most`."""
    return HttpError(
        400,
        f"The conversation would have {size.items} items of {size.bytes} bytes; the limits are {most.items} "
        f"(limits.items) and {most.bytes} (limits.conversation_bytes).",
        code="conversation_full",
        param="items",
    )


def item_exists(item_id: str, index: int) -> HttpError:
    """Return the error for an item that was added under an id that is in use."""
    return HttpError(
        400,
        f"The conversation already has an item with the id '{item_id[:80]}'.",
        code="item_exists",
        param=f"items[{index}].id",
    )


def total_size(items: Iterable[InputRow]) -> ConversationSize:
    """Return the size of these items."""
    sizes = [len(each.item) for each in items]
    return ConversationSize(len(sizes), sum(sizes))


def named(items: Sequence[InputItem]) -> list[ListedItem]:
    """Return the items that a client adds, each under its own id or a new one. Raises HttpError `item_exists`
    if two of them have one id."""
    by_id: dict[str, ListedItem] = {}
    for index, item in enumerate(items):
        own = getattr(item, "id", None)
        name = own if isinstance(own, str) and can_be_id(own) else _new_id(item)
        if name in by_id:
            raise item_exists(name, index)
        by_id[name] = ListedItem(name, item)
    return list(by_id.values())


def rows_of(items: Iterable[ListedItem]) -> list[InputRow]:
    """Return the items as they are stored."""
    return [InputRow(id_bytes(each.id), encode(each.item)) for each in items]


def turn_rows(
    response: Response, input_rows: Sequence[InputRow], taken: Callable[[Collection[bytes]], set[bytes]]
) -> list[InputRow]:
    """Return the rows that a response appends to its conversation when it ends: its input, then its output.
    Return none if it failed, so that its request may be sent again, or was cancelled before there was output.

    `input_rows` is the stored input; `taken` returns those of some ids that the conversation has. An item
    whose id is taken, or can't be looked up, gets another, since the end of a response is not refused.
    """
    if response.status == "failed" or (response.status != "completed" and not response.output):
        return []
    output = [InputRow(id_bytes(item.id), encode(item)) for item in response.output]
    rows = [*input_rows, *output]
    in_use = taken([row.item_id for row in rows if _usable(row.item_id)])
    return list(_named_apart(response.id, rows, in_use))


def _named_apart(response_id: str, rows: Sequence[InputRow], taken: set[bytes]) -> Iterator[InputRow]:
    taken = set(taken)
    for position, row in enumerate(rows):
        if row.item_id in taken or not _usable(row.item_id):
            row = replace(row, item_id=id_bytes(random_id(f"item_{response_id}_{position}"[:_LONGEST])))
        taken.add(row.item_id)
        yield row


_LONGEST: Final = 200  # characters before the random part of an id


def _usable(name: bytes) -> bool:
    try:
        return can_be_id(name.decode())
    except UnicodeDecodeError:  # half a surrogate pair
        return False


def _new_id(item: InputItem | Item) -> str:
    return random_id(prefix_of(item.type)[:_LONGEST])
