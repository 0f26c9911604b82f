"""Law S1: what a dead worker left is settled, once, with all that is known of it."""

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from openresponses_bridge import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import encode, encode_sse
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.errors import HttpError
from openresponses_server.limits.gate import Gate
from openresponses_server.runs import settle
from openresponses_server.runs.follow import Follower
from openresponses_server.runs.settle import Settler
from openresponses_server.runs.support import RunSupport
from openresponses_server.settings import Limits, Settings
from openresponses_server.store import writers
from openresponses_server.store.base import NOBODY, Lease, StoredResponse, StoreError
from openresponses_server.store.endings import CUT_OFF, INTERRUPTED, RESTARTED, failed
from openresponses_server.store.frames import Frames
from openresponses_server.store.logs.memory import MemoryLog
from openresponses_server.store.logs.redis import RedisLog
from openresponses_server.store.memory import MemoryStore
from tests.support.broken_runs import LONG_AGO, Left
from tests.support.clocks import Clock
from tests.support.failing_store import FailingStore, as_store


@pytest.fixture
async def left() -> Left:
    bench = Left()
    await bench.begin()
    return bench


async def test_s1_broken_off_run_is_failed_with_its_partial_output(left: Left) -> None:
    assert await left.settler.sweep() == 1
    record = await left.record()
    assert (record.response.status, record.lease) == ("failed", None)
    assert record.response.error is not None
    assert record.response.error.code == "response_interrupted"
    assert record.response.output_text == "Saved"
    assert record.response.output[0].status == "incomplete"  # type: ignore[union-attr]


async def test_what_outlived_the_worker_in_the_log_is_kept_too(left: Left) -> None:
    await left.log_more()
    await left.settler.sweep()
    record = await left.record()
    assert record.response.output_text == "Saved and logged"
    sent = encode_sse(left.saved + left.logged)
    shown = await left.read()
    assert shown.startswith(sent)
    assert shown[len(sent) :].startswith(b"event: response.failed\n")
    assert record.last_sequence == len(left.saved + left.logged)


class LateLog(MemoryLog):
    """A log of a machine that has little time for it."""

    async def acquire(self, run_id: str) -> None:
        await asyncio.sleep(0.01)

    async def read(self, run_id: str, after: int = -1, *, wait: bool = True) -> AsyncIterator[Frames]:
        await asyncio.sleep(0.01)
        async for frames in super().read(run_id, after, wait=wait):
            yield frames


@pytest.mark.parametrize("at_hand", [True, False])
async def test_s1_what_a_log_at_hand_has_is_waited_for_however_late_it_is(
    at_hand: bool, left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of another machine may never answer."""
    monkeypatch.setattr(settle, "_LOG_TIMEOUT", 0.0)
    left.log = LateLog()
    left.log.at_hand = at_hand
    await left.log_more()
    await Settler(left.store, left.log, 5.0).sweep()
    response = (await left.record()).response
    assert response.output_text == ("Saved and logged" if at_hand else "Saved")
    assert response.error == (INTERRUPTED if at_hand else CUT_OFF)


def test_s1_settling_is_held_for_longer_than_a_log_is_waited_for() -> None:
    """Once each before a response is made again and before it is released, and for its end."""
    assert writers.SETTLING > 3 * settle._LOG_TIMEOUT
    assert RedisLog("redis://127.0.0.1:1")._persist._timeout <= settle._LOG_TIMEOUT


async def test_end_that_was_logged_and_not_stored_stands(left: Left) -> None:
    """The client got a failure: its store was away when the response ended."""
    await left.log_more()
    end = left.machine.finish("stop")
    first = len(left.saved + left.logged)
    await left.log.append(left.id, Frames(first, first + len(end) - 1, encode_sse(end)))
    await left.settler.sweep()
    assert (await left.record()).response == left.machine.snapshot
    assert await left.read() == encode_sse(left.saved + left.logged + end) + b"data: [DONE]\n\n"


async def test_each_orphan_is_settled_once_however_many_try(left: Left) -> None:
    others = [Settler(left.store, left.log, 5.0) for _ in range(8)]
    assert sum(await asyncio.gather(*(other.sweep() for other in others))) == 1


async def test_s11_a_settled_run_is_one_line_of_whoever_settled_it(left: Left) -> None:
    others = [Settler(left.store, left.log, 5.0) for _ in range(8)]
    with capture_logs() as lines:
        await asyncio.gather(*(other.sweep() for other in others))
    assert [line for line in lines if line["event"] == "response"] == [
        {
            "event": "response",
            "log_level": "warning",
            "response_id": left.id,
            "model": "m",
            "status": "failed",
            "code": "response_interrupted",
            "input_tokens": 0,
            "output_tokens": 1,
            "estimated": True,
            "cause": "its worker stopped, and another one settled it",
        }
    ]


async def test_s11_a_run_that_could_not_begin_says_so(left: Left) -> None:
    record = await left.store.acquire(left.id, Lease("me", 4e9), 2.0)
    assert record is not None
    refused = HttpError(404, "private words", code="model_not_found")
    with capture_logs() as lines:
        await left.settler.end(record, "me", partial(failed, error=refused))
    (line,) = lines
    assert (line["log_level"], line["status"], line["code"]) == ("warning", "failed", "model_not_found")
    assert line["cause"] == "it could not begin"
    assert "private words" not in repr(lines)


async def test_process_that_was_starved_does_not_take_its_own_runs_for_dead(left: Left) -> None:
    """Its leases are over because it had no time to renew them."""

    async def renew() -> None:
        assert await left.store.renew({left.id: "dead"}, await left.store.now() + 5) == set()

    starved = Settler(left.store, left.log, 5.0, renew)
    assert await starved.sweep() == 0
    assert not await starved.settle(left.id)
    assert (await left.record()).response.status == "in_progress"


async def test_nobody_is_taken_for_dead_until_all_could_renew_after_an_outage(
    left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 50.0
    monkeypatch.setattr("openresponses_server.runs.settle.time", SimpleNamespace(monotonic=lambda: now))
    store = FailingStore()
    store.kept = left.store
    settler = Settler(as_store(store), left.log, 10.0)
    for failing in ("claim_orphans", "acquire", "now"):
        store.down = {failing}
        with pytest.raises(StoreError):
            await (settler.settle(left.id) if failing == "acquire" else settler.sweep())
        store.down = set()
        assert await settler.sweep() == 0
        now += 9.9
        assert not await settler.settle(left.id)
        now += 0.2
    assert await settler.sweep() == 1


async def test_nobody_is_taken_for_dead_until_all_could_renew_after_the_store_was_slow(
    left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did what was asked of it in the end, and meanwhile every lease was over."""
    clock, slow = Clock(), 6.0
    monkeypatch.setattr(settle, "time", SimpleNamespace(monotonic=clock))

    async def renew() -> None:
        clock.now += slow

    settler = Settler(left.store, left.log, 20.0, renew)
    assert await settler.sweep() == 0
    slow = 0.0
    assert await settler.sweep() == 0
    clock.now += 21
    assert await settler.sweep() == 1


async def test_reader_waits_for_the_settling_that_may_not_be_yet(left: Left) -> None:
    store = FailingStore()
    store.kept = left.store
    left.settler = Settler(as_store(store), left.log, 0.1)
    left.follower = Follower(left.store, left.log, left.settler, pause=0.01)
    store.down = {"now"}
    with pytest.raises(StoreError):
        await left.settler.sweep()
    store.down, store.calls = set(), []
    assert b"event: response.failed\n" in await left.read()
    assert store.calls == ["acquire", "finish"]


async def test_run_that_is_alive_is_left_alone(left: Left) -> None:
    alive = StoredResponse(left.machine.snapshot, [], lease=Lease("alive", time.time() + 60))
    await left.store.put(alive)
    assert await left.settler.sweep() == 0
    await left.settler.settle(left.id)
    assert (await left.record()).response.status == "in_progress"


async def test_run_that_never_began_ends_as_a_valid_stream() -> None:
    left = Left()
    await left.store.put(StoredResponse(left.machine.snapshot, [], lease=LONG_AGO))
    await left.settler.sweep()
    types = [line for line in (await left.read()).split(b"\n") if line.startswith(b"event: ")]
    assert types == [
        b"event: response.created",
        b"event: response.in_progress",
        b"event: response.failed",
    ]


async def test_queued_run_that_nobody_began_is_made(left: Left) -> None:
    taken: list[tuple[str, str]] = []

    async def rerun(record: StoredResponse, worker: str, _makings: int) -> None:
        assert record.lease is not None
        taken.append((record.response.id, record.lease.worker))
        assert record.lease.worker == worker

    queued = ResponseStreamStateMachine("m").snapshot
    body = encode(CreateResponse(model="m", input="x"))
    await left.store.put(StoredResponse(queued, [], request=body, lease=LONG_AGO))
    left.settler.rerun = rerun
    assert await left.settler.sweep() == 2
    assert [response_id for response_id, _ in taken] == [queued.id]
    assert (await left.record()).response.status == "failed"


@pytest.mark.parametrize("has_queue", [True, False])
async def test_s1_response_that_was_begun_three_times_ends(left: Left, has_queue: bool) -> None:
    """Once more would be one worker more, if it is the response that stops them."""
    settler = Settler(left.store, left.log, 5.0, has_queue=has_queue)
    taken: list[tuple[str, int]] = []

    async def rerun(record: StoredResponse, _worker: str, previous_attempts: int) -> None:
        taken.append((record.response.id, previous_attempts))

    settler.rerun = rerun
    ids = []
    for previous_attempts in (1, 2, 3):
        machine = ResponseStreamStateMachine("m")
        events = machine.start()
        for attempt in range(2, previous_attempts + 1):
            events += machine.extension_event(RESTARTED, {"attempt": attempt})
        frames = Frames(0, len(events) - 1, encode_sse(events))
        record = StoredResponse(machine.snapshot, [], request=b"{}", lease=LONG_AGO)
        await left.store.put(record, frames)
        ids.append(machine.response_id)
    await settler.sweep()
    while await settler.resume_waiting():
        pass
    assert sorted(taken) == sorted(zip(ids[:2], (1, 2), strict=True))
    ended = await left.store.get(ids[2])
    assert ended is not None
    assert (ended.response.status, ended.last_sequence) == ("failed", 4)


async def test_s1_what_the_log_shows_beyond_the_record_was_seen(left: Left) -> None:
    """A worker of an earlier version sent output before it was stored."""
    machine = ResponseStreamStateMachine("m")
    begun = machine.start()
    record = StoredResponse(machine.snapshot, [], request=b"{}", lease=LONG_AGO)
    await left.store.put(record, Frames(0, 1, encode_sse(begun)))
    current = await left.store.get(machine.response_id)
    assert current is not None
    assert await left.settler.previous_attempts(current) == 1
    await left.log.open(machine.response_id)
    more = begun + machine.text("Seen")
    await left.log.append(machine.response_id, Frames(0, len(more) - 1, encode_sse(more)))
    assert await left.settler.previous_attempts(current) is None


async def test_runs_of_a_process_that_has_stopped_are_settled_before_their_leases_are_over(
    left: Left,
) -> None:
    alive = Lease("stopped-1", time.time() + 600)
    await left.store.put(
        StoredResponse(left.machine.snapshot, [], lease=alive),
        Frames(0, len(left.saved) - 1, encode_sse(left.saved)),
    )
    others = [Settler(left.store, left.log, 5.0) for _ in range(4)]
    assert sum(await asyncio.gather(*(other.settle_process("other") for other in others))) == 0
    assert sum(await asyncio.gather(*(other.settle_process("stopped") for other in others))) == 1
    assert (await left.record()).response.error == CUT_OFF


@pytest.mark.parametrize("how", ["sweep", "settle", "settle_all_of"])
async def test_s9_what_waited_at_a_worker_that_stopped_goes_to_whoever_has_room(left: Left, how: str) -> None:
    """Else a thousand of them would stand in the line of the process that settles."""
    settler = Settler(left.store, left.log, 5.0, has_queue=True)
    taken: list[str] = []

    async def rerun(record: StoredResponse, _worker: str, _makings: int) -> None:
        taken.append(record.response.id)

    settler.rerun = rerun
    await settler.sweep()
    body = encode(CreateResponse(model="m", input="x"))
    queued = [ResponseStreamStateMachine("m").snapshot for _ in range(3)]
    for number, each in enumerate(queued):
        lease = Lease(f"dead-{number}", 1.0)
        await left.store.put(StoredResponse(each, [], request=body, lease=lease))
    if how == "settle":
        for each in queued:
            assert await settler.settle(each.id)
    else:
        assert await (settler.sweep() if how == "sweep" else settler.settle_process("dead")) == 3
    assert taken == []
    while await settler.resume_waiting():
        pass
    assert sorted(taken) == sorted(each.id for each in queued)


async def test_s9_what_waits_for_any_worker_is_not_swept_into_one_line(left: Left) -> None:
    settler = Settler(left.store, left.log, 5.0, has_queue=True)
    await settler.sweep()
    queued = ResponseStreamStateMachine("m").snapshot
    await left.store.put(StoredResponse(queued, [], request=b"{}", lease=Lease(NOBODY, 1.0)))
    assert await settler.sweep() == 0


async def test_reader_settles_what_it_finds_dead(left: Left) -> None:
    shown = await left.read(after=1)
    assert b"event: response.failed\n" in shown
    assert shown.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("beyond", [0, 1, 2, 50])
async def test_s2_client_that_saw_more_than_was_saved_gets_one_terminal_that_a_replay_has(
    left: Left, beyond: int
) -> None:
    """From its number on nothing of what was sent is kept."""
    last = len(left.saved) - 1 + beyond
    shown = (await left.read(after=last)).split(b"\n\n")
    assert len(shown) == 3  # the event, [DONE], nothing
    assert shown[0].startswith(b"event: response.failed\n")
    assert f'"sequence_number":{len(left.saved)},'.encode() in shown[0]


async def test_reader_of_a_deleted_response_is_let_go(left: Left) -> None:
    await left.store.put(StoredResponse(left.machine.snapshot, [], lease=Lease("alive", time.time() + 60)))
    reading = asyncio.create_task(left.read())
    await asyncio.sleep(0.05)
    await left.store.delete(left.id)
    assert b"[DONE]" not in await reading


async def test_reader_outwaits_a_store_that_is_out_of_reach(left: Left) -> None:
    store = FailingStore()
    store.kept = left.store
    follower = Follower(as_store(store), left.log, Settler(as_store(store), left.log, 0.05), pause=0.01)
    store.down = {"standing", "now"}
    read: list[bytes] = []

    async def follow() -> None:
        read.extend([data async for data in follower.follow(await left.standing(), 0)])

    reading = asyncio.create_task(follow())
    while store.calls.count("standing") < 3:
        await asyncio.sleep(0.01)
    store.down = set()
    await reading
    shown = b"".join(read)
    assert shown.startswith(encode_sse(left.saved[1:]))
    assert shown.count(b"event: response.failed\n") == shown.count(b"[DONE]") == 1


async def test_reader_whose_store_stays_out_of_reach_is_not_sent_an_end(left: Left) -> None:
    store = FailingStore()
    store.kept = left.store
    store.down = {"standing", "now"}
    settler = Settler(as_store(store), left.log, 0.05)
    follower = Follower(as_store(store), left.log, settler, pause=0.01, timeout=0.05)
    shown = b"".join([data async for data in follower.follow(await left.standing(), -1)])
    assert shown == encode_sse(left.saved)


@pytest.mark.parametrize("work", ["_maintain", "_settle_departed"])
async def test_store_that_fails_while_runs_are_settled_is_a_warning(
    work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = RunSupport(Settings(store="memory:"), MemoryStore())

    async def departed() -> set[str]:
        return {"another"}

    async def fails(*_: str) -> int:
        raise StoreError(StoreError.UNAVAILABLE, "It is down.")

    monkeypatch.setattr(runs, "presence", SimpleNamespace(departed=departed))
    monkeypatch.setattr(runs, "settler", SimpleNamespace(sweep=fails, settle_process=fails))
    with capture_logs() as lines:
        await getattr(runs, work)()
    assert [(line["event"], line["log_level"]) for line in lines] == [("store.failed", "warning")]
    assert lines[0]["code"] == StoreError.UNAVAILABLE


async def test_server_that_stops_does_not_take_what_it_hands_over(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    runs = RunSupport(Settings(store="memory:", lease=0.04), store)
    taken: list[str] = []
    handed_over: list[str] = []

    async def take(response_id: str) -> None:
        taken.append(response_id)

    async def rerun(record: StoredResponse, _worker: str, _makings: int) -> None:
        taken.append(record.response.id)

    async def hand_over() -> None:
        queued = ResponseStreamStateMachine("m").snapshot
        await store.put(StoredResponse(queued, [], request=b"{}", lease=LONG_AGO))
        handed_over.append(queued.id)
        await asyncio.sleep(0.2)  # time for many a look

    monkeypatch.setattr(runs.keeper, "drain", hand_over)
    async with runs.lifespan(Gate(Limits()), rerun, take, taken.append):
        pass
    assert handed_over
    assert taken == []
