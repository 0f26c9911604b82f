"""How PostgreSQL is connected to. Loaded only where there is psycopg."""

from __future__ import annotations

from typing import Any, Final

from psycopg import AsyncCursor, pq
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

_CONNECTIONS: Final = 10  # to write, and as many to read
_RECYCLED_AFTER: Final = 1800  # seconds


class _BinaryCursor(AsyncCursor[Any]):
    """Asks for results in binary: as text, bytes come in hexadecimal, which is twice as much to send and
    has to be read again."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.format = pq.Format.BINARY


_CONNECT: Final[dict[str, Any]] = {
    "connect_timeout": 5,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "openresponses-bridge",
    "cursor_factory": _BinaryCursor,
}


def engines(url: URL, patience: float) -> tuple[AsyncEngine, AsyncEngine]:
    """One to write with, in transactions, and one to read with, each statement by itself. A connection is
    waited for `patience` seconds."""

    def engine(**options: Any) -> AsyncEngine:
        return create_async_engine(
            url,
            connect_args=_CONNECT,
            pool_size=_CONNECTIONS,
            max_overflow=0,
            pool_timeout=patience,
            pool_recycle=_RECYCLED_AFTER,
            **options,
        )

    return engine(), engine(isolation_level="AUTOCOMMIT", pool_reset_on_return=None)
