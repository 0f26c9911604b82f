"""Waiting for a server until the user cancels or the time is up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeVar

from openresponses_bridge.decoder import Cancellation
from openresponses_server.errors import too_slow

T = TypeVar("T")


class Watch:
    """One response, of at most `total` seconds. One task listens to `cancel` for all waits."""

    def __init__(self, cancel: Cancellation | None, total: float) -> None:
        self._cancel = cancel
        self._total = total
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + total
        self._listening: asyncio.Task[None] | None = None
        self._scope: asyncio.Timeout | None = None

    async def __aenter__(self) -> Self:
        if self._cancel is not None and not self.is_cancelled():
            self._listening = asyncio.create_task(self._listen(self._cancel))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._listening is not None:
            self._listening.cancel()

    def is_cancelled(self) -> bool:
        """Whether the user has cancelled."""
        return self._cancel is not None and self._cancel.is_set()

    async def unless_cancelled(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """What `work` gives, None when it was cancelled. Raises UpstreamError when the time is up."""
        if self.is_cancelled():
            return None
        scope = asyncio.timeout_at(self._deadline)
        try:
            async with scope:
                self._scope = scope
                return await work()
        except TimeoutError:
            if self.is_cancelled():
                return None
            raise too_slow(self._total) from None
        finally:
            self._scope = None

    async def sleep(self, seconds: float) -> None:
        """Wait so long, or until it is cancelled."""
        await self.unless_cancelled(lambda: asyncio.sleep(seconds))

    async def _listen(self, cancel: Cancellation) -> None:
        await cancel.wait()
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(self._loop.time())
