"""The interface of stores of managed keys, and the object that keeps a process's keys equal to its
store's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Protocol

import structlog
from msgspec import Struct

from openresponses_server.errors import Outage
from openresponses_server.http.managed_keys import KeyBook, KeyChange, ManagedKey
from openresponses_server.tasks import end_tasks, jittered

MOST_KEYS: Final = 20_000
"""The most keys of a store: each process holds them in memory."""
KEPT: Final = 30 * 86_400.0
"""Seconds for which a key is listed after it was revoked or has expired; then a sweep deletes it."""
_EVERY: Final = 0.5  # seconds between two checks whether keys have changed
_log = structlog.get_logger(__name__)


class KeyVersion(Struct, frozen=True):
    """A state of a store's keys: the `number` of their last change, and the random `tag` of that change. A
    store that went back to an earlier state, because a backup was restored or a failover lost the latest
    changes, repeats the numbers but not the tags. A `tag` of None means that an earlier release has made this
    change, or that there was none yet."""

    number: int = 0
    tag: int | None = None


class KeyStore(Protocol):
    """Stores keys. Every method raises StoreError if the store can't be reached or is full, and may then be
    called again."""

    async def add(self, key: ManagedKey) -> None:
        """Store a new key. Raises StoreError `store_conflict` if its id or hash exists, and `store_full`
        beyond `MOST_KEYS`."""
        ...

    async def all(self) -> list[ManagedKey]:
        """Return all keys, oldest first."""
        ...

    async def change(self, key_id: str, change: KeyChange) -> bool:
        """Change the key with this id. Returns False if there is none."""
        ...

    async def version(self) -> KeyVersion:
        """Return the present state, which each change replaces. Its cost does not depend on the number of
        keys."""
        ...

    async def changed(self, since: KeyVersion, until: KeyVersion) -> dict[str, ManagedKey | None] | None:
        """Return the keys that were changed after the state `since` up to `until`, by their ids, as they are
        now or later; None for a key that is gone. Its cost is that of these keys. If the store does not know
        the changes, the result is None, and `all` must be called."""
        ...

    async def sweep(self, now: float) -> int:
        """Delete the keys that were revoked or had expired `KEPT` seconds before `now`; Returns how many."""
        ...


class KeyKeeper:
    """Keeps `book` equal to the store while `going` lasts. While the store can't be reached the keys stay as
    they were."""

    def __init__(self, book: KeyBook, store: KeyStore, every: float = _EVERY) -> None:
        self._book = book
        self._store = store
        self._every = every
        self._version: KeyVersion | None = None
        self._outage = False

    @asynccontextmanager
    async def going(self) -> AsyncIterator[None]:
        """Load the keys at the beginning, and within a second each that has changed."""
        await self._try()
        keeping = asyncio.create_task(self._keep())
        try:
            yield
        finally:
            await end_tasks([keeping])

    async def look(self) -> None:
        """Load the keys that have changed. Raises StoreError."""
        self._book.expire()
        known, version = self._version, await self._store.version()
        if version == known:
            return
        changed = None if known is None else await self._store.changed(known, version)
        if changed is None:
            self._book.replace(await self._store.all())
        else:
            self._book.change(changed)
        self._version = version

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(jittered(self._every))
            await self._try()

    async def _try(self) -> None:
        try:
            await self.look()
            self._outage = False
        except Outage as error:
            if not self._outage:
                _log.warning("keys.not_read", code=error.code, reason=error.in_full)
            self._outage = True
        except Exception:
            _log.exception("keys.not_read")
