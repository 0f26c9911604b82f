"""Lists of stored responses, paged by the database over an index of owner and time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from sqlalchemy import Connection, Select, bindparam, func, select, tuple_

from openresponses_server.store.listing import HEAD_BYTES, Head, Wanted
from openresponses_server.store.records import can_be_id
from openresponses_server.store.sql.database import Database
from openresponses_server.store.sql.queries import THERE
from openresponses_server.store.sql.tables import response_input as inputs
from openresponses_server.store.sql.tables import responses

_MINE: Final = responses.c.owner == bindparam("of_owner")
_PLACE: Final = tuple_(responses.c.created_at, responses.c.id)
_LAST_ITEM: Final = (
    select(func.substr(inputs.c.item, 1, HEAD_BYTES))
    .where(inputs.c.response_id == responses.c.id)
    .order_by(inputs.c.position.desc())
    .limit(1)
    .scalar_subquery()
)
_HEADS: Final = (
    select(
        responses.c.id,
        responses.c.status,
        responses.c.created_at,
        responses.c.previous_response_id,
        responses.c.last_sequence,
        func.substr(responses.c.response, 1, HEAD_BYTES).label("response"),
        _LAST_ITEM.label("item"),
    )
    .where(_MINE, THERE)
    .order_by(responses.c.created_at.desc(), responses.c.id.desc())
    .limit(bindparam("most"))
)
_FROM: Final = select(responses.c.created_at).where(responses.c.id == bindparam("of_id"), _MINE, THERE)


class SqlListing:
    """A `ListingStore` in the database of a `SqlStore`."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock

    async def heads(
        self, owner: str, wanted: Wanted, after: str | None, limit: int, only: Collection[str] | None = None
    ) -> list[Head]:
        values: dict[str, Any] = {"of_owner": owner, "at": self._clock(), "most": limit}
        if after is not None and not can_be_id(after):
            return []

        def work(connection: Connection) -> list[Head]:
            statement = _narrowed(wanted, only)
            if after is not None:
                begun = connection.execute(_FROM, {**values, "of_id": after}).scalar_one_or_none()
                if begun is None:
                    return []
                statement = statement.where(tuple_(begun, after) > _PLACE)
            return [Head(**row._mapping) for row in connection.execute(statement, values)]

        return await self._database.read(work)


def _narrowed(wanted: Wanted, only: Collection[str] | None) -> Select[Any]:
    statement = _HEADS
    if only is not None:
        statement = statement.where(responses.c.id.in_([each for each in only if can_be_id(each)]))
    if wanted.status:
        statement = statement.where(responses.c.status == wanted.status)
    if wanted.since is not None:
        statement = statement.where(responses.c.created_at >= wanted.since)
    if wanted.until is not None:
        statement = statement.where(responses.c.created_at < wanted.until)
    return statement
