"""Waiting for a condition instead of for some time."""

import asyncio
import time
from collections.abc import Callable


async def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until the condition holds. Raises TimeoutError if it does not in time."""
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.005)


def wait_until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """The same for a test without an event loop."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.005)
