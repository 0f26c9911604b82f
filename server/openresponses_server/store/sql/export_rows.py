"""All records of a database as lines. It reads one record at a time, and long frames one checkpoint at a
time.

It is not part of `transfer`, which loads Alembic.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from sqlalchemy import bindparam, func, literal, select, union_all

from openresponses_server.store.base import StoredConversation
from openresponses_server.store.export_lines import (
    FRAMES_IN_LINE,
    conversation_line,
    frames_line,
    in_lines,
    items_line,
    key_line,
    record_line,
)
from openresponses_server.store.frames import Frames, joined
from openresponses_server.store.idempotency import IdempotencyKey
from openresponses_server.store.records import InputRow
from openresponses_server.store.sql import queries
from openresponses_server.store.sql.key_rows import ALL_KEYS, key_from
from openresponses_server.store.sql.record_rows import Rows, row_in
from openresponses_server.store.sql.tables import conversation_items, conversations, responses
from openresponses_server.store.sql.tables import response_frames as frames
from openresponses_server.store.sql.tables import response_pieces as pieces

_ROWS_AT_ONCE: Final = 10
_SOME: Final = (
    select(*responses.c)
    .where(responses.c.id > bindparam("after"))
    .order_by(responses.c.id)
    .limit(bindparam("most"))
)
_PARTS: Final = (
    select(
        frames.c.first_sequence,
        frames.c.last_sequence,
        (
            func.length(frames.c.data)
            + func.coalesce(
                select(func.sum(func.length(pieces.c.data)))
                .where(
                    pieces.c.response_id == frames.c.response_id,
                    pieces.c.first_sequence == frames.c.first_sequence,
                    pieces.c.piece <= frames.c.pieces,
                )
                .scalar_subquery(),
                0,
            )
        ).label("bytes"),
    )
    .where(frames.c.response_id == bindparam("of_id"))
    .order_by(frames.c.first_sequence)
)
"""The first and last number and the size of the frames of each checkpoint of a response."""
_THIS_ROW: Final = (frames.c.response_id == bindparam("of_id")) & (
    frames.c.first_sequence == bindparam("first")
)
_PIECES: Final = union_all(
    select(literal(0).label("piece"), frames.c.data).where(_THIS_ROW),
    select(pieces.c.piece, pieces.c.data)
    .join(
        frames,
        (frames.c.response_id == pieces.c.response_id) & (frames.c.first_sequence == pieces.c.first_sequence),
    )
    .where(_THIS_ROW, pieces.c.piece <= frames.c.pieces),
).subquery()
_DATA: Final = select(_PIECES.c.data).order_by(_PIECES.c.piece)
"""The data of one checkpoint's frames."""

_CONVERSATIONS: Final = (
    select(conversations.c.id)
    .where(conversations.c.id > bindparam("after"))
    .order_by(conversations.c.id)
    .limit(bindparam("most"))
)
_CONVERSATION: Final = (
    select(
        *(getattr(conversations.c, name) for name in StoredConversation.__struct_fields__),
        conversation_items.c.item_id,
        conversation_items.c.item,
    )
    .outerjoin(conversation_items, conversation_items.c.conversation_id == conversations.c.id)
    .where(conversations.c.id == bindparam("of_id"))
    .order_by(conversation_items.c.position)
)


async def exported(rows: Rows) -> AsyncIterator[bytes]:
    """Yield the lines of an export as `ResponseStore.export` does."""
    after = ""
    while batch := await rows(_SOME, {"after": after, "most": _ROWS_AT_ONCE}):
        for each in batch:
            row = row_in(each)
            items = [item for (item,) in await rows(queries.INPUT, {"of_id": row.id})]
            keys = [IdempotencyKey(*each) for each in await rows(queries.KEYS_OF, {"of_id": row.id})]
            key = next(iter(keys), None)
            parts = await rows(_PARTS, {"of_id": row.id})
            if sum(part.bytes for part in parts) <= FRAMES_IN_LINE:
                frames_of = joined([await _stored(rows, row.id, part) for part in parts])
                yield record_line(row, items, frames_of, key)
            else:
                yield record_line(row, items, None, key)
                for part in parts:
                    yield frames_line(row.id, await _stored(rows, row.id, part))
            after = row.id
    after = ""
    while batch := await rows(_CONVERSATIONS, {"after": after, "most": _ROWS_AT_ONCE}):
        for each in batch:
            async for line in _conversation(rows, each.id):
                yield line
            after = each.id
    for row in await rows(ALL_KEYS, {}):
        yield key_line(key_from(row))


async def _conversation(rows: Rows, conversation_id: str) -> AsyncIterator[bytes]:
    """Yield the conversation as it is at one moment, unless it was deleted meanwhile."""
    records = await rows(_CONVERSATION, {"of_id": conversation_id})
    if records:
        of_items = [InputRow(row.item_id.encode(), row.item) for row in records if row.item_id is not None]
        fields = {name: getattr(records[0], name) for name in StoredConversation.__struct_fields__}
        yield conversation_line(StoredConversation(**fields), len(of_items))
        for some in in_lines(of_items):
            yield items_line(conversation_id, some)


async def _stored(rows: Rows, response_id: str, part: Any) -> Frames:
    """Return the frames of one checkpoint."""
    chunks = await rows(_DATA, {"of_id": response_id, "first": part.first_sequence})
    return Frames(part.first_sequence, part.last_sequence, b"".join([data for (data,) in chunks]))
