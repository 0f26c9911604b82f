"""What every event log does (laws S2, S4, S9): one suite for both."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from openresponses_server.store.frames import Frames
from openresponses_server.store.logs.base import EventLog, LogGone
from tests.support.stores import frame, frames
from tests.support.waiting import NEVER

OpenLog = Callable[..., EventLog]


async def read_all(log: EventLog, run_id: str = "r", after: int = -1) -> bytes:
    return b"".join([each.data async for each in log.read(run_id, after)])


async def reading(
    log: EventLog, run_id: str = "r", after: int = -1
) -> tuple[asyncio.Task[bytes], Callable[[], Awaitable[None]]]:
    """A reader at work, and a way to wait until it has had its turn."""
    task = asyncio.create_task(read_all(log, run_id, after))

    async def settle() -> None:
        await asyncio.sleep(0.05)

    await settle()
    return task, settle


async def test_reader_gets_what_was_appended_to_the_byte(log: EventLog) -> None:
    await log.open("r")
    odd = b'event: e\ndata: {"n":3,"t":"\xc3\xa9 \\u0000 \r\x00\xff"}\n\n'
    for each in (frames(0, 2), Frames(3, 3, odd), frames(4, 4)):
        await log.append("r", each)
    await log.close("r")
    assert await read_all(log) == frames(0, 2).data + odd + frame(4)


async def added(log: EventLog, each: Frames) -> bool:
    """Whether the log said that it has these, then or later."""
    add = log.appender("r")
    if add is None:
        assert not log.at_hand
        return False
    answer = add(each, lambda owed: owed.set_result(False))
    assert (answer is None) == log.at_hand
    if answer is None:
        return True
    assert not answer.done()
    return await answer


async def test_s2_what_is_added_in_a_plain_call_is_there_when_the_log_says_so(log: EventLog) -> None:
    await log.open("r")
    await log.append("r", frames(0, 1))
    reader = log.read("r")
    await anext(reader)
    for number in range(2, 6):
        assert await added(log, frames(number, number))
        assert await anext(reader) == frames(number, number)
    await log.close("r")
    assert await read_all(log) == frames(0, 5).data


@pytest.mark.parametrize("how", ["never opened", "closed", "discarded"])
async def test_log_that_is_not_open_does_not_say_that_it_has_something(log: EventLog, how: str) -> None:
    await log.open("other")
    await log.append("other", frames(0, 1))  # so that there is a connection
    if how != "never opened":
        await log.open("r")
        await log.append("r", frames(0, 1))
        await (log.close("r") if how == "closed" else log.discard("r"))
    try:
        assert not await added(log, frames(2, 2))
    except LogGone:
        assert log.at_hand


@pytest.mark.parametrize("after", [-1, 0, 4, 5, 6, 7, 18, 19, 20, 2**70])
async def test_s2_reading_from_any_number(log: EventLog, after: int) -> None:
    await log.open("r")
    for each in (frames(0, 5), frames(6, 6), frames(7, 19)):
        await log.append("r", each)
    await log.close("r")
    expected = b"".join(frame(number) for number in range(after + 1, 20)) if after < 20 else b""
    assert await read_all(log, after=after) == expected


async def test_reader_that_does_not_wait_ends_where_the_log_ends(log: EventLog) -> None:
    with pytest.raises(LogGone):
        await anext(aiter(log.read("r", wait=False)))
    await log.open("r")
    assert [each async for each in log.read("r", wait=False)] == []
    for number in range(600):
        await log.append("r", frames(number, number))
    sent = [each async for each in log.read("r", 2, wait=False)]
    assert (sent[0].first, sent[-1].last) == (3, 599)
    assert b"".join(each.data for each in sent) == frames(3, 599).data
    assert [each async for each in log.read("r", 599, wait=False)] == []
    await log.close("r")
    assert [each.last async for each in log.read("r", 598, wait=False)] == [599]


async def test_readers_follow_until_the_log_is_closed(log: EventLog) -> None:
    await log.open("r")
    await log.append("r", frames(0, 3))
    early, settle = await reading(log)
    middle, _ = await reading(log, after=1)
    ahead, _ = await reading(log, after=6)
    for number in range(4, 12):
        await log.append("r", frames(number, number))
        await asyncio.sleep(0.002)
    late, _ = await reading(log)
    await settle()
    assert not any(task.done() for task in (early, middle, ahead, late))
    await log.close("r")
    whole = frames(0, 11).data
    assert await early == await late == whole
    assert await middle == frames(2, 11).data
    assert await ahead == frames(7, 11).data
    assert await read_all(log) == whole


async def test_frames_say_their_numbers(log: EventLog) -> None:
    await log.open("r")
    for number in range(300):
        await log.append("r", frames(2 * number, 2 * number + 1))
    await log.close("r")
    last = 10
    async for each in log.read("r", after=last):
        assert each.first == last + 1
        assert each.data.count(b"\n\n") == each.last - each.first + 1
        last = each.last
    assert last == 599


async def test_reader_before_the_first_frame_waits(log: EventLog) -> None:
    await log.open("r")
    task, _ = await reading(log)
    assert not task.done()
    await log.append("r", frames(0, 0))
    await log.close("r")
    assert await task == frame(0)


async def test_empty_log_ends(log: EventLog) -> None:
    await log.open("r")
    await log.close("r")
    assert await read_all(log) == b""


async def test_logs_do_not_mix(log: EventLog) -> None:
    for name in ("r", "s"):
        await log.open(name)
        await log.append(name, frames(0, 3, name))
        await log.close(name)
    assert await read_all(log, "s") == frames(0, 3, "s").data


async def test_unknown_log_is_gone(log: EventLog) -> None:
    with pytest.raises(LogGone):
        await read_all(log, "unknown")
    await log.close("unknown")
    await log.discard("unknown")


async def test_closed_log_takes_nothing_more(log: EventLog) -> None:
    await log.open("r")
    await log.append("r", frames(0, 0))
    for _ in range(2):
        await log.close("r")
    with pytest.raises(LogGone):
        await log.append("r", frames(1, 1))
    assert await read_all(log) == frame(0)


async def test_discarded_log_is_gone(log: EventLog) -> None:
    await log.open("r")
    await log.append("r", frames(0, 0))
    await log.discard("r")
    with pytest.raises(LogGone):
        await read_all(log)


async def test_opened_again_is_empty(log: EventLog) -> None:
    for text in ("one", "two"):
        await log.open("r")
        await log.append("r", frames(0, 1, text))
        await log.close("r")
    assert await read_all(log) == frames(0, 1, "two").data


async def there(log: EventLog) -> bool:
    try:
        await read_all(log)
    except LogGone:
        return False
    return True


async def test_closed_log_stays_for_a_while(open_log: OpenLog) -> None:
    log = open_log(linger=NEVER)
    await log.open("r")
    await log.append("r", frames(0, 0))
    await log.close("r")
    assert await read_all(log) == frame(0)


async def test_log_goes_a_while_after_it_was_closed_and_not_before(open_log: OpenLog) -> None:
    log = open_log(linger=0.1)
    await log.open("r")
    await log.append("r", frames(0, 0))
    await asyncio.sleep(0.2)
    assert [each.data async for each in log.read("r", wait=False)] == [frame(0)]
    await log.append("r", frames(1, 1))
    await log.close("r")
    while await there(log):
        await asyncio.sleep(0.05)


async def test_s4_slow_reader_does_not_hold_the_run(log: EventLog) -> None:
    await log.open("r")
    await log.append("r", frames(0, 0))
    slow = log.read("r")
    got = [await anext(slow)]
    for number in range(1, 400):
        await log.append("r", frames(number, number, "y" * 3000))
    await log.close("r")
    got += [each async for each in slow]
    assert b"".join(each.data for each in got) == frame(0) + frames(1, 399, "y" * 3000).data
    assert max(len(each.data) for each in got) < 600_000


async def test_many_readers_get_the_same(log: EventLog) -> None:
    await log.open("r")
    readers = [asyncio.create_task(read_all(log, after=number % 7 - 1)) for number in range(40)]
    for number in range(50):
        await log.append("r", frames(number, number))
        await asyncio.sleep(0.001)
    await log.close("r")
    for number, got in enumerate(await asyncio.gather(*readers)):
        assert got == frames(number % 7, 49).data


async def test_reader_that_leaves_disturbs_nobody(log: EventLog) -> None:
    await log.open("r")
    leaving, _ = await reading(log)
    staying, _ = await reading(log)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await log.append("r", frames(0, 3))
    await log.close("r")
    assert await staying == frames(0, 3).data


async def test_ten_megabytes(log: EventLog) -> None:
    big = [frames(10 * n, 10 * n + 9, "z" * 100_000) for n in range(10)]
    await log.open("r")
    for each in big:
        await log.append("r", each)
    await log.close("r")
    assert await read_all(log) == b"".join(each.data for each in big)


async def test_s9_another_worker_reads_along(open_log: OpenLog) -> None:
    writer, reader = open_log(), open_log()
    await writer.open("r")
    task, _ = await reading(reader)
    await writer.append("r", frames(0, 5))
    await writer.close("r")
    assert await task == frames(0, 5).data
    assert await read_all(reader, after=2) == frames(3, 5).data


async def test_discarded_log_is_not_begun_anew_by_whoever_writes_it(open_log: OpenLog) -> None:
    """Deleted here while another worker makes it: what that one sends is kept nowhere."""
    writer, deleter = open_log(), open_log()
    await writer.open("r")
    await writer.append("r", frames(0, 1))
    await deleter.discard("r")
    for number in (2, 3):
        with pytest.raises(LogGone):
            await writer.append("r", frames(number, number))
    await writer.close("r")
    with pytest.raises(LogGone):
        await writer.open("r")
    with pytest.raises(LogGone):
        await read_all(deleter)


async def test_reader_that_waits_gets_the_discarding_at_once(log: EventLog) -> None:
    await log.open("r")
    await log.append("r", frames(0, 0))
    reader = log.read("r")
    assert (await anext(reader)).last == 0
    waiting = asyncio.create_task(anext(reader))
    await asyncio.sleep(0.05)
    await log.discard("r")
    with pytest.raises(LogGone):
        await waiting
