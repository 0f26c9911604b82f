"""One delivery after the other, where some are made without waiting."""

from __future__ import annotations

import asyncio


class Order:
    """A lock whose holders come in the order in which they ask. It is `free` when nobody has it and nobody
    waits for it: an `asyncio.Lock` that was released for one who waits is not locked until that one runs."""

    __slots__ = ("_asked", "_lock", "free")

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._asked = 0
        self.free = True

    async def __aenter__(self) -> None:
        self._asked += 1
        self.free = False
        try:
            await self._lock.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()
        self._leave()

    def _leave(self) -> None:
        self._asked -= 1
        self.free = not self._asked
