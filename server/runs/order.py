"""One delivery after the other, where some are made without waiting."""

from __future__ import annotations

import asyncio


class Order:
    """A lock whose holders come in the order in which they ask. It is `free` when nobody has it and nobody
    waits for it: an `asyncio.Lock` that was released for one who waits is not locked until that one runs."""

    __slots__ = ("_asked", "_lock")

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._asked = 0

    @property
    def free(self) -> bool:
        return self._asked == 0

    async def __aenter__(self) -> None:
        self._asked += 1
        try:
            await self._lock.acquire()
        except BaseException:
            self._asked -= 1
            raise

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()
        self._asked -= 1
