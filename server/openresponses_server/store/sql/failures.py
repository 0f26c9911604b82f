"""Turns a database's failure into the client's error: what failed, without addresses or SQL. The error's
details are for the operator only, without passwords."""

from __future__ import annotations

import re
import sqlite3
from typing import Final

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from openresponses_server.store.base import StoreError
from openresponses_server.store.sql.sqlite_file import BASELINE, REVISION

FAILURES: Final = (DBAPIError, PoolTimeout, TimeoutError, OSError, sqlite3.Error)
"""The exceptions of a failed call to a database."""

_FULL: Final = (StoreError.FULL, "The session store is full: nothing was stored.")
_BUSY: Final = (StoreError.BUSY, "The session store is too busy: nothing was stored.")
_UNREACHABLE: Final = (StoreError.UNAVAILABLE, "The session store can't be reached.")
_READ_ONLY: Final = (StoreError.UNAVAILABLE, "The session store can only be read for now.")
_REFUSED: Final = (StoreError.UNUSABLE, "The session store refuses access.")
_FAILED: Final = (StoreError.FAILED, "The session store failed: nothing was stored.")

_BY_SQLITE_CODE: Final = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_READONLY: (StoreError.UNUSABLE, "The session store's file can't be written."),
    sqlite3.SQLITE_CANTOPEN: (StoreError.UNUSABLE, "The session store's file can't be opened."),
    sqlite3.SQLITE_NOTADB: (StoreError.UNUSABLE, "The session store's file is not a SQLite database."),
    sqlite3.SQLITE_CORRUPT: (StoreError.UNUSABLE, "The session store's file is damaged."),
}
_BY_SQLSTATE: Final = {  # PostgreSQL, appendix "Error codes"
    "25006": _READ_ONLY,
    "28000": _REFUSED,
    "28P01": _REFUSED,
    "3D000": _REFUSED,
    "42501": _REFUSED,
    "53100": _FULL,
    "53300": _BUSY,
    "55P03": _BUSY,
    "57014": _BUSY,
}

# libpq has no code for a connection that was not made, only words. Two spaces are between the severity (in
# the server's language) and the server's own words, which distinguishes them from errors of the network.
_SERVERS_WORDS: Final = re.compile(r"failed: [^\s:]+:  (.+)")
_NETWORKS_WORDS: Final = re.compile(r"^.*failed: (.+)$", re.MULTILINE)
# Failures that do not end by waiting. In languages other than English they count as outages, and the server's
# words are reported.
_REFUSALS: Final = re.compile(
    r"authentication failed|does not exist|no pg_hba\.conf entry|pg_hba\.conf rejects|no password supplied"
    r"|not permitted to log in|permission denied"
)


def store_error(error: Exception) -> StoreError:
    """Return the failure as a StoreError, to be raised from it, which keeps the cause attached."""
    if isinstance(error, PoolTimeout | TimeoutError):
        return StoreError(*_BUSY)
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.Error):
        code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
        return StoreError(*_BY_SQLITE_CODE.get(code, _FAILED), str(cause))
    sqlstate = getattr(cause, "sqlstate", None)
    unknown = _UNREACHABLE if isinstance(error, OSError | OperationalError | InterfaceError) else _FAILED
    if sqlstate is not None:
        message = getattr(getattr(cause, "diag", None), "message_primary", None)
        return StoreError(*_BY_SQLSTATE.get(sqlstate, unknown), message or "")
    return _not_connected(str(cause), unknown)


def file_error(error: OSError) -> StoreError:
    """Return the error for a SQLite file that can't be made; its path is for the operator."""
    return StoreError(
        StoreError.UNUSABLE,
        "The session store's file can't be made.",
        f"{error.filename}: {error.strerror}",
    )


def _not_connected(message: str, unknown: tuple[str, str]) -> StoreError:
    words = _SERVERS_WORDS.findall(message)
    if words and all(_REFUSALS.search(each) for each in words):
        return StoreError(*_REFUSED, words[0])
    if "no password supplied" in message:
        return StoreError(*_REFUSED, "a password is needed, and none was given")
    if "failed to resolve host" in message:
        return StoreError(*unknown, "its host is not known")
    network = _NETWORKS_WORDS.findall(message)
    return StoreError(*unknown, next(iter([*words, *network]), ""))


def outdated(revision: str) -> StoreError:
    """Return the error for tables of another version of this program."""
    way_out = (
        "run `openresponses-bridge db upgrade` of the newest version."
        if revision >= BASELINE
        else "export it by `openresponses-bridge db export` of the version that made it, and import that "
        "into a new one by `openresponses-bridge db import`."
    )
    return StoreError(
        StoreError.OUTDATED,
        f"The session store is at revision {revision} and this version needs {REVISION}: {way_out}",
    )
