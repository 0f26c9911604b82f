"""Ending tasks, and what takes too long."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

_CANCELLED_AGAIN: Final = 0.5  # seconds


async def end_tasks(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel them until all have ended. Raises what one of them raised."""
    await _cancel(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


async def in_time(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """What this returns or raises. Raises TimeoutError soon after that many seconds, also when the work does
    not end at its first cancellation."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([task], timeout=seconds)
    finally:
        await _cancel([task])
    if task.cancelled():
        raise TimeoutError
    return task.result()


async def _cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Once is not enough: a library may take a cancellation that comes at the moment of its own timeout for
    that, and go on; psycopg waits for up to ten seconds until the server has confirmed the first."""
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_CANCELLED_AGAIN)
