"""A store in this process: nothing survives it, and no other process sees it."""

from __future__ import annotations

from server.sessions.base import StoredResponse


class MemoryStore:
    """Keeps the `limit` turns that were stored last."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._records: dict[str, StoredResponse] = {}

    async def get(self, response_id: str) -> StoredResponse | None:
        return self._records.get(response_id)

    async def put(self, record: StoredResponse) -> None:
        self._records.pop(record.response.id, None)
        self._records[record.response.id] = record
        while len(self._records) > self._limit:
            del self._records[next(iter(self._records))]

    async def delete(self, response_id: str) -> bool:
        return self._records.pop(response_id, None) is not None
