"""What goes along with an answer: begun late, ends it when its client has left, hides no cancel."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from openresponses_server.api.answers import Company

pytestmark = pytest.mark.anyio
SOON = 0.001


async def test_short_answers_have_no_second_task() -> None:
    before = asyncio.all_tasks()

    async def accompany(_begun: float) -> bool:
        raise AssertionError("it was begun")

    async with Company(accompany, 10.0) as company:
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before
    assert not company.left


@pytest.mark.parametrize("swallowed", [0, 1])
async def test_the_client_has_left(swallowed: int) -> None:
    """Also when a library takes the first cancellation for its own."""
    cancelled = 0

    async def accompany(begun: float) -> bool:
        assert begun == SOON
        return True

    async with Company(accompany, SOON) as company:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled += 1
                if cancelled > swallowed:
                    raise
    task = asyncio.current_task()
    assert company.left
    assert cancelled == swallowed + 1
    assert task is not None
    assert not task.cancelling()


async def test_an_answer_that_nobody_needs_to_wait_for_goes_on() -> None:
    gone = asyncio.Event()

    async def accompany(_begun: float) -> bool:
        gone.set()
        return False

    async with Company(accompany, SOON) as company:
        await gone.wait()
        await asyncio.sleep(SOON)
    assert not company.left


async def test_what_it_raises_is_raised() -> None:
    async def accompany(_begun: float) -> bool:
        raise OSError("no way to write")

    with pytest.raises(OSError, match="no way to write"):
        async with Company(accompany, SOON):
            await asyncio.Event().wait()


async def test_the_cancellation_of_another_is_passed_on() -> None:
    ended = []

    async def accompany(_begun: float) -> bool:
        await asyncio.Event().wait()
        return True

    async def answer() -> None:
        async with Company(accompany, SOON) as company:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(company.left)

    before = asyncio.all_tasks()
    task = asyncio.create_task(answer())
    await asyncio.sleep(5 * SOON)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [False]
    assert asyncio.all_tasks() == before


async def test_nothing_of_an_answer_waits_for_garbage_to_be_looked_for() -> None:
    """What went along with it was cancelled, and its traceback refers to all that the answer was made of."""

    class Answer:
        async def accompany(self, _begun: float) -> bool:
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    answer = Answer()
    made = weakref.ref(answer)
    gc.disable()
    try:
        async with Company(answer.accompany, SOON):
            await asyncio.sleep(20 * SOON)
        del answer
        await asyncio.sleep(0)
        assert made() is None
    finally:
        gc.enable()
