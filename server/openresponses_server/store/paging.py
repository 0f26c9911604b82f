"""Pages of a list: which positions a client asks for."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from openresponses_server.store.base import Order
from openresponses_server.store.errors import CursorError
from openresponses_server.store.records import id_bytes


class Window(Struct, frozen=True):
    """Which positions a page takes: those between `low` and `high`, both left out and None for no
    bound, read `downwards` or not and turned round when `reverse`."""

    low: int | None
    high: int | None
    downwards: bool
    reverse: bool


def window(after: int | None, before: int | None, order: Order) -> Window:
    """The window of a page between two positions in the order asked for."""
    backwards = before is not None and after is None
    low, high = (after, before) if order == "asc" else (before, after)
    return Window(low, high, downwards=(order == "desc") != backwards, reverse=backwards)


def position(ids: Sequence[bytes], param: str, item_id: str | None) -> int | None:
    """Where the item with this id is among those with these; None without an id. Raises CursorError, which
    names the parameter, when there is no such item."""
    if item_id is None:
        return None
    try:
        return ids.index(id_bytes(item_id))
    except ValueError:
        raise CursorError(param, item_id) from None
