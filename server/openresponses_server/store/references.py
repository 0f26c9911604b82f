"""Input items that are references (`item_reference`), resolved to the items that they name.

What a client refers to may be in context already: the turns before bring it in, or the input holds it
itself. It is not sent twice, since a tool call that is sent twice has only one output; the references that
clients send along with `previous_response_id` are such.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec.structs import replace

from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.input_items import InputItem, ItemReference
from openresponses_bridge.protocol.items import Item
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.budget import Hold, Room
from openresponses_server.errors import HttpError
from openresponses_server.store.base import ResponseStore
from openresponses_server.store.errors import TooLarge
from openresponses_server.store.history import Conversation, history_of
from openresponses_server.store.records import decode_input

_NOT_FOUND: Final = "item_not_found"
_SHOWN: Final = 80  # characters of an id
_NOTHING: Final[Mapping[str, InputItem | Item]] = MappingProxyType({})


class Continued(NamedTuple):
    """A request whose input is free of references, what came before it, and the bytes that this takes."""

    request: CreateResponse
    before: Conversation
    hold: Hold


async def continued(
    store: ResponseStore, request: CreateResponse, owner: str, room: Room, *, accepted: bool = False
) -> Continued:
    """The request and the turns before it, out of the store. One that was `accepted` before is not refused
    now for what is in memory.

    Raises HttpError `previous_response_not_found` and `item_not_found`, also for what is another owner's,
    TooLarge, and 429 when too much is in memory.
    """
    hold = room.budget.hold(owner, accepted=accepted)
    before = await history_of(store, request, owner, room, hold)
    return Continued(await resolved(store, request, owner, before, room), before, hold)


async def resolved(
    store: ResponseStore,
    request: CreateResponse,
    owner: str,
    before: Conversation,
    room: Room,
    remembered: Mapping[str, InputItem | Item] = _NOTHING,
) -> CreateResponse:
    """The request with the item itself in the place of each reference, and without references to what
    is in context already. Items are looked for among those `remembered`, then among all that the owner has
    stored.

    Raises HttpError `item_not_found` with the path of the reference, and TooLarge: each request keeps a copy
    of what it refers to.
    """
    given = request.input
    if not isinstance(given, list) or ItemReference not in set(map(type, given)):
        return request
    known = before.named.keys() | {_id(item) for item in given if not isinstance(item, ItemReference)}
    wanted = {item.id for item in given if isinstance(item, ItemReference)} - known
    found = {each: _as_input(remembered[each]) for each in wanted & remembered.keys()}
    size = sum(len(encode(item)) for item in found.values())
    if size > room.references:
        raise TooLarge(TooLarge.REFERENCES, size, room.references)
    if rest := wanted - found.keys():
        found |= await store.items(rest, owner, most=room.references - size)
    items: list[InputItem] = []
    for index, item in enumerate(given):
        if not isinstance(item, ItemReference):
            items.append(item)
        elif item.id in wanted:
            wanted.remove(item.id)
            items.append(found[item.id] if item.id in found else _missing(item.id, index))
    return replace(request, input=items)


def _id(item: InputItem) -> str | None:
    own = getattr(item, "id", None)
    return own if isinstance(own, str) else None


def _as_input(item: InputItem | Item) -> InputItem:
    (read,) = decode_input([encode(item)])
    return read


def _missing(item_id: str, index: int) -> InputItem:
    raise HttpError(
        400,
        f"Item with id '{item_id[:_SHOWN]}' not found. Items of a response that is not stored are not kept: "
        "send the item itself.",
        code=_NOT_FOUND,
        param=f"input[{index}].id",
    )
