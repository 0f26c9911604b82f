"""Pages of a list: which positions a client asks for."""

from __future__ import annotations

from msgspec import Struct

from server.sessions.base import Order


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
