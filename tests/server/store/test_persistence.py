"""`ResponseSessionPersistenceTransformer`: what passes is kept, and the end passes when it is durable."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from openresponses_bridge.decoder import ResponseAccumulator
from openresponses_bridge.protocol.codec import encode_sse
from openresponses_bridge.protocol.events import Event, ResponseFailed
from openresponses_bridge.protocol.response import Response
from openresponses_server.store import persistence
from openresponses_server.store.base import NOBODY, Lease, LeaseLost, StoreError, no_answer
from openresponses_server.store.endings import closing_events, interrupted, stored_end
from openresponses_server.store.frames import Frames, joined
from openresponses_server.store.logs.base import LogGone
from openresponses_server.store.logs.file import FileLog
from openresponses_server.store.persistence import RecordOptions, ResponseSessionPersistenceTransformer
from openresponses_server.store.writers import StoringTimes
from tests.support.failing_store import as_store
from tests.support.persistence import WORKER, Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_s1_record_is_there_before_the_first_event_passes(bench: Bench) -> None:
    await bench.take(bench.machine.start())
    record = await bench.record()
    assert (record.response.status, record.last_sequence) == ("in_progress", 1)
    assert record.lease is not None
    assert record.lease.worker == WORKER


async def test_s1_end_is_stored_before_it_passes(bench: Bench) -> None:
    await bench.take(bench.machine.start() + bench.machine.text("Hello"))
    end = bench.machine.finish("stop")
    assert await bench.take(end) == end
    record = await bench.record()
    assert record.response == bench.machine.snapshot
    assert record.lease is None
    assert bench.kept.saved


async def test_s2_frames_are_the_bytes_that_were_sent(bench: Bench) -> None:
    await bench.take(bench.machine.start())
    for word in ("a ", "b ", "c "):
        await bench.take(bench.machine.text(word))
        assert bench.kept.batch.data == encode_sse(bench.sent[bench.kept.batch.first :])
    await bench.kept.checkpoint()
    await bench.take(bench.machine.finish("stop"))
    assert await bench.stored_bytes() == encode_sse(bench.sent)
    logged = joined([frames async for frames in bench.log.read(bench.id)])
    assert logged is not None
    assert logged.data == encode_sse(bench.sent)


async def test_s1_batch_is_in_a_log_of_this_process_when_the_plain_call_returns(bench: Bench) -> None:
    begun = bench.kept.append(bench.machine.start())
    assert begun is not None
    await begun
    for word in ("a ", "b "):
        assert bench.kept.append(bench.machine.text(word)) is None
        logged = [frames.last async for frames in bench.log.read(bench.id, wait=False)]
        assert logged[-1] == bench.kept.batch.last
    await bench.kept.checkpoint()
    assert (await bench.record()).last_sequence == bench.kept.batch.last


async def test_s4_last_batch_that_is_very_long_is_left_to_the_store(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persistence, "_LARGEST_LOGGED", 1024 * 1024)
    await bench.take(bench.machine.start())
    reader = bench.log.read(bench.id)
    logged = [await anext(reader)]
    await bench.take(bench.machine.text("x" * 400_000))
    await bench.take(bench.machine.finish("stop"))
    assert len(bench.kept.batch.data) > 1024 * 1024
    logged += [frames async for frames in reader]
    assert logged[-1].last == bench.kept.batch.first - 1
    assert await bench.stored_bytes() == encode_sse(bench.sent)


async def test_s2_long_end_that_is_not_stored_yet_is_in_the_log(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persistence, "_LARGEST_LOGGED", 1024 * 1024)
    await bench.take(bench.machine.start())
    await bench.take(bench.machine.text("x" * 1_200_000))
    bench.store.down = {"finish"}
    await bench.take(bench.machine.finish("stop"))
    logged = joined([frames async for frames in bench.log.read(bench.id, wait=False)])
    assert logged is not None
    assert logged.data == encode_sse(bench.sent)


async def test_s2_reader_of_a_queued_response_is_served_from_its_first_event(bench: Bench) -> None:
    await bench.kept.queue()
    reader = bench.log.read(bench.id)
    waiting = asyncio.create_task(anext(reader))
    await asyncio.sleep(0)  # it looks for the log
    await bench.take(bench.machine.start())
    assert await waiting == bench.kept.batch


async def test_s2_response_that_is_queued_for_any_worker_can_be_waited_for(bench: Bench) -> None:
    await bench.kept.queue(for_anybody=True)
    lease = (await bench.record()).lease
    assert lease is not None
    assert lease.worker == NOBODY
    assert [each async for each in bench.log.read(bench.id, wait=False)] == []


@pytest.mark.parametrize("largest", [1024 * 1024, 10], ids=["short", "long"])
async def test_s2_reader_of_a_queued_response_that_ends_at_once_does_not_wait(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, largest: int
) -> None:
    """Whoever queued it has opened its log, and another worker makes it in one batch."""
    monkeypatch.setattr(persistence, "_LARGEST_LOGGED", largest)
    queued = Bench(request=b"{}", log=bench.log)
    await queued.kept.queue(for_anybody=True)
    record = await queued.record()
    lease = Lease("another", queued.time() + 10.0)
    assert await queued.store.kept.acquire(queued.id, lease, queued.time()) is not None
    machine = queued.machine
    transformer = ResponseSessionPersistenceTransformer(
        record,
        lambda: machine.snapshot,
        as_store(queued.store),
        bench.log,
        "another",
        StoringTimes(),
        RecordOptions(stored=True),
    )
    await transformer.persist(machine.start() + machine.text("Hi") + machine.finish("stop"))
    logged = [frames.last async for frames in bench.log.read(queued.id)]
    assert logged == ([transformer.batch.last] if len(transformer.batch.data) <= largest else [])


async def test_short_response_is_one_write(bench: Bench) -> None:
    await bench.take(bench.machine.start() + bench.machine.text("Hi") + bench.machine.finish("stop"))
    assert bench.store.calls == ["put"]
    assert await bench.stored_bytes() == encode_sse(bench.sent)


async def test_checkpoint_has_the_snapshot_and_the_frames_so_far(bench: Bench) -> None:
    await bench.take(bench.machine.start())
    await bench.take(bench.machine.text("Half of"))
    await bench.kept.checkpoint()
    record = await bench.record()
    assert record.response == bench.machine.snapshot
    assert record.response.output_text == "Half of"
    assert await bench.stored_bytes() == encode_sse(bench.sent)


async def test_checkpoint_is_due_after_the_interval_and_at_each_finished_item(bench: Bench) -> None:
    await bench.take(bench.machine.start())
    await bench.take(bench.machine.text("x"))
    assert not bench.kept.due(bench.time())
    assert bench.kept.due(bench.time() + 1.0)
    await bench.take(bench.machine.tool_call(0, "call_1", "f"))  # ends the message
    assert bench.woken == 1
    assert bench.kept.due(bench.time())


async def test_checkpoint_renews_the_lease_by_the_clock_of_the_store(bench: Bench) -> None:
    await bench.take(bench.machine.start())
    bench.time.now += 5.0
    assert not bench.kept.due(bench.time())  # nothing has passed
    await bench.kept.checkpoint()
    lease = (await bench.record()).lease
    assert lease is not None
    assert lease.until == bench.time() + 10.0


async def test_failed_checkpoint_is_made_up_for_by_the_next(bench: Bench) -> None:
    await bench.take(bench.machine.start())
    bench.store.down = {"checkpoint"}
    for word in ("a ", "b "):
        await bench.take(bench.machine.text(word))
        await bench.kept.checkpoint()
    assert (await bench.record()).last_sequence == 1
    bench.store.down = set()
    await bench.take(bench.machine.text("c "))
    await bench.kept.checkpoint()
    assert await bench.stored_bytes() == encode_sse(bench.sent)


async def test_beginning_that_can_not_be_stored_is_refused(bench: Bench) -> None:
    bench.store.down = {"put"}
    with pytest.raises(StoreError):
        await bench.take(bench.machine.start())
    assert bench.sent == []


@pytest.mark.parametrize("wire", ["openresponses", "openai"])
async def test_s1_end_that_can_not_be_stored_is_reported_as_failed(wire: str) -> None:
    bench = Bench(wire)
    await bench.take(bench.machine.start() + bench.machine.text("All of it"))
    bench.store.down = {"finish"}
    await bench.take(bench.machine.finish("stop"))
    types = [event.type for event in bench.sent]
    assert types[-2:] == ["error", "response.failed"]
    assert "response.completed" not in types
    assert [event.sequence_number for event in bench.sent] == list(range(len(types)))  # type: ignore[union-attr]
    failed = bench.sent[-1].response  # type: ignore[union-attr]
    assert failed.error is not None
    assert failed.error.code == "store_unavailable"
    assert failed.output_text == "All of it"
    folded = ResponseAccumulator()
    for event in bench.sent:
        folded.feed(event)
    assert folded.response == failed


async def test_s1_end_whose_answer_was_lost_becomes_what_the_client_was_sent() -> None:
    bench = Bench(certainty=0.0)
    await bench.take(bench.machine.start() + bench.machine.text("All of it"))
    bench.store.mute = {"finish"}
    await bench.take(bench.machine.finish("stop"))
    assert bench.sent[-1].type == "response.failed"
    bench.store.mute = set()
    await bench.kept.checkpoint()
    assert bench.kept.saved
    assert (await bench.record()).response == bench.sent[-1].response  # type: ignore[union-attr]
    assert await bench.stored_bytes() == encode_sse(bench.sent)


async def test_s1_an_end_that_may_be_stored_is_stored_again_until_that_is_known(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the store refuses after an answer was lost says nothing of the end before."""
    await bench.take(bench.machine.start() + bench.machine.text("All of it"))
    answers = [no_answer(), StoreError(StoreError.UNAVAILABLE, "The session store can't be reached."), None]

    async def finish(*given: Any, **named: Any) -> None:
        answer = answers.pop(0)
        if answer is None or answer.uncertain:
            await bench.store.kept.finish(*given, **named)
        if answer is not None:
            raise answer

    monkeypatch.setattr(bench.store, "finish", finish, raising=False)
    await bench.take(bench.machine.finish("stop"))
    assert bench.sent[-1].type == "response.completed"
    assert bench.kept.saved
    assert (await bench.record()).response.status == "completed"


async def test_an_end_that_may_be_stored_is_given_up_once_the_process_is_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if it is asked to while it waits."""
    tries = 0

    async def finish(*_given: Any, **_named: Any) -> None:
        nonlocal tries
        tries += 1
        raise no_answer()

    bench = Bench(in_haste=lambda: tries == 3)
    await bench.take(bench.machine.start() + bench.machine.text("All of it"))
    monkeypatch.setattr(bench.store, "finish", finish, raising=False)
    await bench.take(bench.machine.finish("stop"))
    assert (bench.sent[-1].type, tries) == ("response.failed", 3)


async def test_end_that_was_sent_as_failed_is_stored_as_that_later(bench: Bench) -> None:
    await bench.take(bench.machine.start() + bench.machine.text("All of it"))
    bench.store.down = {"finish"}
    await bench.take(bench.machine.finish("stop"))
    assert not bench.kept.saved
    bench.store.down = set()
    bench.time.now += 1.0
    assert bench.kept.due(bench.time())
    await bench.kept.checkpoint()
    assert bench.kept.saved
    assert (await bench.record()).response == bench.sent[-1].response  # type: ignore[union-attr]
    assert await bench.stored_bytes() == encode_sse(bench.sent)


async def test_failed_response_stays_the_failure_that_it_was(bench: Bench) -> None:
    await bench.take(bench.machine.start())
    bench.store.down = {"finish"}
    end = bench.machine.fail({"code": "upstream_failed", "message": "No."})
    assert await bench.take(end) == end


async def test_deleted_response_is_not_written_again_and_fails(bench: Bench) -> None:
    await bench.take(bench.machine.start())
    await bench.store.kept.delete(bench.id)
    await bench.take(bench.machine.text("x"))
    await bench.kept.checkpoint()
    assert bench.kept.lost
    sent = await bench.take(bench.machine.finish("stop"))
    assert sent[-1].type == "response.failed"
    assert sent[-1].response.error.code == "response_lost"  # type: ignore[union-attr]
    assert await bench.store.kept.get(bench.id) is None


async def settle_elsewhere(bench: Bench) -> Response:
    """Another worker takes the run and ends it, with no more than was saved."""
    await bench.store.kept.checkpoint(bench.id, Lease(WORKER, 1.0))
    record = await bench.store.kept.acquire(bench.id, Lease("other", 9.0), bench.time.now)
    assert record is not None
    ended = interrupted(record.response, whole=True)
    closing = closing_events(ended, record.last_sequence)
    frames = Frames(closing[0].sequence_number, closing[-1].sequence_number, encode_sse(closing))
    await bench.store.kept.finish(bench.id, "other", ended, frames)
    return ended


async def test_s1_client_of_a_run_that_is_settled_elsewhere_is_sent_the_end_that_is_stored(
    bench: Bench,
) -> None:
    await bench.take(bench.machine.start())
    ended = await settle_elsewhere(bench)
    await bench.take(bench.machine.finish("stop"))
    assert bench.kept.lost
    assert bench.kept.batch.data == encode_sse(bench.sent[-1:])
    assert await bench.stored_bytes() == encode_sse(bench.sent)
    assert bench.sent[-1].response == ended  # type: ignore[union-attr]


async def test_s1_client_that_saw_more_is_sent_the_same_end_under_its_next_number(bench: Bench) -> None:
    await bench.take(bench.machine.start())
    await bench.take(bench.machine.text("x") + bench.machine.text("y"))
    ended = await settle_elsewhere(bench)
    seen = bench.kept.batch.last
    sent = await bench.take(bench.machine.finish("stop"))
    assert [(type(each), each.sequence_number) for each in sent] == [(ResponseFailed, seen + 1)]
    assert sent[0].response == ended  # type: ignore[union-attr]
    assert bench.kept.batch.data == encode_sse(sent)


@pytest.mark.parametrize("sends_only_at_end", [False, True])
async def test_s1_nothing_passes_once_the_run_is_known_to_be_lost(
    bench: Bench, sends_only_at_end: bool
) -> None:
    """In the same turn of the event loop already, in which nobody has interrupted the run yet."""
    bench.kept.sends_only_at_end = sends_only_at_end
    await bench.take(bench.machine.start() + bench.machine.text("x"))
    await bench.kept.checkpoint()
    await settle_elsewhere(bench)
    await bench.take(bench.machine.text("y"))
    await bench.kept.checkpoint()
    assert bench.kept.lost
    with pytest.raises(LeaseLost):
        bench.kept.append(bench.machine.text("z"))


async def test_s1_lost_run_waits_for_the_one_who_settles_it(bench: Bench) -> None:
    await bench.take(bench.machine.start())
    await bench.store.kept.checkpoint(bench.id, Lease(WORKER, 1.0))
    record = await bench.store.kept.acquire(bench.id, Lease("other", 9.0), bench.time.now)
    assert record is not None
    waiting = asyncio.create_task(stored_end(as_store(bench.store), bench.id, "", 1, lambda: 5.0))
    bench.store.down = {"standing"}
    await asyncio.sleep(0.15)
    bench.store.down = set()
    assert await stored_end(as_store(bench.store), bench.id, "", 1, lambda: 0.0) is None
    await bench.store.kept.finish(bench.id, "other", interrupted(record.response, whole=True))
    outcome = await waiting
    assert outcome is not None
    assert [each.type for each in outcome.events] == ["response.failed"]
    await bench.store.kept.delete(bench.id)
    assert await stored_end(as_store(bench.store), bench.id, "", 1, lambda: 5.0) is None


async def begin_to_settle_elsewhere(bench: Bench) -> Response:
    """Another worker takes the run, and has not ended it yet; what it will end as."""
    await bench.take(bench.machine.start())
    await bench.store.kept.checkpoint(bench.id, Lease(WORKER, 1.0))
    record = await bench.store.kept.acquire(bench.id, Lease("other", 9.0), bench.time.now)
    assert record is not None
    return interrupted(record.response, whole=True)


async def test_s1_client_of_a_lost_run_is_sent_nothing_else_while_another_worker_may_settle_it() -> None:
    """However much longer that takes than storing an end."""
    bench = Bench(settling=3600.0)
    ended = await begin_to_settle_elsewhere(bench)
    ending = asyncio.create_task(bench.take(bench.machine.finish("stop")))
    while bench.store.calls.count("standing") < 3:
        await asyncio.sleep(0.01)
        assert not ending.done()
    await bench.store.kept.finish(bench.id, "other", ended)
    assert (await ending)[-1].response == ended  # type: ignore[union-attr]


async def test_lost_run_of_a_process_that_is_to_end_waits_no_longer_than_for_its_store() -> None:
    leaving = False
    bench = Bench(settling=3600.0, in_haste=lambda: leaving)
    await begin_to_settle_elsewhere(bench)
    ending = asyncio.create_task(bench.take(bench.machine.finish("stop")))
    while bench.store.calls.count("standing") < 3:
        await asyncio.sleep(0.01)
    leaving = True
    assert (await ending)[-1].response.error.code == "response_lost"  # type: ignore[union-attr]


async def test_log_of_a_run_that_is_settled_elsewhere_is_left_to_its_readers(bench: Bench) -> None:
    await bench.take(bench.machine.start())
    await settle_elsewhere(bench)
    await bench.take(bench.machine.finish("stop"))
    logged = b"".join([frames.data async for frames in bench.log.read(bench.id)])
    assert logged == encode_sse(bench.sent[:-1])


async def test_log_that_is_gone_does_not_hold_up_the_run(bench: Bench) -> None:
    await bench.take(bench.machine.start())
    await bench.log.discard(bench.id)
    await bench.take(bench.machine.text("x"))
    await bench.take(bench.machine.finish("stop"))
    assert bench.sent[-1].type == "response.completed"
    assert await bench.stored_bytes() == encode_sse(bench.sent)


async def test_a_whole_stream_is_wrapped(bench: Bench) -> None:
    async def batches() -> AsyncIterator[list[Event]]:
        yield bench.machine.start()
        for word in ("a ", "b ", "c "):
            bench.time.now += 2.0
            yield bench.machine.text(word)
        yield bench.machine.finish("stop")

    sent = [event async for batch in bench.kept.transform(batches()) for event in batch]
    assert await bench.stored_bytes() == encode_sse(sent)
    assert bench.store.calls == ["put", "checkpoint", "checkpoint", "checkpoint", "finish"]


async def test_deleted_run_leaves_nothing_in_the_log(bench: Bench) -> None:
    """However the log came back after the deletion."""
    await bench.take(bench.machine.start() + bench.machine.text("secret"))
    await bench.store.kept.delete(bench.id)
    await bench.kept.checkpoint()
    logged = bench.log._bytes
    with pytest.raises(LeaseLost):
        await bench.take(bench.machine.text("secret"))
    assert bench.log._bytes == logged
    await bench.take(bench.machine.finish("stop"))
    assert bench.kept.lost
    assert bench.log._bytes == 0
    with pytest.raises(LogGone):
        await anext(bench.log.read(bench.id))


async def test_log_is_closed_when_the_end_is_stored_after_all(bench: Bench) -> None:
    await bench.take(bench.machine.start() + bench.machine.text("All of it"))
    bench.store.down = {"finish"}
    await bench.take(bench.machine.finish("stop"))
    bench.store.down = set()
    await bench.kept.checkpoint()
    assert bench.kept.saved
    logged = b"".join([frames.data async for frames in bench.log.read(bench.id)])
    assert logged == encode_sse(bench.sent)


# --- what nobody is sent before its end -------------------------------------------------------------------


@pytest.fixture
def sent_at_end(bench: Bench) -> Bench:
    bench.kept.sends_only_at_end = True
    return bench


async def test_s1_what_nobody_hears_before_its_end_is_stored_once(sent_at_end: Bench) -> None:
    await sent_at_end.take(sent_at_end.machine.start())
    await sent_at_end.take(sent_at_end.machine.text("Hello"))
    assert not sent_at_end.kept.due(sent_at_end.time.now)
    await sent_at_end.take(sent_at_end.machine.finish("stop"))
    assert sent_at_end.store.calls == ["put"]
    record = await sent_at_end.record()
    assert (record.response, record.lease) == (sent_at_end.machine.snapshot, None)
    assert await sent_at_end.stored_bytes() == encode_sse(sent_at_end.sent)
    with pytest.raises(LogGone):
        await anext(sent_at_end.log.read(sent_at_end.id))


async def test_s1_what_nobody_hears_is_stored_after_a_while(sent_at_end: Bench) -> None:
    """And from then on as any other response."""
    await sent_at_end.take(sent_at_end.machine.start())
    await sent_at_end.take(sent_at_end.machine.text("Hello"))
    sent_at_end.time.now += 1.0
    assert sent_at_end.kept.due(sent_at_end.time.now)
    assert not sent_at_end.kept.seen
    await sent_at_end.kept.checkpoint()
    record = await sent_at_end.record()
    assert (record.response.status, record.response.output_text) == ("in_progress", "Hello")
    assert record.lease is not None
    assert sent_at_end.kept.seen
    assert sent_at_end.kept.held
    await sent_at_end.take(sent_at_end.machine.text(" world"))
    assert [
        frames.last async for frames in sent_at_end.log.read(sent_at_end.id, record.last_sequence, wait=False)
    ]
    await sent_at_end.take(sent_at_end.machine.finish("stop"))
    assert sent_at_end.store.calls == ["put", "finish"]
    assert await sent_at_end.stored_bytes() == encode_sse(sent_at_end.sent)


async def test_what_nobody_heard_and_cannot_be_stored_is_refused(sent_at_end: Bench) -> None:
    """Soon, before all of it is made; nothing of it was sent."""
    await sent_at_end.take(sent_at_end.machine.start() + sent_at_end.machine.text("Hello"))
    sent_at_end.store.down.add("put")
    sent_at_end.time.now += 1.0
    await sent_at_end.kept.checkpoint()
    with pytest.raises(StoreError):
        await sent_at_end.take(sent_at_end.machine.text(" world"))
    assert not sent_at_end.kept.seen
    sent_at_end.store.down.clear()
    await sent_at_end.take(sent_at_end.machine.fail(no_answer()))
    assert (await sent_at_end.record()).response.status == "failed"


async def test_s1_what_a_log_on_a_disk_refuses_is_stored_before_it_passes(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.write_bytes(b"")  # so that it can't be made
    log: Any = FileLog(folder)
    bench = Bench(log=log)
    await bench.take(bench.machine.start())
    for word in ("a ", "b "):
        await bench.take(bench.machine.text(word))
        assert await bench.stored_bytes() == encode_sse(bench.sent)
    bench.store.down.add("checkpoint")
    with pytest.raises(StoreError):
        await bench.kept.persist(bench.machine.text("c "))
    bench.store.down.clear()
    folder.unlink()
    stored = await bench.stored_bytes()
    passed = bench.machine.text("d ")
    await bench.take(passed)
    assert await bench.stored_bytes() == stored
    assert [each.data async for each in log.read(bench.id, passed[0].sequence_number - 1, wait=False)] == [
        encode_sse(passed)
    ]
    await log.shutdown()
