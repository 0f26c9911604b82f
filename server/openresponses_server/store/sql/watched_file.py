"""SQLite's file, which may be deleted, moved or replaced while it is open: SQLite goes on in the file that it
has, and what it stores there can't be found again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine, event
from sqlalchemy.exc import DisconnectionError

from openresponses_server.store.errors import StoreError

_FILE: Final = "file"


class WatchedFile:
    """The file at `path`, known by its device and inode; one look takes about a microsecond. A file that is
    gone is not made again: it may be a volume that is not mounted, or a backup that is being put back."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name = str(path)
        self._known: tuple[int, int] | None = None

    @property
    def known(self) -> bool:
        """Whether there was a file once."""
        return self._known is not None

    @property
    def has_moved(self) -> bool:
        """Whether another file is at the path now, or none."""
        return self._identity() != self._known

    def know(self) -> None:
        """The file that is there now is the one. Raises StoreError when there is none."""
        found = self._identity()
        if found is None:
            raise self._gone()
        self._known = found

    def check(self, connected_to: Mapping[Any, Any]) -> None:
        """After a commit: raises StoreError when the file of the connection with this `info` is no longer
        there, so that what was committed will not be found."""
        if connected_to.get(_FILE) != self._identity():
            raise self._gone()

    def watch(self, engine: Engine) -> None:
        """Connections to another file are made anew before they are used."""
        event.listen(engine, "do_connect", self._note)
        event.listen(engine, "checkout", self._check_connection)

    def _note(self, _dialect: Any, record: Any, _args: Any, _options: Any) -> None:
        if record is not None:
            # looked up before the connection is made, so that a change in between shows at its first use
            record.info[_FILE] = self._identity()

    def _check_connection(self, _connection: Any, record: Any, _proxy: Any) -> None:
        if record.info.get(_FILE) != self._identity():
            raise DisconnectionError

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._name)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _gone(self) -> StoreError:
        return StoreError(
            StoreError.UNAVAILABLE,
            f"The session store's file {self._path.name} was deleted, moved or replaced.",
            f"put {self._path} back, or start again with an empty one",
        )
