"""Conversations in a database.

A change of a conversation's items changes the conversation's row first, which locks it: writers append one
after the other, each at the next free positions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache, partial
from typing import Any, Final

from sqlalchemy import (
    BindParameter,
    Connection,
    Select,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from openresponses_bridge.protocol.response import Response
from openresponses_server.store.base import (
    ConversationSize,
    CursorError,
    InputPage,
    ListedItem,
    Order,
    StoredConversation,
    StoreError,
)
from openresponses_server.store.conversations import full, item_exists, rows_of, total_size, turn_rows
from openresponses_server.store.records import InputRow, can_be_id, listed_item
from openresponses_server.store.sql import queries
from openresponses_server.store.sql.database import Database
from openresponses_server.store.sql.tables import conversation_items as items
from openresponses_server.store.sql.tables import conversations, responses
from openresponses_server.store.sql.tables import response_input as inputs
from openresponses_server.store.sql.writes import Write, execute

_SWEPT_AT_ONCE: Final = 10  # with up to some thousand items each
_FIRST: Final = -1
_LAST: Final = 2**31 - 1

_ID: Final = conversations.c.id == bindparam("of_id")
_READABLE: Final = or_(conversations.c.expires_at.is_(None), conversations.c.expires_at > bindparam("at"))
_OWNED: Final = _ID & (conversations.c.owner == bindparam("of_owner")) & _READABLE
_PARTS: Final[list[Any]] = [
    getattr(conversations.c, name) for name in ("id", "owner", "created_at", "expires_at", "metadata")
]
_GET: Final = select(*_PARTS).where(_OWNED)
_EXISTS: Final = select(conversations.c.id).where(_ID)
_COUNT: Final = select(func.count()).select_from(
    select(conversations.c.id)
    .where(conversations.c.owner == bindparam("of_owner"), _READABLE)
    .limit(bindparam("most"))
    .subquery()
)
_UPDATE: Final = (
    update(conversations)
    .where(_OWNED)
    .values(metadata=bindparam("given"), expires_at=bindparam("until"))
    .returning(*_PARTS)
)
_DELETE: Final = delete(conversations).where(_OWNED)
_EXPIRED: Final = (
    select(conversations.c.id)
    .where(conversations.c.expires_at <= bindparam("now"))
    .limit(bindparam("most"))
    .with_for_update(skip_locked=True)
)
_REMOVE: Final = delete(conversations).where(conversations.c.id.in_(bindparam("of_ids", expanding=True)))
_EXTEND: Final = (
    update(conversations)
    .where(_ID)
    .values(
        next_position=conversations.c.next_position + bindparam("more"),
        item_count=conversations.c.item_count + bindparam("more"),
        bytes=conversations.c.bytes + bindparam("size"),
    )
    .returning(conversations.c.next_position)
)
_SHRINK: Final = (
    update(conversations)
    .where(_ID)
    .values(
        item_count=conversations.c.item_count - bindparam("fewer"),
        bytes=conversations.c.bytes - bindparam("size"),
    )
)
_TOUCH: Final = (
    update(conversations)
    .where(_OWNED)
    .values(expires_at=bindparam("until"))
    .returning(*_PARTS, conversations.c.item_count, conversations.c.bytes)
)
_SIZE: Final = select(conversations.c.item_count, conversations.c.bytes).where(_OWNED)
_TAKEN: Final = select(items.c.item_id).where(
    items.c.conversation_id == bindparam("of_id"), items.c.item_id.in_(bindparam("names", expanding=True))
)
_THIS: Final = (items.c.conversation_id == bindparam("of_id")) & (items.c.item_id == bindparam("of_item"))
_ITEM: Final = (
    select(items.c.item_id, items.c.item)
    .join(conversations, conversations.c.id == items.c.conversation_id)
    .where(_OWNED, _THIS)
)
_REMOVE_ITEM: Final = delete(items).where(_THIS).returning(func.length(items.c.item))
_AT: Final = (
    select(items.c.position)
    .join(conversations, conversations.c.id == items.c.conversation_id)
    .where(_OWNED, _THIS)
)
_ITEMS: Final = (
    select(items.c.item_id, items.c.item)
    .where(items.c.conversation_id == bindparam("of_id"))
    .order_by(items.c.position)
)
_LOCK: Final = select(conversations.c.id).where(_ID).with_for_update()
_REMOVE_TURN: Final = (
    delete(items)
    .where(items.c.conversation_id == bindparam("of_id"), items.c.response_id == bindparam("of_response"))
    .returning(func.length(items.c.item))
)
_TURN: Final = select(responses.c.owner, responses.c.expires_at).where(responses.c.id == bindparam("of_id"))
_GIVEN: Final = (
    select(inputs.c.item_id, inputs.c.item)
    .where(inputs.c.response_id == bindparam("of_id"))
    .order_by(inputs.c.position)
)


@cache
def _page(order: Order) -> Select[Any]:
    """Return the query of the items on one side of a position."""
    position = items.c.position
    start: BindParameter[int] = bindparam("from_position")
    beyond = position > start if order == "asc" else position < start
    return (
        select(items.c.item_id, items.c.item)
        .where(items.c.conversation_id == bindparam("of_id"), beyond)
        .order_by(position if order == "asc" else position.desc())
        .limit(bindparam("most"))
    )


class SqlConversations:
    """A `ConversationStore` in the database of a `SqlStore`."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock

    async def create(self, conversation: StoredConversation, items: Sequence[ListedItem]) -> None:
        work = partial(insert_conversation, conversation=conversation, rows=rows_of(items))
        if not await self._database.write(work):
            raise StoreError(StoreError.CONFLICT, "A conversation with this id already exists.")

    async def get(self, conversation_id: str, owner: str) -> StoredConversation | None:
        return await self._one(_GET, conversation_id, owner)

    async def count(self, owner: str, most: int) -> int:
        values = {"of_owner": owner, "at": self._clock(), "most": most}
        total = await self._database.read(lambda connection: connection.scalar(_COUNT, values))
        return total or 0

    async def update(
        self, conversation_id: str, owner: str, metadata: bytes, expires_at: float | None
    ) -> StoredConversation | None:
        values = {**self._whose(conversation_id, owner), "given": metadata, "until": expires_at}

        def work(connection: Connection) -> StoredConversation | None:
            return _conversation(connection.execute(_UPDATE, values).one_or_none())

        return await self._database.write(work) if can_be_id(conversation_id) else None

    async def delete(self, conversation_id: str, owner: str) -> bool:
        values = self._whose(conversation_id, owner)

        def work(connection: Connection) -> bool:
            return connection.execute(_DELETE, values).rowcount > 0

        return can_be_id(conversation_id) and await self._database.write(work)

    async def add(
        self,
        conversation_id: str,
        owner: str,
        items: Sequence[ListedItem],
        most: ConversationSize,
        expires_at: float | None,
    ) -> bool:
        whose = self._whose(conversation_id, owner)
        work = partial(_add, whose=whose, rows=rows_of(items), most=most, until=expires_at)
        return can_be_id(conversation_id) and await self._database.write(work)

    async def page(
        self,
        conversation_id: str,
        owner: str,
        *,
        after: str | None = None,
        limit: int = 20,
        order: Order = "desc",
    ) -> InputPage | None:
        whose = self._whose(conversation_id, owner)

        def work(connection: Connection) -> InputPage | None:
            if connection.execute(_GET, whose).one_or_none() is None:
                return None
            position: int | None = _FIRST if order == "asc" else _LAST
            if after is not None:
                known = can_be_id(after)
                position = connection.scalar(_AT, {**whose, "of_item": after}) if known else None
                if position is None:
                    raise CursorError("after", after)
            values = {"of_id": conversation_id, "from_position": position, "most": limit + 1}
            rows = connection.execute(_page(order), values).all()
            shown = [_listed(conversation_id, row) for row in rows[:limit]]
            return InputPage(shown, len(rows) > limit)

        return await self._database.read(work) if can_be_id(conversation_id) else None

    async def item(self, conversation_id: str, item_id: str, owner: str) -> ListedItem | None:
        if not (can_be_id(conversation_id) and can_be_id(item_id)):
            return None
        values = {**self._whose(conversation_id, owner), "of_item": item_id}
        row = await self._database.read(lambda connection: connection.execute(_ITEM, values).one_or_none())
        return None if row is None else _listed(conversation_id, row)

    async def remove(
        self, conversation_id: str, item_id: str, owner: str, expires_at: float | None
    ) -> StoredConversation | None:
        if not (can_be_id(conversation_id) and can_be_id(item_id)):
            return None
        values = {**self._whose(conversation_id, owner), "of_item": item_id, "until": expires_at}

        def work(connection: Connection) -> StoredConversation | None:
            if connection.execute(_ITEM, values).one_or_none() is None:
                return None
            row = connection.execute(_TOUCH, values).one_or_none()
            size = connection.execute(_REMOVE_ITEM, values).scalar_one_or_none()
            if row is None or size is None:  # deleted meanwhile
                return None
            connection.execute(_SHRINK, {"of_id": conversation_id, "fewer": 1, "size": size})
            return _conversation(row)

        return await self._database.write(work)

    async def size(self, conversation_id: str, owner: str) -> ConversationSize | None:
        if not can_be_id(conversation_id):
            return None
        values = self._whose(conversation_id, owner)
        row = await self._database.read(lambda connection: connection.execute(_SIZE, values).one_or_none())
        return None if row is None else ConversationSize(row.item_count, row.bytes)

    async def items(self, conversation_id: str, owner: str) -> list[ListedItem] | None:
        values = self._whose(conversation_id, owner)

        def work(connection: Connection) -> list[ListedItem] | None:
            if connection.execute(_GET, values).one_or_none() is None:
                return None
            rows = connection.execute(_ITEMS, {"of_id": conversation_id})
            return [_listed(conversation_id, row) for row in rows]

        return await self._database.read(work) if can_be_id(conversation_id) else None

    async def sweep(self, now: float) -> int:
        def work(connection: Connection) -> int:
            ids = connection.scalars(_EXPIRED, {"now": now, "most": _SWEPT_AT_ONCE}).all()
            connection.execute(_REMOVE, {"of_ids": ids})
            return len(ids)

        total = 0
        while swept := await self._database.write(work):
            total += swept
        return total

    async def _one(
        self, statement: Select[Any], conversation_id: str, owner: str
    ) -> StoredConversation | None:
        if not can_be_id(conversation_id):
            return None
        values = self._whose(conversation_id, owner)
        row = await self._database.read(
            lambda connection: connection.execute(statement, values).one_or_none()
        )
        return _conversation(row)

    def _whose(self, conversation_id: str, owner: str) -> dict[str, Any]:
        return {"of_id": conversation_id, "of_owner": owner, "at": self._clock()}


def insert_conversation(
    connection: Connection, conversation: StoredConversation, rows: Sequence[InputRow]
) -> bool:
    """Insert a conversation with its items; False if its id is in use."""
    if connection.execute(_EXISTS, {"of_id": conversation.id}).one_or_none() is not None:
        return False
    size = total_size(rows)
    values = {
        "id": conversation.id,
        "owner": conversation.owner,
        "created_at": conversation.created_at,
        "expires_at": conversation.expires_at,
        "next_position": size.items,
        "item_count": size.items,
        "bytes": size.bytes,
        "metadata": conversation.metadata,
    }
    connection.execute(insert(conversations), values)
    _insert_items(connection, conversation.id, rows, 0)
    return True


def end_in_conversation(
    connection: Connection, write: Write, response: Response, conversation_id: str, now: float
) -> bool:
    """Write the end of a run and append the turn to its conversation. Returns what `writes.execute` does."""
    if not execute(connection, write):
        return False
    append_turn(connection, response, conversation_id, now)
    return True


def append_turn(connection: Connection, response: Response, conversation_id: str, now: float) -> None:
    """Append the items of an ended and stored response to the conversation, if that still exists."""
    turn = connection.execute(_TURN, {"of_id": response.id}).one()
    whose = {"of_id": conversation_id, "of_owner": turn.owner, "at": now, "until": turn.expires_at}
    # locks it, so that what is looked up stays true
    if connection.execute(_TOUCH, whose).one_or_none() is None:
        return
    given = [InputRow(row.item_id, row.item) for row in connection.execute(_GIVEN, {"of_id": response.id})]
    rows = turn_rows(response, given, partial(_taken, connection, conversation_id))
    if rows:
        insert_more(connection, conversation_id, rows, response.id)


def remove_turn(connection: Connection, response_id: str, conversation_id: str) -> None:
    """Remove the items that this response's end has appended to the conversation."""
    if connection.execute(_LOCK, {"of_id": conversation_id}).one_or_none() is None:
        return
    named = {"of_id": conversation_id, "of_response": response_id}
    sizes = connection.execute(_REMOVE_TURN, named).scalars().all()
    connection.execute(_SHRINK, {"of_id": conversation_id, "fewer": len(sizes), "size": sum(sizes)})


def _add(
    connection: Connection,
    whose: dict[str, Any],
    rows: Sequence[InputRow],
    most: ConversationSize,
    until: float | None,
) -> bool:
    there = connection.execute(_TOUCH, {**whose, "until": until}).one_or_none()
    if there is None:
        return False
    in_use = _taken(connection, whose["of_id"], [row.item_id for row in rows])
    for index, row in enumerate(rows):
        if row.item_id in in_use:
            raise item_exists(row.item_id.decode(), index)
    more = total_size(rows)
    grown = ConversationSize(there.item_count + more.items, there.bytes + more.bytes)
    if grown.items > most.items or grown.bytes > most.bytes:
        raise full(grown, most)
    insert_more(connection, whose["of_id"], rows)
    return True


def _insert_items(
    connection: Connection,
    conversation_id: str,
    rows: Sequence[InputRow],
    first: int,
    response_id: str | None = None,
) -> None:
    values = [
        {
            "conversation_id": conversation_id,
            "position": position,
            "item_id": row.item_id.decode(),
            "item": row.item,
            "response_id": response_id,
        }
        for position, row in enumerate(rows, first)
    ]
    if values:
        connection.execute(insert(items), values)


def insert_more(
    connection: Connection, conversation_id: str, rows: Sequence[InputRow], response_id: str | None = None
) -> None:
    """Append items, those of a response if `response_id` is given, to a conversation whose row this
    transaction has locked or inserted."""
    size = total_size(rows)
    values = {"of_id": conversation_id, "more": size.items, "size": size.bytes}
    first = connection.scalar(_EXTEND, values) - size.items
    _insert_items(connection, conversation_id, rows, first, response_id)


def _taken(connection: Connection, conversation_id: str, names: Collection[bytes]) -> set[bytes]:
    present: set[bytes] = set()
    for some in queries.portions(names):
        texts = [name.decode() for name in some]
        present.update(
            name.encode() for name in connection.scalars(_TAKEN, {"of_id": conversation_id, "names": texts})
        )
    return present


def _conversation(row: Any) -> StoredConversation | None:
    if row is None:
        return None
    return StoredConversation(row.id, row.owner, row.created_at, row.expires_at, row.metadata)


def _listed(conversation_id: str, row: Any) -> ListedItem:
    return listed_item(conversation_id, row.item_id.encode(), row.item)
