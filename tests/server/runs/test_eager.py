"""A coroutine begun without a task, and what is left of it awaited by one."""

from __future__ import annotations

import asyncio

import pytest

from openresponses_server.runs.client_stream import start_eagerly

pytestmark = pytest.mark.anyio


async def _in_callback(coroutine: object) -> object:
    """What `start_eagerly` gives where there is no task."""
    loop = asyncio.get_running_loop()
    given = loop.create_future()
    loop.call_soon(lambda: given.set_result((asyncio.current_task(), start_eagerly(coroutine))))  # type: ignore[arg-type]
    task, rest = await given
    assert task is None
    return rest


async def test_what_waits_for_nothing_is_done_at_once() -> None:
    done = []

    async def work() -> None:
        done.append(1)

    assert await _in_callback(work()) is None
    assert done == [1]


async def test_the_rest_waits_and_goes_on_in_the_task_that_awaits_it() -> None:
    steps: list[object] = []
    lock, ready = asyncio.Lock(), asyncio.Event()

    async def work() -> None:
        async with lock:
            steps.append(asyncio.current_task())
            await ready.wait()
            await asyncio.sleep(0)
            steps.append(asyncio.current_task())

    rest = await _in_callback(work())
    assert lock.locked()
    assert steps == [None]
    asyncio.get_running_loop().call_soon(ready.set)
    await rest  # type: ignore[misc]
    assert steps == [None, asyncio.current_task()]
    assert not lock.locked()


async def test_what_it_raises_is_raised_where_it_is_awaited() -> None:
    async def work() -> None:
        raise OSError("gone")

    rest = await _in_callback(work())
    with pytest.raises(OSError, match="gone"):
        await rest  # type: ignore[misc]


@pytest.mark.parametrize("how", ["cancelled", "closed"])
async def test_it_is_broken_off_where_it_waits(how: str) -> None:
    lock = asyncio.Lock()
    broken: list[type[BaseException]] = []

    async def work() -> None:
        try:
            async with lock:
                await asyncio.Event().wait()
        except BaseException as error:
            broken.append(type(error))
            raise

    rest = await _in_callback(work())
    if how == "closed":
        rest.close()  # type: ignore[attr-defined]
    else:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await rest  # type: ignore[misc]
    assert not lock.locked()
    assert broken == [GeneratorExit if how == "closed" else asyncio.CancelledError]
