"""What comes on a connection is given away in its order, and nothing of it is lost."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from openresponses_server.errors import UpstreamError
from openresponses_server.upstreams.base import Resume
from openresponses_server.upstreams.http import HttpReply
from openresponses_server.upstreams.http1.body import PIECE, Body, FairScheduler

pytestmark = pytest.mark.anyio


class Still:
    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Taker:
    """Wants no more after the first `wanted` pieces."""

    def __init__(self, wanted: int) -> None:
        self.taken: list[bytes] = []
        self.wanted = wanted

    def __call__(self, data: bytes, _again: Resume) -> bool:
        self.taken.append(data)
        return len(self.taken) < self.wanted


async def reply() -> tuple[Body, HttpReply]:
    body = Body(Still(), FairScheduler(), asyncio.get_running_loop())
    return body, HttpReply("one", cast(Any, SimpleNamespace(content=body)), 10.0, "")


@pytest.mark.parametrize("ends", [False, True])
async def test_what_comes_behind_the_last_that_was_wanted_is_read_next(ends: bool) -> None:
    """Before the task that reads has run."""
    body, reading = await reply()
    take = Taker(2)
    read = asyncio.create_task(reading.read(take))
    await asyncio.sleep(0)
    for piece in (b"a", b"b", b"c", b"d"):
        body.feed(piece)
    if ends:
        body.end()
    assert await read == b""
    assert take.taken == [b"a", b"b"]
    assert await reading.read(take) == b"cd"
    if ends:
        assert await reading.read(take) == b""
    reading.close()


class Later:
    """Says `again` later whether it wants more."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.again: Resume

    def __call__(self, data: bytes, again: Resume) -> None:
        self.taken.append(data)
        self.again = again


async def test_what_comes_until_more_is_wanted_waits_for_that() -> None:
    body, reading = await reply()
    take = Later()
    read = asyncio.create_task(reading.read(take))
    await asyncio.sleep(0)
    for piece in (b"a", b"b", b"c"):
        body.feed(piece)
    await asyncio.sleep(0.01)
    assert take.taken == [b"a"]
    take.again(True)
    assert take.taken == [b"a", b"bc"]
    take.again(True)
    body.feed(b"d")
    assert take.taken == [b"a", b"bc", b"d"]
    assert not read.done()
    take.again(False)
    body.feed(b"e")
    assert await read == b""
    assert await reading.read(take) == b"e"
    reading.close()


@pytest.mark.parametrize("behind", [b"", b"b"])
async def test_end_that_comes_until_more_is_wanted_is_read_then(behind: bytes) -> None:
    body, reading = await reply()
    take = Later()
    read = asyncio.create_task(reading.read(take))
    await asyncio.sleep(0)
    body.feed(b"a")
    if behind:
        body.feed(behind)
    body.end()
    await asyncio.sleep(0.01)
    assert not read.done()
    take.again(True)
    if behind:
        take.again(True)
    assert await read == b""
    assert b"".join(take.taken) == b"a" + behind
    reading.close()


async def test_more_that_is_wanted_too_late_is_not_given() -> None:
    body, reading = await reply()
    take = Later()
    read = asyncio.create_task(reading.read(take))
    await asyncio.sleep(0)
    body.feed(b"a")
    read.cancel()
    await asyncio.wait([read])
    body.feed(b"b")
    take.again(True)
    assert take.taken == [b"a"]
    assert await reading.read() == b"b"
    reading.close()


async def test_what_comes_while_a_piece_is_taken_comes_behind_it() -> None:
    body, reading = await reply()
    taken: list[bytes] = []

    def take(data: bytes, _again: Resume) -> bool:
        if not taken:
            body.feed(b"b")
            body.end()
        taken.append(data)
        return True

    read = asyncio.create_task(reading.read(take))
    await asyncio.sleep(0)
    body.feed(b"a")
    assert await read == b""
    assert taken == [b"a", b"b"]
    reading.close()


async def test_a_reply_is_silent_when_nothing_was_heard_for_all_of_its_looks() -> None:
    body, reading = await reply()
    read = asyncio.create_task(reading.read(lambda _data, _again: True))
    await asyncio.sleep(0)
    for _ in range(3):
        for _ in range(4):
            reading._look()
        body.feed(b"a")
    for _ in range(5):
        reading._look()
        await asyncio.sleep(0)
        assert not read.done()
    reading._look()
    with pytest.raises(UpstreamError) as raised:
        await read
    assert raised.value.code == UpstreamError.TIMEOUT
    reading.close()


async def test_what_waits_for_its_turn_is_not_the_upstream_s_silence() -> None:
    body, reading = await reply()
    while not body.scheduler.must_wait(PIECE):
        time.sleep(0.001)
    read = asyncio.create_task(reading.read(lambda _data, _again: True))
    await asyncio.sleep(0)
    while not body.scheduler.must_wait(PIECE):
        time.sleep(0.001)
    body.feed(b"a")
    assert not body.is_awaited
    for _ in range(10):
        reading._look()
    await asyncio.sleep(0.01)
    assert body.is_awaited
    assert not read.done()
    read.cancel()
    reading.close()
