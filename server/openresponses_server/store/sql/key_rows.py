"""Managed keys in a database."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, bindparam, delete, func, insert, or_, select, update

from openresponses_bridge.protocol.codec import encode
from openresponses_server.http.managed_keys import KeyChange, ManagedKey
from openresponses_server.limits.owners import KeyLimits
from openresponses_server.store.base import StoreError
from openresponses_server.store.keys import KEPT, MOST_KEYS, KeyVersion
from openresponses_server.store.sql.database import Database
from openresponses_server.store.sql.tables import api_keys as keys
from openresponses_server.store.sql.tables import key_changes as changes
from openresponses_server.store.sql.tables import key_history as history

KEPT_CHANGES: Final = 1000
"""The number of latest changes that are kept: a process that knows an earlier state reads all keys."""
_ONE: Final = 1  # the row that counts changes
ALL_KEYS: Final = select(*keys.c).order_by(keys.c.created_at, keys.c.id)
"""Selects all keys, oldest first."""
_THERE: Final = select(keys.c.id).where(
    or_(keys.c.id == bindparam("of_id"), keys.c.hash == bindparam("of_hash"))
)
_COUNT: Final = select(func.count()).select_from(keys)
_ADD: Final = insert(keys)
_CHANGE: Final = update(keys).where(keys.c.id == bindparam("of_id"))
_VERSION: Final = (
    select(changes.c.number, history.c.tag)
    .outerjoin(history, history.c.number == changes.c.number)
    .where(changes.c.id == _ONE)
)
# Limited on both sides, so that PostgreSQL expects few rows and reads no more keys than these.
_CHANGED: Final = (
    select(history.c.number, history.c.tag, history.c.key_id, *keys.c)
    .outerjoin(keys, keys.c.id == history.c.key_id)
    .where(history.c.number.between(bindparam("since"), bindparam("until")))
    .order_by(history.c.number)
)
_RECORD: Final = insert(history)
_FORGET: Final = delete(history).where(
    or_(history.c.number <= bindparam("up_to"), history.c.number >= bindparam("first"))
)
_ENDED: Final = or_(keys.c.revoked_at < bindparam("before"), keys.c.expires_at < bindparam("before"))
_FIND_ENDED: Final = select(keys.c.id).where(_ENDED)
_SWEEP: Final = delete(keys).where(keys.c.id.in_(bindparam("of_ids", expanding=True)), _ENDED)
_models: Final = msgspec.json.Decoder(tuple[str, ...])
_limits: Final = msgspec.json.Decoder(KeyLimits)


class SqlKeys:
    """A `KeyStore` in the database of a `SqlStore`."""

    def __init__(self, database: Database, dialect: str) -> None:
        self._database = database
        self._dialect = dialect

    async def add(self, key: ManagedKey) -> None:
        def work(connection: Connection) -> None:
            record_changes(connection, self._dialect, [key.id])
            if not insert_key(connection, key):
                raise StoreError(StoreError.CONFLICT, "This key already exists.")

        await self._database.write(work)

    async def all(self) -> list[ManagedKey]:
        return await self._database.read(
            lambda connection: [key_from(row) for row in connection.execute(ALL_KEYS)]
        )

    async def change(self, key_id: str, change: KeyChange) -> bool:
        values = _columns(change.values)

        def work(connection: Connection) -> bool:
            record_changes(connection, self._dialect, [key_id])
            changed = connection.execute(_CHANGE.values(**values), {"of_id": key_id})
            return changed.rowcount > 0

        return bool(values) and await self._database.write(work)

    async def version(self) -> KeyVersion:
        def work(connection: Connection) -> KeyVersion:
            row = connection.execute(_VERSION).first()
            return KeyVersion() if row is None else KeyVersion(*row)

        return await self._database.read(work)

    async def changed(self, since: KeyVersion, until: KeyVersion) -> dict[str, ManagedKey | None] | None:
        def work(connection: Connection) -> dict[str, ManagedKey | None] | None:
            values = {"since": since.number, "until": until.number}
            rows = connection.execute(_CHANGED, values).all()
            known = [KeyVersion(row.number, row.tag) for row in rows[:1]]
            if known != [since] or len(rows) != until.number - since.number + 1:
                return None
            return {row.key_id: None if row.id is None else key_from(row) for row in rows[1:]}

        return await self._database.read(work)

    async def sweep(self, now: float) -> int:
        values = {"before": now - KEPT}

        def work(connection: Connection) -> int:
            ended = connection.scalars(_FIND_ENDED, values).all()
            if not ended:
                return 0
            record_changes(connection, self._dialect, ended)
            return connection.execute(_SWEEP, {**values, "of_ids": ended}).rowcount

        return await self._database.write(work)


def insert_key(connection: Connection, key: ManagedKey) -> bool:
    """Insert this key. Returns False if its id or hash exists. Raises StoreError `store_full`."""
    if connection.execute(_THERE, {"of_id": key.id, "of_hash": key.hash}).first() is not None:
        return False
    if (connection.scalar(_COUNT) or 0) >= MOST_KEYS:
        raise StoreError(StoreError.FULL, f"There are {MOST_KEYS} keys, which is the limit.")
    connection.execute(_ADD, _row(key))
    return True


def record_changes(connection: Connection, dialect: str, key_ids: Sequence[str]) -> None:
    """Make all processes read these keys again after this transaction. Call it before the keys are changed:
    it locks, so that writers follow one another and their transactions end in the order of the numbers."""
    number = connection.execute(_count(dialect), {"id": _ONE, "number": len(key_ids)}).scalar_one()
    first = number - len(key_ids) + 1
    # there are later ones only if somebody has set the number back
    connection.execute(_FORGET, {"up_to": number - KEPT_CHANGES, "first": first})
    rows = [
        {"number": each, "tag": secrets.randbits(63), "key_id": key_id}
        for each, key_id in enumerate(key_ids, first)
    ]
    connection.execute(_RECORD, rows[-KEPT_CHANGES:])


@cache
def _count(dialect: str) -> Any:
    statement = import_module(f"sqlalchemy.dialects.{dialect}").insert(changes)
    return statement.on_conflict_do_update(
        index_elements=[changes.c.id], set_={"number": changes.c.number + statement.excluded.number}
    ).returning(changes.c.number)


def key_from(row: Any) -> ManagedKey:
    """Return the key in a row."""
    return ManagedKey(
        id=row.id,
        hash=row.hash,
        last_four=row.last_four,
        name=row.name,
        owner=row.owner,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        models=None if row.models is None else _models.decode(row.models),
        limits=_limits.decode(row.limits),
    )


def _row(key: ManagedKey) -> dict[str, Any]:
    return _columns({name: getattr(key, name) for name in key.__struct_fields__})


def _columns(values: dict[str, Any]) -> dict[str, Any]:
    """Return a key's fields as they are stored."""
    as_json = {name: encode(values[name]) for name in ("models", "limits") if values.get(name) is not None}
    return values | as_json
