"""Ending tasks, what takes too long, and whose turn it is to work on a thread: no owner holds up another."""

import asyncio
from threading import Event

import pytest

from openresponses_server.tasks import OWNER, Places, end_tasks, in_time, on_thread


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


async def taken(places: Places, owner: str, order: list[str]) -> None:
    await places.take(owner)
    order.append(owner)


async def waiting(places: Places, owners: str, order: list[str]) -> list[asyncio.Task[None]]:
    tasks = [asyncio.ensure_future(taken(places, owner, order)) for owner in owners]
    await asyncio.sleep(0)
    return tasks


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_an_owner_has_one_place_and_the_others_have_theirs() -> None:
    async def work() -> list[str]:
        places, order = Places(2), list[str]()
        await waiting(places, "aaaab", order)
        await settled()
        assert order == ["a", "b"]  # what a has waiting does not stand before b
        tasks = await waiting(places, "cccd", order)
        places.give_back("b")
        await settled()
        assert order == ["a", "b", "c"]
        places.give_back("a")
        await settled()
        assert order == ["a", "b", "c", "a"]  # a has waited longest, c has a place
        places.give_back("c")
        await settled()
        assert order[4:] == ["d"]  # one of each in turn
        for task in tasks:
            task.cancel()
        return order

    asyncio.run(work())


def test_without_keys_all_places_are_everybodys() -> None:
    async def work() -> None:
        places, order = Places(2), list[str]()
        await waiting(places, "", order)
        tasks = [asyncio.ensure_future(taken(places, "", order)) for _ in range(3)]
        await settled()
        assert order == ["", ""]
        places.give_back("")
        await settled()
        assert order == ["", "", ""]
        assert all(task.done() for task in tasks)

    asyncio.run(work())


def test_who_no_longer_waits_leaves_the_place_to_the_next() -> None:
    async def work() -> None:
        places, order = Places(1), list[str]()
        await waiting(places, "a", order)
        first, second, third = await waiting(places, "bcd", order)
        first.cancel()
        await settled()
        places.give_back("a")
        second.cancel()  # it has just been given the place
        await settled()
        assert order == ["a", "d"]
        assert third.done()
        places.give_back("d")
        await asyncio.wait_for(places.take("b"), 5)

    asyncio.run(work())


def test_work_of_one_owner_leaves_a_thread_to_another() -> None:
    async def work() -> None:
        begun, over = asyncio.Event(), Event()
        loop = asyncio.get_running_loop()

        def long() -> None:
            loop.call_soon_threadsafe(begun.set)
            over.wait(30)

        async def of(owner: str, what: object) -> None:
            OWNER.set(owner)
            await on_thread(long if what is long else lambda: None)

        tasks = [asyncio.create_task(of("greedy", long)) for _ in range(20)]
        await begun.wait()
        await asyncio.wait_for(asyncio.create_task(of("modest", None)), 10)
        assert not any(task.done() for task in tasks)
        over.set()
        await asyncio.gather(*tasks)

    asyncio.run(work())
