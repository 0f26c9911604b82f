"""Leases of runs, read and changed over a connection."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import structlog
from sqlalchemy import Connection, Update

from openresponses_server.store.base import Lease, StoredResponse
from openresponses_server.store.errors import LeaseLost, UnreadableRecord
from openresponses_server.store.sql import queries
from openresponses_server.store.sql.record_rows import read_record, row_in

_log = structlog.get_logger(__name__)


def update_held(connection: Connection, response_id: str, worker: str, changes: dict[str, Any]) -> None:
    """Change the row of a run. Raises LeaseLost when this worker does not hold it."""
    if not _update(connection, response_id, worker, changes):
        raise LeaseLost(response_id, worker)


def end_held(connection: Connection, response_id: str, worker: str, changes: dict[str, Any]) -> bool:
    """The same for its end; False when this worker has stored one already, which stands. Raises LeaseLost."""
    if _update(connection, response_id, worker, changes):
        return True
    if connection.execute(queries.ENDED, {"of_id": response_id, "of_worker": worker}).first() is None:
        raise LeaseLost(response_id, worker)
    return False


def _update(connection: Connection, response_id: str, worker: str, changes: dict[str, Any]) -> bool:
    values = {"of_id": response_id, "of_worker": worker, **changes}
    return connection.execute(queries.UPDATE_HELD, values).rowcount > 0


def renew_leases(
    connection: Connection, held: Sequence[tuple[str, str]], until: float, statement: Update = queries.RENEW
) -> Sequence[str]:
    """Renew the leases of these runs, each (response id, worker); the ids of those that are held so."""
    ids, workers = zip(*held, strict=True)
    values = {"of_ids": ids, "of_workers": workers, "lease_until": until}
    return connection.execute(statement, values).scalars().all()


def acquire_run(connection: Connection, response_id: str, lease: Lease, now: float) -> StoredResponse | None:
    """As `ResponseStore.acquire`."""
    values = {"of_id": response_id, "now": now, "lease_worker": lease.worker, "lease_until": lease.until}
    if not connection.execute(queries.ACQUIRE, values).rowcount:
        return None
    found = connection.execute(queries.GET_ANY, {"of_id": response_id})
    return next(iter(_taken(connection, found)), None)


def claim_runs(
    connection: Connection, statement: Update, lease: Lease, most: int, **named: Any
) -> list[StoredResponse]:
    """Take runs, those that the statement and `named` name."""
    values = {"most": most, "lease_worker": lease.worker, "lease_until": lease.until, **named}
    return _taken(connection, connection.execute(statement, values).all())


def _taken(connection: Connection, found: Iterable[Any]) -> list[StoredResponse]:
    """Records that were just taken. One that can't be read ends where it is, so that it neither keeps the
    others waiting nor is taken again."""
    records = []
    for row in map(row_in, found):
        try:
            records.append(read_record(connection, row))
        except UnreadableRecord as error:
            connection.execute(queries.GIVE_UP, {"of_id": row.id})
            _log.error("store.unreadable", response_id=row.id, code=error.code, cause=str(error.__cause__))
    return records
