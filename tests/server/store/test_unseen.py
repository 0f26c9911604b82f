"""A response in the background is made again while nobody can have seen any of its output (laws S1, S2)."""

import asyncio
import time
from typing import Any

import pytest
from msgspec.structs import replace

from openresponses_bridge import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import encode_sse
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.api.app import create_app
from openresponses_server.requests.assembly import RunAssembly
from openresponses_server.requests.background import enqueue
from openresponses_server.requests.prepare import prepare
from openresponses_server.requests.prepared import Received
from openresponses_server.settings import Settings
from openresponses_server.store.base import NOBODY, Lease, LeaseLost, StoredResponse, StoreError
from openresponses_server.store.endings import MAX_ATTEMPTS, RESTARTED, previous_attempts, shows_output
from openresponses_server.store.frames import Frames
from openresponses_server.store.logs.base import LogGone
from openresponses_server.store.logs.memory import MemoryLog
from openresponses_server.store.memory import MemoryStore
from tests.support.persistence import WORKER, Bench

REQUEST = b"{}"


@pytest.fixture
def bench() -> Bench:
    return Bench(request=REQUEST)


def restarts(machine: ResponseStreamStateMachine, count: int) -> list[Event]:
    begun = machine.start()
    for attempt in range(2, count + 2):
        begun += machine.extension_event(RESTARTED, {"attempt": attempt})
    return begun


async def counted(machine: ResponseStreamStateMachine, events: list[Event], **more: Any) -> int | None:
    """How often the response counts as begun when this is stored of it."""
    store = MemoryStore()
    record = StoredResponse(machine.snapshot, [], request=REQUEST, lease=Lease(WORKER, 1.0))
    frames = Frames(0, len(events) - 1, encode_sse(events)) if events else None
    await store.put(replace(record, **more), frames)
    stored_response = await store.get(machine.response_id)
    assert stored_response is not None
    return await previous_attempts(store, stored_response)


async def test_s1_each_making_that_showed_nothing_is_counted() -> None:
    machine = ResponseStreamStateMachine("m")
    assert await counted(machine, []) == 0
    begun = replace(machine.snapshot, status="in_progress")
    assert await counted(machine, [], response=begun) == 1
    for count in range(MAX_ATTEMPTS + 1):
        machine = ResponseStreamStateMachine("m")
        assert await counted(machine, restarts(machine, count)) == 1 + count


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("text", ("x",)),
        ("reasoning_encrypted", ("x",)),
        ("tool_call", (0, "c", "f", "")),
        ("extension_event", ("other:thing", {})),
    ],
)
async def test_s2_whatever_else_was_sent_counts_as_seen(method: str, arguments: tuple[Any, ...]) -> None:
    machine = ResponseStreamStateMachine("m")
    events = restarts(machine, 1)
    assert not shows_output(events)
    more = getattr(machine, method)(*arguments)
    assert shows_output(more)
    assert await counted(machine, events + more) is None


async def test_s2_what_has_no_request_or_has_ended_is_not_made_again() -> None:
    machine = ResponseStreamStateMachine("m")
    events = machine.start()
    assert await counted(machine, events, request=None) is None
    assert await counted(machine, events + machine.finish("stop"), lease=None) is None


async def test_s2_first_output_is_stored_before_it_passes(bench: Bench) -> None:
    """However long ago the last checkpoint was; later output need not be."""
    await bench.kept.queue()
    await bench.kept.begin()
    record = await bench.record()
    assert (record.response.status, record.last_sequence) == ("in_progress", -1)
    await bench.take(bench.machine.start())
    assert not bench.kept.seen
    await bench.take(bench.machine.text("first"))
    assert (await bench.record()).response.output_text == "first"
    assert bench.kept.seen
    await bench.take(bench.machine.text(" and more"))
    assert (await bench.record()).response.output_text == "first"


async def test_s2_first_output_that_can_not_be_stored_does_not_pass(bench: Bench) -> None:
    await bench.kept.queue()
    await bench.take(bench.machine.start())
    bench.store.down = {"checkpoint"}
    with pytest.raises(StoreError):
        await bench.take(bench.machine.text("first"))
    assert not bench.kept.seen


async def test_s1_what_nobody_saw_is_given_back(bench: Bench) -> None:
    await bench.kept.queue()
    await bench.take(bench.machine.start())
    assert await bench.kept.release()
    record = await bench.record()
    assert record.lease is not None
    assert record.lease.worker == NOBODY
    assert await previous_attempts(bench.store.kept, record) == 1
    assert not bench.kept.held
    assert not await bench.kept.release()
    with pytest.raises(LeaseLost):
        await bench.take(bench.machine.text("too late"))
    assert (await bench.record()).last_sequence == 1


async def test_s1_what_was_seen_or_can_not_be_made_elsewhere_is_kept() -> None:
    seen, lonely, foreground = Bench(request=REQUEST), Bench(request=REQUEST, shared=False), Bench()
    await seen.take(seen.machine.start() + seen.machine.text("x"))
    out = Bench(request=REQUEST)
    for bench in (lonely, foreground, out):
        await bench.kept.queue()
    out.store.down = {"release"}
    for bench in (seen, lonely, foreground, out):
        assert not await bench.kept.release()
        assert bench.kept.held


async def test_s1_response_that_another_worker_has_is_not_begun(bench: Bench) -> None:
    await bench.kept.queue()
    far = (await bench.store.kept.now()) + 1e6
    assert await bench.store.kept.acquire(bench.id, Lease("other", far), far) is not None
    await bench.kept.begin()
    assert bench.kept.lost


class SharedLog(MemoryLog):
    """As one in Redis is."""

    at_hand = False
    shared = True


@pytest.mark.parametrize("deleted", [False, True])
async def test_s1_log_of_a_response_that_is_made_elsewhere_is_left_alone(deleted: bool) -> None:
    """The worker that has it writes that log now; what was deleted leaves nothing behind."""
    bench = Bench(request=REQUEST, log=SharedLog(), timeout=0.2, clock=time.monotonic)
    await bench.kept.queue()
    await bench.take(bench.machine.start())
    if deleted:
        await bench.store.kept.delete(bench.id)
    else:
        assert await bench.kept.release()
    await bench.take(bench.machine.finish("stop"))
    if deleted:
        with pytest.raises(LogGone):
            await bench.log.append(bench.id, Frames(2, 2, b"data: {}\n\n"))
    else:
        await bench.log.append(bench.id, Frames(2, 2, b"data: {}\n\n"))


async def test_s2_poll_is_not_shown_output_that_is_not_stored() -> None:
    """It may be made again, with other words."""
    hanging, at = asyncio.Event(), asyncio.Event()

    class Slow(MemoryStore):
        async def checkpoint(
            self, response_id: str, lease: Lease, response: Any = None, frames: Any = None
        ) -> None:
            if response is not None and response.output:
                at.set()
                await hanging.wait()
            await super().checkpoint(response_id, lease, response, frames)

    app = create_app(Settings())
    service = app.state.service
    service.runs.store = Slow()
    object.__setattr__(service, "store", service.runs.store)
    request = CreateResponse(model="demo-slow", input="2 words", background=True)
    run = RunAssembly(await prepare(Received(request, {}, "req_1"), service), service).run()
    await enqueue(service, run)
    await at.wait()
    assert run.translation.snapshot.output
    assert run.visible_response is None
    hanging.set()
    await run.task
    assert run.visible_response is None  # it has ended: what is stored is shown


async def test_s1_end_behind_a_checkpoint_that_hangs_is_reported_and_stored_later() -> None:
    """The client gets its terminal event within the timeout, whatever the store does."""
    bench = Bench(timeout=0.3)
    await bench.take(bench.machine.start())
    await bench.take(bench.machine.text("Half"))
    hanging = asyncio.Event()
    checkpoint = bench.store.kept.checkpoint

    async def hang(*arguments: Any) -> None:
        await hanging.wait()
        await checkpoint(*arguments)

    bench.store.kept.checkpoint = hang  # type: ignore[method-assign, assignment]
    stuck = asyncio.create_task(bench.kept.checkpoint())
    await asyncio.sleep(0)
    sent = await bench.take(bench.machine.finish("stop"))
    assert [type(each).__name__ for each in sent[-2:]] == ["ErrorEvent", "ResponseFailed"]
    assert not bench.kept.saved
    hanging.set()
    await stuck
    await bench.kept.checkpoint()
    record = await bench.record()
    assert (record.response.status, record.lease) == ("failed", None)
    assert await bench.stored_bytes() == encode_sse(bench.sent)
