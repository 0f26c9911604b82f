"""What a database says when it fails → what the client is told: the truth, without addresses or SQL."""

from __future__ import annotations

import sqlite3
from typing import Final

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from server.sessions.errors import StoreError

FAILURES: Final = (DBAPIError, PoolTimeout, TimeoutError, OSError, sqlite3.Error)
"""What a call into a database raises when it fails."""

_FULL: Final = (StoreError.FULL, "The session store is full: nothing was stored.")
_BUSY: Final = (StoreError.BUSY, "The session store is too busy: nothing was stored.")
_UNREACHABLE: Final = (StoreError.UNAVAILABLE, "The session store can't be reached.")
_FAILED: Final = (StoreError.FAILED, "The session store failed: nothing was stored.")

_BY_SQLITE_CODE: Final = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_READONLY: (StoreError.UNAVAILABLE, "The session store's file can't be written."),
    sqlite3.SQLITE_CANTOPEN: (StoreError.UNAVAILABLE, "The session store's file can't be opened."),
    sqlite3.SQLITE_NOTADB: (StoreError.UNAVAILABLE, "The session store's file is no SQLite database."),
    sqlite3.SQLITE_CORRUPT: (StoreError.UNAVAILABLE, "The session store's file is damaged."),
}
_BY_SQLSTATE: Final = {  # PostgreSQL, appendix "Error codes"
    "53100": _FULL,
    "53300": _BUSY,
    "55P03": _BUSY,
    "57014": _BUSY,
}


def store_error(error: Exception) -> StoreError:
    """The failure as a StoreError; the cause stays attached where it is raised from."""
    if isinstance(error, PoolTimeout | TimeoutError):
        return StoreError(*_BUSY)
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.Error):
        return StoreError(*_BY_SQLITE_CODE.get(getattr(cause, "sqlite_errorcode", 0) & 0xFF, _FAILED))
    unknown = _UNREACHABLE if isinstance(error, OSError | OperationalError | InterfaceError) else _FAILED
    return StoreError(*_BY_SQLSTATE.get(getattr(cause, "sqlstate", None) or "", unknown))
