"""The watch over an answer's client: begins late, ends the answer when the client left, hides no cancel."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from openresponses_server.surfaces.responder import ClientMonitor

pytestmark = pytest.mark.anyio
SOON = 0.001


async def test_short_answers_have_no_second_task() -> None:
    before = asyncio.all_tasks()

    async def watch_client(_begun: float) -> bool:
        raise AssertionError("it was begun")

    async with ClientMonitor(watch_client, 10.0) as monitor:
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before
    assert not monitor.client_left


@pytest.mark.parametrize("swallowed", [0, 1])
async def test_the_client_has_left(swallowed: int) -> None:
    """Also when a library takes the first cancellation for its own."""
    cancelled = 0

    async def watch_client(begun: float) -> bool:
        assert begun == SOON
        return True

    async with ClientMonitor(watch_client, SOON) as monitor:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled += 1
                if cancelled > swallowed:
                    raise
    task = asyncio.current_task()
    assert monitor.client_left
    assert cancelled == swallowed + 1
    assert task is not None
    assert not task.cancelling()


async def test_an_answer_that_nobody_needs_to_wait_for_goes_on() -> None:
    gone = asyncio.Event()

    async def watch_client(_begun: float) -> bool:
        gone.set()
        return False

    async with ClientMonitor(watch_client, SOON) as monitor:
        await gone.wait()
        await asyncio.sleep(SOON)
    assert not monitor.client_left


async def test_what_it_raises_is_raised() -> None:
    async def watch_client(_begun: float) -> bool:
        raise OSError("no way to write")

    with pytest.raises(OSError, match="no way to write"):
        async with ClientMonitor(watch_client, SOON):
            await asyncio.Event().wait()


async def test_the_cancellation_of_another_is_passed_on() -> None:
    ended = []

    async def watch_client(_begun: float) -> bool:
        await asyncio.Event().wait()
        return True

    async def answer() -> None:
        async with ClientMonitor(watch_client, SOON) as monitor:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(monitor.client_left)

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
        async def watch_client(self, _begun: float) -> bool:
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    answer = Answer()
    reference = weakref.ref(answer)
    gc.disable()
    try:
        async with ClientMonitor(answer.watch_client, SOON):
            await asyncio.sleep(20 * SOON)
        del answer
        await asyncio.sleep(0)
        assert reference() is None
    finally:
        gc.enable()
