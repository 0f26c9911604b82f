"""A store in a database: a SQLite file for one machine, PostgreSQL for many."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final

from sqlalchemy import URL, Connection, CursorResult

from bridge.protocol.codec import decode_response, encode
from bridge.protocol.input_items import InputItem
from bridge.protocol.response import Response
from server.frames import Frames
from server.sessions import queries
from server.sessions.base import InputPage, Lease, Order, StoredResponse, Turn
from server.sessions.database import open_database
from server.sessions.errors import CursorError, LeaseLost
from server.sessions.item_rows import find_items, put_output_names
from server.sessions.links import in_order
from server.sessions.record_rows import put_frames, put_input, put_response
from server.sessions.records import (
    Row,
    can_be_id,
    decode_input,
    export_line,
    id_bytes,
    input_rows,
    listed_item,
    record_of,
    row_of,
    window,
)

_EVERY_POSITION: Final = (-1, 2**31 - 1)
_HIGHEST: Final = 2**62  # what a column takes, and more than any sequence number
_FRAMES_AT_ONCE: Final = 32
_ROWS_AT_ONCE: Final = 50
_SWEPT_AT_ONCE: Final = 500
_RENEWED_AT_ONCE: Final = 500


class SqlStore:
    """Responses in the database at `url` (see `locations`). It is opened by the first call, or by `open`."""

    def __init__(self, url: URL, clock: Callable[[], float] = time.time) -> None:
        self._database = open_database(url)
        self._dialect = url.get_backend_name()
        self._clock = clock

    async def open(self) -> None:
        """Connect now, so that what is wrong shows now. Raises StoreError."""
        await self._database.open()

    async def close(self) -> None:
        await self._database.close()

    async def now(self) -> float:
        return await self._database.now()

    async def get(self, response_id: str, owner: str = "") -> StoredResponse | None:
        if not can_be_id(response_id):
            return None

        def work(connection: Connection) -> StoredResponse | None:
            found = connection.execute(queries.GET, {"of_id": response_id, "of_owner": owner})
            row = found.one_or_none()
            return None if row is None else _record(connection, _row(row))

        return await self._database.read(work)

    async def put(self, record: StoredResponse, frames: Frames | None = None) -> None:
        row = row_of(record, self._clock(), frames.last if frames else -1)
        items = input_rows(record)

        def work(connection: Connection) -> None:
            put_response(connection, self._dialect, row)
            put_input(connection, self._dialect, row.id, items)
            if record.lease is None:
                put_output_names(connection, self._dialect, row.id, record.response)
            put_frames(connection, self._dialect, row.id, frames)

        await self._database.write(work)

    async def checkpoint(
        self,
        response_id: str,
        lease: Lease,
        response: Response | None = None,
        frames: Frames | None = None,
    ) -> None:
        changes = self._changes(response, frames, lease.until)
        await self._update_held(queries.CHECKPOINT, response_id, lease.worker, changes, frames)

    async def renew(self, held: Mapping[str, str], until: float) -> set[str]:
        renewed: set[str] = set()
        ids = list(held)
        for start in range(0, len(ids), _RENEWED_AT_ONCE):
            some = ids[start : start + _RENEWED_AT_ONCE]
            values = {"of_ids": some, "of_workers": [held[each] for each in some], "lease_until": until}
            renewed.update(await self._database.write(partial(_renewed, values)))
        return held.keys() - renewed

    async def finish(
        self, response_id: str, worker: str, response: Response, frames: Frames | None = None
    ) -> None:
        changes = self._changes(response, frames, None)
        await self._update_held(queries.FINISH, response_id, worker, changes, frames, response)

    async def acquire(self, response_id: str, lease: Lease, now: float) -> StoredResponse | None:
        if not can_be_id(response_id):
            return None
        values = {"of_id": response_id, "now": now, "lease_worker": lease.worker, "lease_until": lease.until}

        def work(connection: Connection) -> StoredResponse | None:
            taken = connection.execute(queries.ACQUIRE, values)
            if not taken.rowcount:
                return None
            found = connection.execute(queries.GET_ANY, {"of_id": response_id})
            return _record(connection, _row(found.one()))

        return await self._database.write(work)

    async def claim_orphans(self, lease: Lease, now: float, limit: int = 100) -> list[StoredResponse]:
        values = {"now": now, "most": limit, "lease_worker": lease.worker, "lease_until": lease.until}

        def work(connection: Connection) -> list[StoredResponse]:
            claimed = connection.execute(queries.CLAIM, values)
            return [_record(connection, _row(row)) for row in claimed.all()]

        return await self._database.write(work)

    async def frames(self, response_id: str, owner: str = "", after: int = -1) -> AsyncIterator[Frames]:
        if not can_be_id(response_id):
            return
        after = min(after, _HIGHEST)
        while True:
            rows = await self._rows(
                queries.FRAMES,
                {"of_id": response_id, "of_owner": owner, "after": after, "most": _FRAMES_AT_ONCE},
            )
            for first, last, data in rows:
                if (rest := Frames(first, last, data).after(after)) is not None:
                    yield rest
                    after = last
            if len(rows) < _FRAMES_AT_ONCE:
                return

    async def chain(self, response_id: str, owner: str = "") -> list[Turn]:
        rows: Iterable[Any] = ()
        if can_be_id(response_id):
            rows = await self._rows(queries.CHAIN, {"of_id": response_id, "of_owner": owner})
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
            Turn(
                decode_response(bodies[turn_id]),
                decode_input(item for _, item in sorted(items.get(turn_id, ()))),
            )
            for turn_id in in_order(response_id, links)
        ]

    async def input_items(
        self,
        response_id: str,
        owner: str = "",
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        order: Order = "desc",
    ) -> InputPage | None:
        if not can_be_id(response_id):
            return None
        asked = {"after": after, "before": before}
        cursors = {name: None if item_id is None else id_bytes(item_id) for name, item_id in asked.items()}
        found = await self._rows(queries.CURSORS, {"of_id": response_id, "of_owner": owner, **cursors})
        if not found:
            return None
        positions = {"after": found[0].after, "before": found[0].before}
        for name, item_id in asked.items():
            if item_id is not None and positions[name] is None:
                raise CursorError(name, item_id)
        bounds = window(positions["after"], positions["before"], order)
        lowest, highest = _EVERY_POSITION
        rows = await self._rows(
            queries.page(bounds.downwards),
            {
                "of_id": response_id,
                "low": lowest if bounds.low is None else bounds.low,
                "high": highest if bounds.high is None else bounds.high,
                "most": limit + 1,
            },
        )
        page = [listed_item(item_id, item) for item_id, item in rows[:limit]]
        if bounds.reverse:
            page.reverse()
        return InputPage(page, len(rows) > limit)

    async def items(self, item_ids: Collection[str], owner: str = "") -> dict[str, InputItem]:
        def work(connection: Connection) -> dict[str, InputItem]:
            return find_items(connection, item_ids, owner)

        return await self._database.read(work)

    async def delete(self, response_id: str, owner: str = "") -> bool:
        if not can_be_id(response_id):
            return False
        return await self._count(queries.DELETE, {"of_id": response_id, "of_owner": owner}) > 0

    async def sweep(self, now: float) -> int:
        total = 0
        while swept := await self._count(queries.SWEEP, {"now": now, "most": _SWEPT_AT_ONCE}):
            total += swept
        return total

    async def export(self) -> AsyncIterator[bytes]:
        after = ""
        while rows := await self._rows(queries.EXPORT, {"after": after, "most": _ROWS_AT_ONCE}):
            for found in rows:
                row = _row(found)
                items = await self._rows(queries.INPUT, {"of_id": row.id})
                frames = await self._rows(queries.EXPORT_FRAMES, {"of_id": row.id})
                yield export_line(row, [item for (item,) in items], [data for (data,) in frames])
                after = row.id

    async def _rows(self, statement: Any, values: dict[str, Any]) -> list[Any]:
        def work(connection: Connection) -> list[Any]:
            return list(connection.execute(statement, values).all())

        return await self._database.read(work)

    async def _count(self, statement: Any, values: dict[str, Any]) -> int:
        def work(connection: Connection) -> int:
            return _rowcount(connection.execute(statement, values))

        return await self._database.write(work)

    def _changes(
        self, response: Response | None, frames: Frames | None, lease_until: float | None
    ) -> dict[str, Any]:
        changes: dict[str, Any] = {"updated_at": self._clock(), "lease_until": lease_until}
        if response is not None:
            changes |= {"response": encode(response), "status": response.status}
        if frames is not None:
            changes["last_sequence"] = frames.last
        return changes

    async def _update_held(
        self,
        statement: Any,
        response_id: str,
        worker: str,
        changes: dict[str, Any],
        frames: Frames | None,
        ended: Response | None = None,
    ) -> None:
        def work(connection: Connection) -> None:
            values = {"of_id": response_id, "of_worker": worker, **changes}
            if not _rowcount(connection.execute(statement, values)):
                raise LeaseLost(response_id, worker)
            put_frames(connection, self._dialect, response_id, frames)
            if ended is not None:
                put_output_names(connection, self._dialect, response_id, ended)

        if not can_be_id(response_id):
            raise LeaseLost(response_id, worker)
        await self._database.write(work)


def _renewed(values: dict[str, Any], connection: Connection) -> list[str]:
    return list(connection.execute(queries.RENEW, values).scalars().all())


def _record(connection: Connection, row: Row) -> StoredResponse:
    found = connection.execute(queries.INPUT, {"of_id": row.id})
    return record_of(row, found.scalars().all())


def _row(found: Any) -> Row:
    return Row(**found._mapping)


def _rowcount(result: CursorResult[Any]) -> int:
    return result.rowcount
