"""One delivery after the other, where some are made without waiting."""

from __future__ import annotations

import asyncio
from collections import deque


class Order:
    """A lock whose holders come in the order in which they ask. It is `free` when nobody has it and nobody
    waits for it: it goes from one holder to the next without becoming free in between."""

    __slots__ = ("_waiting", "free")

    def __init__(self) -> None:
        self.free = True
        self._waiting: deque[asyncio.Future[None]] | None = None  # a deque takes 0.7 KB, and few need one

    def take(self) -> None:
        """Have it; it is free."""
        self.free = False

    def release(self) -> None:
        """Give it to the next one, or nobody."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.free = True

    async def come(self) -> None:
        """Have it, behind those who have asked for it before."""
        if self.free:
            self.free = False
            return
        turn = asyncio.get_running_loop().create_future()
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.release()  # it had just come
            else:
                turn.cancel()
            raise

    async def __aenter__(self) -> None:
        await self.come()

    async def __aexit__(self, *_: object) -> None:
        self.release()
