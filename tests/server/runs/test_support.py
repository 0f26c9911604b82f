"""What all runs of a process share."""

import asyncio

import pytest

from server.runs.support import end_tasks


async def test_task_that_takes_a_cancellation_for_something_else_is_cancelled_again() -> None:
    swallowed = 0

    async def goes_on() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed == 2:
                    raise

    task = asyncio.create_task(goes_on())
    await asyncio.sleep(0)
    await end_tasks([task])
    assert task.cancelled()
    assert swallowed == 2


async def test_failure_of_a_task_that_is_ended_is_raised() -> None:
    async def fails() -> None:
        raise ValueError("broken")

    task = asyncio.create_task(fails())
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="broken"):
        await end_tasks([task])
    await end_tasks([])
