"""Conversations read over a connection: the turns of a chain, and pages of a response's input."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import Connection

from openresponses_server.store.base import InputPage, Order, Turn
from openresponses_server.store.errors import CursorError
from openresponses_server.store.links import in_order
from openresponses_server.store.paging import window
from openresponses_server.store.records import id_bytes, listed_item, turn_of
from openresponses_server.store.sql import queries

_EVERY_POSITION: Final = (-1, 2**31 - 1)


def turns_of(response_id: str, rows: Iterable[Any]) -> list[Turn]:
    """The turns up to and with this one, oldest first, out of the rows of `queries.CHAIN`. Raises
    ChainError and UnreadableRecord."""
    links: dict[str, str | None] = {}
    bodies: dict[str, bytes] = {}
    items: dict[str, list[tuple[int, bytes]]] = {}
    for turn_id, position, link, data in rows:
        if position < 0:
            links[turn_id] = link
            bodies[turn_id] = data
        else:
            items.setdefault(turn_id, []).append((position, data))
    return [
        turn_of(turn_id, bodies[turn_id], (item for _, item in sorted(items.get(turn_id, ()))))
        for turn_id in in_order(response_id, links)
    ]


def read_page(
    connection: Connection,
    whose: dict[str, Any],
    after: str | None,
    before: str | None,
    limit: int,
    order: Order,
) -> InputPage | None:
    """A page as `ResponseStore.input_items` defines it; `whose` names the response, its owner and the time.
    Raises CursorError and UnreadableRecord."""
    asked = {"after": after, "before": before}
    cursors = {name: None if item_id is None else id_bytes(item_id) for name, item_id in asked.items()}
    found = connection.execute(queries.CURSORS, {**whose, **cursors}).one_or_none()
    if found is None:
        return None
    positions = {"after": found.after, "before": found.before}
    for name, item_id in asked.items():
        if item_id is not None and positions[name] is None:
            raise CursorError(name, item_id)
    bounds = window(positions["after"], positions["before"], order)
    lowest, highest = _EVERY_POSITION
    values = {
        "of_id": whose["of_id"],
        "low": lowest if bounds.low is None else bounds.low,
        "high": highest if bounds.high is None else bounds.high,
        "most": limit + 1,
    }
    rows = connection.execute(queries.page(bounds.downwards), values).all()
    page = [listed_item(whose["of_id"], item_id, item) for item_id, item in rows[:limit]]
    if bounds.reverse:
        page.reverse()
    return InputPage(page, len(rows) > limit)
