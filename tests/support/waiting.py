"""Waiting for a condition, for as long as the test itself may take: no machine is too busy for that."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

NEVER: Final = 3600.0
"""Seconds that no test takes, for a limit that no load is to reach."""


async def until(holds: Callable[[], object]) -> None:
    """Return once the condition holds; the timeout of the test is the only limit."""
    while not holds():
        await asyncio.sleep(0.005)


def wait_until(holds: Callable[[], object]) -> None:
    """Return once the condition holds, in a test without an event loop."""
    while not holds():
        time.sleep(0.005)


async def eventually(holds: Callable[[], Awaitable[object]]) -> None:
    """Return once a condition holds that has to be asked for."""
    while not await holds():
        await asyncio.sleep(0.02)
