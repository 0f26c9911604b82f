"""Ending tasks, and what takes too long."""

import asyncio

import pytest

from openresponses_server.tasks import end_tasks, in_time


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


async def test_work_that_waits_when_it_is_cancelled_is_cancelled_again() -> None:
    """As a database's driver does, which asks the server to stop a query."""
    cancelled = 0

    async def confirms() -> None:
        nonlocal cancelled
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled += 1
            try:
                await asyncio.sleep(20)
            except asyncio.CancelledError:
                cancelled += 1
                raise

    async with asyncio.timeout(10):
        with pytest.raises(TimeoutError):
            await in_time(confirms(), 0.01)
    assert cancelled == 2


async def test_work_in_time_returns_or_raises() -> None:
    async def fails() -> None:
        raise ValueError("broken")

    assert await in_time(asyncio.sleep(0, "done"), 5) == "done"
    with pytest.raises(ValueError, match="broken"):
        await in_time(fails(), 5)


async def test_work_ends_with_whoever_waits_for_it() -> None:
    ended = asyncio.Event()

    async def goes_on() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.create_task(in_time(goes_on(), 60))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended.is_set()
