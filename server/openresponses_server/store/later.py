"""A store whose code is loaded while others are served already: for SQLAlchemy that is a third of a start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final, cast

from openresponses_server.store.base import ResponseStore
from openresponses_server.store.frames import Piece
from openresponses_server.store.presence import Presence
from openresponses_server.store.sql.sqlite_file import name_of_file, presence_at

_PAUSE: Final = 0.1  # seconds, in which the server that makes the first call comes to listen


def sqlite_later(path: Path, build: Callable[[], ResponseStore], pause: float = _PAUSE) -> ResponseStore:
    """The store in a file that is in order, built in a thread so many seconds after its first call. All
    others wait for that."""
    return cast(ResponseStore, _LaterStore(path, build, pause))


class _Calls:
    """The calls of what `there` gives."""

    def __init__(self, there: Callable[[], Awaitable[Any]]) -> None:
        self._there = there

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **options: Any) -> Any:
            return await getattr(await self._there(), name)(*args, **options)

        return call


class _LaterStore(_Calls):
    is_loaded = False

    def __init__(self, path: Path, build: Callable[[], ResponseStore], pause: float) -> None:
        super().__init__(self._loaded)
        self.name = name_of_file(path)
        self.usage = _Calls(self._usage)
        self.listing = _Calls(self._listing)
        self._path = path
        self._build = build
        self._pause = pause
        self._loading: asyncio.Task[ResponseStore] | None = None

    def presence(self, process: str, lease: float) -> Presence:
        return presence_at(self._path, process)

    async def frames(self, *args: Any, **options: Any) -> AsyncIterator[Piece]:
        async for piece in (await self._loaded()).frames(*args, **options):
            yield piece

    async def export(self) -> AsyncIterator[bytes]:
        async for line in (await self._loaded()).export():
            yield line

    async def close(self) -> None:
        if self._loading is not None:
            await (await self._loading).close()

    async def _loaded(self) -> ResponseStore:
        if self._loading is None:
            self._loading = asyncio.create_task(self._load())
        # whoever gives up waiting leaves it to the others
        return await (self._loading if self._loading.done() else asyncio.shield(self._loading))

    async def _load(self) -> ResponseStore:
        await asyncio.sleep(self._pause)
        return await asyncio.to_thread(self._build)

    async def _usage(self) -> Any:
        return (await self._loaded()).usage

    async def _listing(self) -> Any:
        return (await self._loaded()).listing
