"""What goes along with the making of an answer: it notices that the client has left, and keeps its connection
alive.

Most answers are made before there is anything to notice, so it begins as a timer and becomes a task when the
answer takes longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from openresponses_server.tasks import end_tasks

_BEGINS_AFTER: Final = 0.25  # seconds; law S3 has an upstream aborted within one
_AGAIN: Final = 0.5  # seconds: a library may take a cancellation for its own timeout

Accompany = Callable[[float], Awaitable[bool]]
"""Goes along with an answer that has been made for so many seconds. Returns when the client has left: whether
the answer is for nobody then."""


class Company:
    """While this context lasts, `accompany` goes along with it in its own task, which is begun after a while,
    `soonest` seconds at the latest. When the client has left, what is within is cancelled and the context
    ends without an error; `left` says so then. What `accompany` raises is raised here."""

    def __init__(self, accompany: Accompany, soonest: float) -> None:
        self._accompany = accompany
        self._after = min(_BEGINS_AFTER, soonest)
        self._task: asyncio.Task[None] | None = None
        self._cancelled = 0
        self._failure: Exception | None = None
        self.left = False

    async def __aenter__(self) -> Company:
        self._loop = asyncio.get_running_loop()
        making = asyncio.current_task(self._loop)
        assert making is not None
        self._making = making
        self._timer = self._loop.call_later(self._after, self._begin)
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: Any
    ) -> bool:
        self._timer.cancel()
        if self._task is not None:
            # It keeps the traceback of its cancellation, and that this object: with a reference back all that
            # the answer was made of would stay until a look for garbage.
            task, self._task = self._task, None
            await end_tasks([task])
        mine = self._cancelled > 0
        for _ in range(self._cancelled):
            self._making.uncancel()
        if self._failure is not None:
            raise self._failure
        return mine and isinstance(error, asyncio.CancelledError) and not self._making.cancelling()

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._go_along())

    async def _go_along(self) -> None:
        try:
            if not await self._accompany(self._after):
                return
            self.left = True
        except Exception as error:
            self._failure = error
        while True:
            self._cancelled += 1
            self._making.cancel()
            await asyncio.sleep(_AGAIN)
