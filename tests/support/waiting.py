"""Waiting for something to hold instead of for some time."""

import asyncio
from collections.abc import Callable


async def until(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    """Until it holds. TimeoutError when it does not in time."""
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.005)
