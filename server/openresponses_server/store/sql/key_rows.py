"""Managed keys in a database."""

from __future__ import annotations

from functools import cache, partial
from importlib import import_module
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, bindparam, delete, func, insert, or_, select, update

from openresponses_bridge.protocol.codec import encode
from openresponses_server.http.managed_keys import KeyChange, ManagedKey
from openresponses_server.limits.owners import KeyLimits
from openresponses_server.store.base import StoreError
from openresponses_server.store.keys import KEPT, MOST_KEYS
from openresponses_server.store.sql.database import Database
from openresponses_server.store.sql.tables import api_keys as keys
from openresponses_server.store.sql.tables import key_changes as changes

_ONE: Final = 1  # the row that counts changes
ALL_KEYS: Final = select(*keys.c).order_by(keys.c.created_at, keys.c.id)
"""All keys, oldest first."""
_THERE: Final = select(keys.c.id).where(
    or_(keys.c.id == bindparam("of_id"), keys.c.hash == bindparam("of_hash"))
)
_COUNT: Final = select(func.count()).select_from(keys)
_ADD: Final = insert(keys)
_CHANGE: Final = update(keys).where(keys.c.id == bindparam("of_id"))
_VERSION: Final = select(changes.c.number).where(changes.c.id == _ONE)
_SWEEP: Final = delete(keys).where(
    or_(keys.c.revoked_at < bindparam("before"), keys.c.expires_at < bindparam("before"))
)
_models: Final = msgspec.json.Decoder(tuple[str, ...])
_limits: Final = msgspec.json.Decoder(KeyLimits)


class SqlKeys:
    """A `KeyStore`."""

    def __init__(self, database: Database, dialect: str) -> None:
        self._database = database
        self._dialect = dialect

    async def add(self, key: ManagedKey) -> None:
        def work(connection: Connection) -> None:
            count_change(connection, self._dialect)  # first: it locks, so that one writer follows another
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
            count_change(connection, self._dialect)
            changed = connection.execute(_CHANGE.values(**values), {"of_id": key_id})
            return changed.rowcount > 0

        return bool(values) and await self._database.write(work)

    async def version(self) -> int:
        return await self._database.read(lambda connection: connection.scalar(_VERSION) or 0)

    async def sweep(self, now: float) -> int:
        return await self._database.write(partial(_swept, before=now - KEPT))


def insert_key(connection: Connection, key: ManagedKey) -> bool:
    """Insert this key; False if its id or hash exists. Raises StoreError `store_full`."""
    if connection.execute(_THERE, {"of_id": key.id, "of_hash": key.hash}).first() is not None:
        return False
    if (connection.scalar(_COUNT) or 0) >= MOST_KEYS:
        raise StoreError(StoreError.FULL, f"There are {MOST_KEYS} keys, which is the limit.")
    connection.execute(_ADD, _row(key))
    return True


def count_change(connection: Connection, dialect: str) -> None:
    """Have all processes read the keys again after this transaction."""
    connection.execute(_count_change(dialect), {"id": _ONE, "number": 1})


@cache
def _count_change(dialect: str) -> Any:
    statement = import_module(f"sqlalchemy.dialects.{dialect}").insert(changes)
    return statement.on_conflict_do_update(
        index_elements=[changes.c.id], set_={"number": changes.c.number + 1}
    )


def key_from(row: Any) -> ManagedKey:
    """The key of a row."""
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
    """Those of a key's fields as they are stored."""
    as_json = {name: encode(values[name]) for name in ("models", "limits") if values.get(name) is not None}
    return values | as_json


def _swept(connection: Connection, before: float) -> int:
    return connection.execute(_SWEEP, {"before": before}).rowcount
