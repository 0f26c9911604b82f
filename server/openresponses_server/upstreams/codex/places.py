"""How many turns run at once, of all keys and of each one, and who waits for how long."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from openresponses_server.settings import CodexSettings
from openresponses_server.upstreams.codex import errors


class Places:
    """In the order in which they came; one whose key has all its turns lets others pass."""

    def __init__(self, name: str, settings: CodexSettings) -> None:
        self._name = name
        self._settings = settings
        self._taken: Counter[str] = Counter()
        self._queue: OrderedDict[asyncio.Future[None], str] = OrderedDict()

    @asynccontextmanager
    async def place(self, owner: str) -> AsyncIterator[None]:
        """One turn. Raises UpstreamError when the queue is full, or has been waited in for too long."""
        await self._take(owner)
        try:
            yield
        finally:
            self._taken[owner] -= 1
            if not self._taken[owner]:
                del self._taken[owner]
            self._pass_on()

    def _is_free(self, owner: str) -> bool:
        settings = self._settings
        # without keys all clients are one
        of_key = settings.turns_per_key if owner else settings.turns
        return self._taken.total() < settings.turns and self._taken[owner] < of_key

    async def _take(self, owner: str) -> None:
        if self._is_free(owner):
            self._taken[owner] += 1
            return
        mine = sum(each == owner for each in self._queue.values())
        share = max(1, self._settings.queue // 2) if owner else self._settings.queue
        if len(self._queue) >= self._settings.queue or mine >= share:
            raise errors.busy(self._name, key=mine >= share > 0 and bool(owner))
        waiting = asyncio.get_running_loop().create_future()
        self._queue[waiting] = owner
        try:
            async with asyncio.timeout(self._settings.queue_seconds):
                await waiting
        except BaseException as error:
            if self._queue.pop(waiting, None) is None and not waiting.cancelled():
                self._taken[owner] -= 1  # it was given a place at that very moment
                self._pass_on()
            if isinstance(error, TimeoutError):
                raise errors.busy(self._name, key=False) from error
            raise

    def _pass_on(self) -> None:
        for waiting, owner in list(self._queue.items()):
            if self._taken.total() >= self._settings.turns:
                return
            if self._is_free(owner) and not waiting.done():
                del self._queue[waiting]
                self._taken[owner] += 1
                waiting.set_result(None)
