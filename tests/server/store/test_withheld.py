"""A response in the background whose output is shown when it has ended."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.decoder import ResponseAccumulator
from openresponses_bridge.protocol.codec import decode_event, encode, encode_sse
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.sse import SSEDecoder
from openresponses_server.store import persistence
from openresponses_server.store.base import NOBODY
from openresponses_server.store.endings import RESTARTED, lost, previous_attempts
from tests.support.persistence import Bench

REQUEST = b"{}"


def bench_of(**more: Any) -> Bench:
    return Bench(request=REQUEST, withheld=True, **more)


def events_in(data: bytes) -> list[Event]:
    return [decode_event(frame.data) for frame in SSEDecoder().feed(data)]


async def logged(bench: Bench) -> bytes:
    log = b""
    async for frames in bench.log.read(bench.id, -1, wait=False):
        log += frames.data
    return log


@pytest.mark.parametrize("at_once", [False, True])
async def test_s2_nothing_of_the_output_is_stored_or_sent_before_its_end(at_once: bool) -> None:
    """However the events come; then it is stored with the end, and is the stream that was made."""
    bench = bench_of()
    await bench.kept.queue()
    await bench.kept.begin()
    machine = bench.machine
    begun, first = machine.start(), machine.text("Half")
    all_events = begun + first
    for events in [all_events] if at_once else [begun, first]:
        await bench.take(events)
    for events in (machine.text(" and"), machine.tool_call(0, "c", "f", "{}"), machine.text("half")):
        all_events += events
        await bench.take(events)
        bench.time.now += 60
        assert not bench.kept.due(bench.time.now)
        await bench.kept.checkpoint()
    record = await bench.record()
    assert (record.response.status, record.response.output, record.last_sequence) == ("in_progress", [], 1)
    assert record.response.usage is None
    assert await previous_attempts(bench.store.kept, record) == 1
    assert not bench.kept.seen
    assert bench.kept.batch.last == 1
    assert await logged(bench) == encode_sse(begun)
    last = machine.finish("stop")
    await bench.take(last)
    record = await bench.record()
    assert record.response == machine.snapshot
    assert record.lease is None
    assert await bench.stored_bytes() == encode_sse(all_events + last)
    assert record.last_sequence == last[-1].sequence_number


async def test_s1_what_is_withheld_is_given_back_and_made_elsewhere() -> None:
    bench = bench_of()
    await bench.kept.queue()
    await bench.take(bench.machine.start() + bench.machine.text("Half"))
    assert await bench.kept.release()
    record = await bench.record()
    assert record.lease is not None
    assert record.lease.worker == NOBODY
    assert await previous_attempts(bench.store.kept, record) == 1


async def test_s1_end_that_can_not_be_stored_in_time_is_stored_later_with_all() -> None:
    bench = bench_of()
    await bench.kept.queue()
    await bench.take(bench.machine.start() + bench.machine.text("Half"))
    bench.store.down = {"finish"}
    sent = await bench.take(bench.machine.finish("stop"))
    assert [each.type for each in sent][-2:] == ["error", "response.failed"]
    bench.store.down = set()
    await bench.kept.checkpoint()
    record = await bench.record()
    assert record.response.status == "failed"
    assert record.response.output_text == "Half"
    check(events_in(await bench.stored_bytes()), encode(record.response))


async def test_s2_run_that_another_worker_has_sends_that_ones_end_only() -> None:
    bench = bench_of()
    await bench.kept.queue()
    await bench.take(bench.machine.start() + bench.machine.text("Half"))
    assert await bench.store.kept.delete(bench.id)
    await bench.kept.checkpoint(always=True)
    sent = await bench.take(bench.machine.finish("stop"))
    assert sent[-1].response.error.code == lost().code  # type: ignore[union-attr]
    assert await bench.store.kept.get(bench.id) is None


async def test_s8_what_is_too_much_to_be_withheld_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """From there on as any other output, and then it is not made again."""
    monkeypatch.setattr(persistence, "_MOST", 2000)
    bench = bench_of()
    await bench.kept.queue()
    all_events = bench.machine.start()
    await bench.take(list(all_events))
    while not bench.kept.seen:
        assert len(all_events) < 100
        events = bench.machine.text("x" * 100)
        all_events += events
        await bench.take(events)
    assert len(encode_sse(all_events)) > 2000
    record = await bench.record()
    assert record.response.output_text == bench.machine.snapshot.output_text
    assert await bench.stored_bytes() == encode_sse(all_events) == await logged(bench)
    assert await previous_attempts(bench.store.kept, record) is None
    more = bench.machine.text("y")
    await bench.take(more)
    assert await logged(bench) == encode_sse(all_events + more)
    last = bench.machine.finish("stop")
    await bench.take(last)
    assert await bench.stored_bytes() == encode_sse(all_events + more + last)


async def test_response_that_is_not_in_the_background_withholds_nothing() -> None:
    bench = Bench(withheld=True)
    await bench.take(bench.machine.start() + bench.machine.text("x"))
    assert (await bench.record()).response.output_text == "x"


def check(events: list[Event], final: bytes) -> None:
    """A valid stream with this end, which its events amount to (law E1)."""
    validator, whole = StreamValidator(), ResponseAccumulator()
    problems = []
    for event in events:
        problems += validator.feed(event)
        whole.feed(event)
    assert problems + validator.close() == []
    assert whole.response is not None
    assert encode(whole.response) == final


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("text"), st.text(min_size=1, max_size=5)),
        st.tuples(st.just("reasoning"), st.text(min_size=1, max_size=5)),
        st.tuples(st.just("tool_call"), st.just("{}")),
    ),
    max_size=8,
)


@given(
    makings_before=st.integers(0, 2),
    steps=STEPS,
    cuts=st.lists(st.integers(1, 4), max_size=8),
    end=st.integers(0, 3),
)
def test_s2_stream_of_any_making_is_valid_and_whole(
    makings_before: int, steps: list[tuple[str, str]], cuts: list[int], end: int
) -> None:
    """However its events are cut into batches, however it ends, and however often it was begun."""
    asyncio.run(_any_making(makings_before, steps, cuts, end))


async def _any_making(makings_before: int, steps: list[tuple[str, str]], cuts: list[int], end: int) -> None:
    bench = bench_of()
    machine = bench.machine
    await bench.kept.queue()
    all_events = machine.start()
    for attempt in range(2, makings_before + 2):
        all_events += machine.extension_event(RESTARTED, {"attempt": attempt})
    visible = len(all_events)
    for number, (kind, what) in enumerate(steps):
        if kind == "tool_call":
            all_events += machine.tool_call(number, f"call_{number}", "f", what)
        else:
            all_events += getattr(machine, kind)(what)
    at = 0
    for size in [*cuts, len(all_events)]:
        if batch := all_events[at : at + size]:
            await bench.take(batch)
            at += size
            record = await bench.record()
            assert record.response.output == []
            assert record.last_sequence == min(at, visible) - 1
            assert await previous_attempts(bench.store.kept, record) is not None
    last = [
        lambda: machine.finish("stop"),
        lambda: machine.finish("length"),
        machine.cancel,
        lambda: machine.fail(lost()),
    ][end]()
    await bench.take(last)
    assert await bench.stored_bytes() == encode_sse(all_events + last)
    check(all_events + last, encode((await bench.record()).response))
