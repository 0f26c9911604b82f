"""Waits for a condition for as long as the test itself may take, so that a busy machine makes no test
fail."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

NEVER: Final = 3600.0
"""A number of seconds that no test takes, for limits that no load may reach."""


async def until(holds: Callable[[], object]) -> None:
    """Return as soon as the condition holds; the timeout of the test is the only limit."""
    while not holds():
        await asyncio.sleep(0.005)


def wait_until(holds: Callable[[], object]) -> None:
    """Return as soon as the condition holds, in a test without an event loop."""
    while not holds():
        time.sleep(0.005)


async def eventually(holds: Callable[[], Awaitable[object]]) -> None:
    """Return as soon as a condition holds that is checked by a coroutine."""
    while not await holds():
        await asyncio.sleep(0.02)
