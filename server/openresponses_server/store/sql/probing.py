"""Whether a database takes what is written, found out by writing."""

from __future__ import annotations

import math
import os
import secrets
import time
from functools import partial
from typing import Final

from sqlalchemy import Connection

from openresponses_server.store.base import NO_ID
from openresponses_server.store.frames import Frames
from openresponses_server.store.records import Row
from openresponses_server.store.sql import queries
from openresponses_server.store.sql.database import Database
from openresponses_server.store.sql.deletion import delete_response
from openresponses_server.store.sql.record_rows import put_frames, put_response

_WRITTEN_EVERY: Final = 10.0  # seconds
_USUAL: Final = 16 * 1024  # bytes
_AFTER_FULL: Final = 1024 * 1024  # bytes; a few may fit into pages that are free, while responses do not
_OWNER: Final = "readiness"


class Probe:
    """Reads at each look; writes and deletes when it has not for a while. A row that a crash leaves
    has expired already and is swept like others."""

    def __init__(self, database: Database, dialect: str) -> None:
        self._database = database
        self._dialect = dialect
        self._next_at = -math.inf

    async def look(self) -> None:
        """Raises StoreError."""
        if self._database.was_full:
            await self._write(_AFTER_FULL)
            self._database.was_full = False
        elif time.monotonic() >= self._next_at:
            await self._write(_USUAL)
        else:
            await self._database.read(_read)

    async def _write(self, size: int) -> None:
        row = _row(time.time())
        frames = Frames(0, 0, os.urandom(size))  # does not compress

        def put(connection: Connection) -> None:
            put_response(connection, self._dialect, row)
            put_frames(connection, self._dialect, row.id, frames)

        await self._database.write(put)
        delete = partial(delete_response, response_id=row.id, owner=row.owner, now=row.created_at)
        await self._database.write(delete)
        self._next_at = time.monotonic() + _WRITTEN_EVERY


def _read(connection: Connection) -> None:
    connection.execute(queries.STANDING, {"of_id": NO_ID, "of_owner": _OWNER, "at": 0.0}).all()


def _row(now: float) -> Row:
    return Row(
        id=f"probe_{secrets.token_hex(12)}",
        owner=_OWNER,
        previous_response_id=None,
        status="completed",
        created_at=now,
        updated_at=now,
        expires_at=now - 1,  # so that it is never found
        lease_worker=None,
        lease_until=None,
        last_sequence=0,
        request=None,
        response=b"{}",
    )
