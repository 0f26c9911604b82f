"""Where a reader that asks for what follows a number is served, refused or sent the end (law S2)."""

import asyncio
import time

import pytest

from openresponses_bridge.protocol.codec import encode_sse
from openresponses_server.errors import HttpError
from openresponses_server.runs import follow
from openresponses_server.runs.follow import Follower
from openresponses_server.store.base import NOBODY, Lease, StoredResponse
from openresponses_server.store.endings import CUT_OFF, INTERRUPTED
from openresponses_server.store.frames import Frames
from openresponses_server.store.logs.memory import MemoryLog
from tests.support.broken_runs import Left

DONE = b"data: [DONE]\n\n"
MOST = 1000
ALIVE = Lease("alive", time.time() + 86_400)  # made at collection


@pytest.fixture
async def left(monkeypatch: pytest.MonkeyPatch) -> Left:
    monkeypatch.setattr(follow, "_LOOK_AGAIN", 0.05)
    bench = Left()
    await bench.begin()
    bench.follower = another(bench)
    return bench


def another(left: Left) -> Follower:
    """Of a process that has sent nothing yet."""
    return Follower(left.store, left.log, left.settler, pause=0.01, most=MOST, interval=0.05)


async def last_of(left: Left) -> int:
    return (await left.record()).last_sequence


async def refused(left: Left, after: int, sent: int | None = None) -> str:
    with pytest.raises(HttpError) as error:
        await left.follower.check_starting_after(await left.standing(), after, sent)
    assert (error.value.http_status, error.value.param) == (400, "starting_after")
    return error.value.message


# --- ended by a crash ------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [False, True])
async def test_s2_end_of_a_settled_response_is_not_followed_by_another(left: Left, whole: bool) -> None:
    if whole:
        await left.log_more()
    await left.settler.sweep()
    last = await last_of(left)
    for _ in range(2):
        left.follower = another(left)
        await left.follower.check_starting_after(await left.standing(), last)
        assert await left.read(after=last) == DONE


@pytest.mark.parametrize("beyond", [1, 2, 50, MOST])
async def test_s2_client_that_saw_more_than_was_saved_is_sent_the_stored_end(left: Left, beyond: int) -> None:
    """It goes on from the number of that end, behind which nothing comes."""
    await left.settler.sweep()
    last = await last_of(left)
    end = await left.read(after=last - 1)
    assert end.startswith(b"event: response.failed\n")
    assert f'"sequence_number":{last},'.encode() in end
    assert end.count(b"event: ") == 1
    for _ in range(2):
        left.follower = another(left)
        await left.follower.check_starting_after(await left.standing(), last + beyond)
        assert await left.read(after=last + beyond) == end
    assert await left.read(after=last) == DONE


@pytest.mark.parametrize("beyond", [0, 1, 50])
async def test_s2_client_that_asked_before_the_end_was_stored_is_sent_it(left: Left, beyond: int) -> None:
    """Under the number of the end it has seen another event, which nobody has kept: it can't have the end."""
    after = len(left.saved) + beyond
    standing = await left.standing()
    await left.follower.check_starting_after(standing, after)
    await left.settler.sweep()
    shown = b"".join([data async for data in left.follower.follow(standing, after)])
    assert shown == await left.read(after=await last_of(left) - 1)
    assert shown.count(b"event: response.failed\n") == shown.count(b"event: ") == 1


async def test_s2_client_that_saw_more_than_a_log_kept_is_sent_the_stored_end(left: Left) -> None:
    """The log had lost its newest entries, which nothing shows; what it had was settled as all of it."""
    await left.log_more()
    await left.settler.sweep()
    record = await left.record()
    assert record.response.error == INTERRUPTED
    shown = await left.read(after=record.last_sequence + 1)
    assert shown == await left.read(after=record.last_sequence - 1)
    assert shown.endswith(DONE)


async def test_s2_end_that_is_known_to_be_whole_is_the_end(left: Left) -> None:
    """It was not settled: nobody can have seen another event under the last number."""
    end = left.machine.finish("stop")
    await left.store.checkpoint(left.id, Lease("dead", time.time() + 60))
    first = len(left.saved)
    frames = Frames(first, first + len(end) - 1, encode_sse(end))
    await left.store.finish(left.id, "dead", left.machine.snapshot, frames)
    assert await left.read(after=await last_of(left)) == DONE


async def test_s2_empty_log_reports_nothing_of_what_was_seen(left: Left) -> None:
    await left.log.open(left.id)
    standing = await left.standing()
    await left.settler.sweep()
    assert (await left.record()).response.error == CUT_OFF
    shown = [data async for data in left.follower.follow(standing, await last_of(left))]
    assert b"event: response.failed\n" in b"".join(shown)


async def test_s2_live_reader_that_saw_more_is_sent_the_end_of_a_run_that_is_settled(left: Left) -> None:
    """It has read the event whose number the stored end has, and then the log was lost."""
    await left.store.put(
        StoredResponse(left.machine.snapshot, [], lease=ALIVE),
        Frames(0, len(left.saved) - 1, encode_sse(left.saved)),
    )
    await left.log.open(left.id)
    first = len(left.saved)
    read: list[bytes] = []
    seen = asyncio.Event()

    async def follow_on() -> None:
        async for data in left.follower.follow(await left.standing(), first - 1):
            read.append(data)
            seen.set()

    reading = asyncio.create_task(follow_on())
    more = left.machine.text("!")
    await left.log.append(left.id, Frames(first, first + len(more) - 1, encode_sse(more)))
    await seen.wait()
    await left.log.discard(left.id)
    await left.store.checkpoint(left.id, Lease("alive", 1.0))
    await reading
    assert await last_of(left) == first
    shown = b"".join(read)
    assert shown.startswith(encode_sse(more))
    assert shown[len(encode_sse(more)) :].startswith(b"event: response.failed\n")
    assert f'"sequence_number":{first + len(more)},'.encode() in shown
    assert shown.endswith(DONE)


async def test_s1_end_that_the_log_had_is_not_sent_again_from_the_store(left: Left) -> None:
    """The log had lost its newest entries, so that the stored end says that clients may have seen more."""
    await left.store.put(
        StoredResponse(left.machine.snapshot, [], lease=ALIVE),
        Frames(0, len(left.saved) - 1, encode_sse(left.saved)),
    )
    await left.log.open(left.id)
    reading = asyncio.create_task(left.read(after=len(left.saved) - 1))
    await asyncio.sleep(0.02)
    await left.store.checkpoint(left.id, Lease("alive", 1.0))
    await left.settler.sweep()
    shown = await reading
    assert (await left.record()).response.error == CUT_OFF
    assert shown.count(b"event: response.failed\n") == 1
    assert shown.endswith(DONE)


async def test_s1_end_that_came_before_it_was_known_as_the_end_is_not_sent_again(left: Left) -> None:
    """The run was settled between the look at its record and the reading of its frames."""
    standing = await left.standing()
    await left.settler.sweep()
    assert (await left.record()).response.error == CUT_OFF
    shown = b"".join([data async for data in left.follower.follow(standing, -1)])
    assert shown.count(b"event: response.failed\n") == 1
    assert shown.endswith(DONE)


@pytest.mark.parametrize("beyond", [MOST + 1, 10**14])
async def test_number_that_no_response_reaches_is_refused(left: Left, beyond: int) -> None:
    await left.settler.sweep()
    last = await last_of(left)
    await left.follower.check_starting_after(await left.standing(), last + MOST)
    assert str(last) in await refused(left, last + beyond)


# --- still running ---------------------------------------------------------------------------------------


async def run_on(left: Left, log: bool = True) -> int:
    """It is alive after all, and more of it is in the log; the number of the last event."""
    await left.store.put(
        StoredResponse(left.machine.snapshot, [], lease=ALIVE),
        Frames(0, len(left.saved) - 1, encode_sse(left.saved)),
    )
    if log:
        await left.log_more()
    return len(left.saved + left.logged) - 1


async def test_number_that_a_run_of_this_process_has_not_reached_is_refused(left: Left) -> None:
    await run_on(left)
    standing = await left.standing()
    await left.follower.check_starting_after(standing, 7, sent=7)
    assert "7" in await refused(left, 8, sent=7)
    assert "no event" in await refused(left, len(left.saved), sent=-1)


async def renewing(left: Left) -> None:
    """Its worker lives and says so."""
    for more in range(1000):
        await left.store.checkpoint(left.id, Lease(ALIVE.worker, ALIVE.until + more))
        await asyncio.sleep(0.01)


async def test_number_that_another_workers_run_has_not_reached_is_refused(left: Left) -> None:
    last = await run_on(left)
    await left.follower.check_starting_after(await left.standing(), last)
    living = asyncio.create_task(renewing(left))
    assert str(last) in await refused(left, last + 1)
    living.cancel()


async def test_number_that_a_run_without_a_worker_has_not_reached_is_refused(left: Left) -> None:
    waiting = Lease(NOBODY, ALIVE.until)
    await left.store.put(StoredResponse(left.machine.snapshot, [], lease=waiting))
    await left.log.open(left.id)
    assert "no event" in await refused(left, 1)


async def test_s2_number_is_not_refused_while_its_worker_may_be_dead(
    left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log was out when the event was sent, and the worker died before its next checkpoint. Its lease
    goes on for a while, and nobody renews it."""
    monkeypatch.setattr(follow, "_UNSURE_FOR", 0.1)
    last = await run_on(left)
    with pytest.raises(HttpError) as error:
        await left.follower.check_starting_after(await left.standing(), last + 1)
    assert (error.value.http_status, error.value.code) == (503, "worker_unreachable")
    assert error.value.headers is not None
    assert int(error.value.headers["retry-after"]) > 0


async def test_s2_number_is_not_refused_while_the_run_is_settled(
    left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease that somebody has taken over is no sign of life of the worker."""
    monkeypatch.setattr(follow, "_UNSURE_FOR", 0.1)
    last = await run_on(left)
    checking = asyncio.create_task(left.follower.check_starting_after(await left.standing(), last + 1))
    await asyncio.sleep(0.07)
    taken = StoredResponse(left.machine.snapshot, [], lease=Lease("settler", ALIVE.until + 5))
    await left.store.put(taken, Frames(0, len(left.saved) - 1, encode_sse(left.saved)))
    with pytest.raises(HttpError) as error:
        await checking
    assert error.value.http_status == 503


async def test_s2_number_is_waited_for_until_the_run_is_settled(left: Left) -> None:
    """Then the stream has the end for whoever saw more than was saved."""
    last = await run_on(left)
    standing = await left.standing()
    checking = asyncio.create_task(left.follower.check_starting_after(standing, last + 2))
    await asyncio.sleep(0.07)
    await left.store.checkpoint(left.id, Lease(ALIVE.worker, 1.0))
    await left.settler.sweep()
    await checking
    assert b"event: response.failed\n" in await left.read(after=last + 2)


async def test_number_is_checkpointed_before_it_is_refused(left: Left) -> None:
    """The log lags behind, after an outage say; the store has it a moment later."""
    last = await run_on(left)
    standing = await left.standing()
    more = left.machine.text("!")
    frames = Frames(last + 1, last + len(more), encode_sse(more))
    await left.store.checkpoint(left.id, ALIVE, left.machine.snapshot, frames)
    await left.follower.check_starting_after(standing, last + 1)


async def test_what_cannot_be_known_is_sent_when_the_run_has_ended(left: Left) -> None:
    """The other worker's log is its own."""
    await run_on(left, log=False)
    left.follower = Follower(left.store, MemoryLog(), left.settler, pause=0.01, most=MOST, interval=0.05)
    standing = await left.standing()
    await left.follower.check_starting_after(standing, 500)
    reading = asyncio.create_task(left.read(after=500))
    end = left.machine.finish("stop")
    first = len(left.saved)
    frames = Frames(first, first + len(end) - 1, encode_sse(end))
    await left.store.finish(left.id, "alive", left.machine.snapshot, frames)
    shown = await reading
    assert shown.startswith(b"event: error\n")
    assert b'"sequence_number":501,' in shown
    assert b'"param":"starting_after"' in shown
    assert shown.endswith(DONE)


async def test_number_beyond_a_run_whose_worker_is_dead_is_not_refused_yet(left: Left) -> None:
    """Its client may have seen what nobody saved."""
    await left.log_more()
    await left.follower.check_starting_after(await left.standing(), len(left.saved + left.logged) + 5)
