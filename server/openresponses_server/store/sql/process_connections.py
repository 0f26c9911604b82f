"""Processes of any machine, each with a connection to PostgreSQL that bears its name: it is closed when its
process ends. A connection may be lost in other ways too, so that its end counts only when the process has not
come back and has renewed no lease for longer than living ones take for that."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog
from msgspec import Struct
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from openresponses_server.store.sql import queries
from openresponses_server.store.sql.failures import FAILURES

NAME: Final = "openresponses-bridge process "
"""Begins the `application_name` of such a connection."""

_SHORTEST: Final = 3.0  # seconds that a process has to come back
_OF_A_LEASE: Final = 0.4  # living ones renew it every quarter
_LEAVING: Final = 1.0  # seconds that closing may take
_log = structlog.get_logger(__name__)

_NAMES: Final = text(
    "SELECT application_name FROM pg_stat_activity"
    f" WHERE datname = current_database() AND application_name LIKE '{NAME}%'"
)


class _Missed(Struct):
    """A process whose connection is gone: since when, and until when its last lease was."""

    since: float
    until: float | None


class ProcessConnections:
    """The connection of `process`, and a look at those of the others. `connect` makes the engine for one
    connection with this `application_name`."""

    def __init__(self, connect: Callable[[str], AsyncEngine], process: str, lease: float) -> None:
        self._engine = connect(NAME + process)
        self._patience = max(_SHORTEST, lease * _OF_A_LEASE)
        self._connection: AsyncConnection | None = None
        self._seen: set[str] = set()
        self._missed: dict[str, _Missed] = {}

    async def appear(self) -> None:
        await self._looked()

    async def departed(self) -> set[str]:
        names = await self._looked()
        if names is None:
            return set()
        departed: set[str] = set()
        now = time.monotonic()
        self._seen |= names
        self._missed = {name: missed for name, missed in self._missed.items() if name not in names}
        try:
            for name in self._seen - names:
                missed = self._missed.get(name)
                if missed is None:
                    self._missed[name] = _Missed(now, await self._last_lease(name))
                elif now - missed.since > self._patience:
                    until = await self._last_lease(name)
                    if until == missed.until:
                        departed.add(name)
                    else:
                        self._missed[name] = _Missed(now, until)
        except FAILURES as error:
            await self._lost(error)
        return departed

    async def forget(self, process: str) -> None:
        self._seen.discard(process)
        self._missed.pop(process, None)

    async def leave(self) -> None:
        with suppress(*FAILURES):
            async with asyncio.timeout(_LEAVING):
                await self._disconnect()

    async def _looked(self) -> set[str] | None:
        """The names of those that are connected; None when that can't be known."""
        try:
            if self._connection is None:
                self._connection = await self._engine.connect()
            found = await self._connection.execute(_NAMES)
            return {name.removeprefix(NAME) for (name,) in found}
        except FAILURES as error:
            await self._lost(error)
            return None

    async def _last_lease(self, process: str) -> float | None:
        assert self._connection is not None

        def work(connection: Connection) -> float | None:
            until: float | None = connection.scalar(queries.LAST_LEASE, {"of_process": f"{process}-"})
            return until

        return await self._connection.run_sync(work)

    async def _lost(self, error: Exception) -> None:
        """What ended this connection may have ended all of them: the others are to be seen anew first."""
        _log.warning("presence.failed", error=type(error).__name__)
        self._seen.clear()
        self._missed.clear()
        with suppress(*FAILURES):
            await self._disconnect()

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
        await self._engine.dispose()
