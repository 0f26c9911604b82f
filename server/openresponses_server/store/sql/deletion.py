"""Deletes responses over a connection. A turn that later turns continue is hidden, and deleted with the last
of them.

A hidden row has the owner's name with a prefix (`records.HIDDEN`). When a row is deleted, the hidden rows
before it are deleted too unless other turns continue them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Select,
    and_,
    bindparam,
    delete,
    exists,
    func,
    or_,
    select,
    update,
)

from openresponses_server.store.records import HIDDEN, hidden_row
from openresponses_server.store.sql import queries
from openresponses_server.store.sql.record_rows import row_in
from openresponses_server.store.sql.tables import (
    idempotency_keys,
    response_frames,
    response_output,
    response_pieces,
    responses,
)

_later: Final = responses.alias("later")
_EXPIRED: Final = (responses.c.expires_at <= bindparam("now")) & responses.c.lease_until.is_(None)


def _stands_on(turn: Any) -> ColumnElement[bool]:
    """Return the condition that `later` is a turn of the same owner that continues this one."""
    return and_(
        _later.c.previous_response_id == turn.c.id,
        _later.c.id != turn.c.id,
        func.ltrim(_later.c.owner, HIDDEN) == func.ltrim(turn.c.owner, HIDDEN),
    )


_NEEDED: Final = exists().where(_stands_on(responses)).label("needed")
_COLUMNS: Final = (responses.c.id, responses.c.owner, responses.c.previous_response_id, _NEEDED)
_OWN: Final = (
    select(*_COLUMNS)
    .where(responses.c.id == bindparam("of_id"), responses.c.owner == bindparam("of_owner"))
    .with_for_update()
)
_SOME_EXPIRED: Final = (
    select(*_COLUMNS)
    .where(_EXPIRED)
    # newest first, since turns before it may be kept only for it
    .order_by(responses.c.expires_at.desc(), responses.c.id)
    .limit(bindparam("most"))
    .with_for_update(skip_locked=True)
)
_STILL_NEEDED: Final = select(*responses.c).where(responses.c.id == bindparam("of_id"), _NEEDED)
_REMOVE: Final = delete(responses).where(responses.c.id.in_(bindparam("of_ids", expanding=True)))
_HIDE: Final = update(responses).where(responses.c.id == bindparam("of_id"))
_PARTS: Final = [
    delete(table).where(table.c.response_id == bindparam("of_id"))
    for table in (response_output, response_frames, response_pieces, idempotency_keys)
]


def _unneeded() -> Select[Any]:
    """Return the query of turns that can be removed: those among these ids, and before them, that are hidden
    or expired and continued by no turn that stays."""

    def over(turn: FromClause) -> ColumnElement[bool]:
        expired = (turn.c.expires_at <= bindparam("now")) & turn.c.lease_until.is_(None)
        return or_(func.substr(turn.c.owner, 1, 1) == HIDDEN, expired)

    last, before = responses.alias("last"), responses.alias("before")
    found = (
        select(last.c.id, last.c.owner, last.c.previous_response_id)
        .where(last.c.id.in_(bindparam("of_ids", expanding=True)), over(last))
        .where(~exists().where(_stands_on(last)).correlate(last))
        .cte("found", recursive=True)
    )
    others = exists().where(_stands_on(before), _later.c.id != found.c.id).correlate(before, found)
    back = (
        select(before.c.id, before.c.owner, before.c.previous_response_id)
        .join(found, before.c.id == found.c.previous_response_id)
        .where(func.ltrim(before.c.owner, HIDDEN) == func.ltrim(found.c.owner, HIDDEN))
        .where(over(before), ~others)
    )
    return select(found.union(back))


_UNNEEDED: Final = _unneeded()


def delete_response(connection: Connection, response_id: str, owner: str, now: float) -> bool:
    """Delete a response as `ResponseStore.delete` does."""
    row = connection.execute(_OWN, {"of_id": response_id, "of_owner": owner}).one_or_none()
    if row is None:
        return False
    if row.needed:
        _hide(connection, response_id)
    else:
        connection.execute(_REMOVE, {"of_ids": [response_id]})
        _remove_unneeded(connection, {row.previous_response_id}, now)
    return True


def delete_expired(connection: Connection, now: float, most: int) -> int:
    """Delete some of the responses that had expired at `now`. Returns how many; 0 when none is left."""
    rows = connection.execute(_SOME_EXPIRED, {"now": now, "most": most}).all()
    last = [row for row in rows if not row.needed]
    for ids in queries.portions(row.id for row in last):
        connection.execute(_REMOVE, {"of_ids": ids})
    removed = _remove_unneeded(connection, {row.previous_response_id for row in last}, now)
    hidden = sum(_hide(connection, row.id) for row in rows if row.needed)
    return len(last) + removed + hidden


def _hide(connection: Connection, response_id: str) -> bool:
    """Keep only those parts of the response that later turns need. Returns False if no turn continues it any
    more."""
    row = connection.execute(_STILL_NEEDED, {"of_id": response_id}).one_or_none()
    if row is None:
        return False
    fields = msgspec.structs.asdict(hidden_row(row_in(row)))
    del fields["id"]
    connection.execute(_HIDE, {"of_id": response_id, **fields})
    for statement in _PARTS:
        connection.execute(statement, {"of_id": response_id})
    return True


def _remove_unneeded(connection: Connection, candidates: Collection[str | None], now: float) -> int:
    """Delete hidden or expired turns that no turn continues any more, and those that were kept only for them.
    Returns how many of them were not hidden."""
    shown = 0
    while candidates:
        rows: list[Any] = []
        for ids in queries.portions(each for each in candidates if each is not None):
            rows += connection.execute(_UNNEEDED, {"of_ids": ids, "now": now}).all()
        for ids in queries.portions(row.id for row in rows):
            connection.execute(_REMOVE, {"of_ids": ids})
        shown += sum(not row.owner.startswith(HIDDEN) for row in rows)
        # if several branches were deleted together, only now the turn before them is continued by none
        candidates = {row.previous_response_id for row in rows} - {row.id for row in rows}
    return shown
