"""Batches leave in their order, whether they wait for their client or not."""

import asyncio
from collections.abc import Awaitable
from typing import Any, cast

import pytest

from openresponses_bridge import ResponseStreamStateMachine
from openresponses_bridge.protocol.events import Event
from openresponses_server.errors import HttpError
from openresponses_server.runs.client_stream import Batch, Client, ClientStream, FifoLock, SuspendedCoroutine
from openresponses_server.store.base import StoreError
from openresponses_server.store.frames import Frames
from openresponses_server.store.persistence import frames_of

pytestmark = pytest.mark.anyio


class Taker:
    """A client's side: takes what comes, at once or when it is `let`."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.ends: list[bool] = []
        self.frames: bytes | None = None
        self.waits: asyncio.Event | None = None
        self.failure: Exception | None = None

    def deliver(self, batch: Batch) -> Awaitable[None] | None:
        if self.failure is not None:
            raise self.failure
        if self.waits is not None:
            return self._later(batch, self.waits)
        self._take(batch)
        return None

    async def _later(self, batch: Batch, may: asyncio.Event) -> None:
        await may.wait()
        self._take(batch)

    def _take(self, batch: Batch) -> None:
        self.taken += [event.sequence_number for event in batch.events]
        self.ends.append(batch.last)
        self.frames = batch.frames


@pytest.fixture
def machine() -> ResponseStreamStateMachine:
    made = ResponseStreamStateMachine("m")
    made.start()
    return made


@pytest.fixture
def taker() -> Taker:
    return Taker()


@pytest.fixture
async def client_stream(taker: Taker) -> ClientStream:
    client = Client(may_leave=False)
    client.attach(taker.deliver, from_callback=True)
    return ClientStream(client, None)


async def passed_on(client_stream: ClientStream, events: list[Event]) -> None:
    if (rest := client_stream.send(events)) is not None:
        await rest


async def test_what_waits_for_nothing_is_delivered_when_the_call_returns(
    client_stream: ClientStream, taker: Taker, machine: ResponseStreamStateMachine
) -> None:
    assert client_stream.can_send_now
    assert client_stream.send(machine.text("a")) is None
    assert taker.taken == [2, 3, 4]
    assert client_stream.can_send_now


async def test_nothing_passes_what_waits_for_its_client(
    client_stream: ClientStream, taker: Taker, machine: ResponseStreamStateMachine
) -> None:
    """Neither while it waits, nor between its going on and the turn of the next one."""
    taker.waits = may = asyncio.Event()
    rest = client_stream.send(machine.text("a"))
    assert isinstance(rest, SuspendedCoroutine)
    flowed = [client_stream.can_send_now]
    first = asyncio.create_task(client_stream.drain(rest))
    second = asyncio.create_task(passed_on(client_stream, machine.text("b")))
    await asyncio.sleep(0)
    flowed.append(client_stream.can_send_now)
    taker.waits = None  # it takes what comes from now on
    may.set()
    while not first.done():
        await asyncio.sleep(0)
        flowed.append(client_stream.can_send_now or second.done())
    assert not any(flowed[:-1])
    await second
    assert taker.taken == [2, 3, 4, 5]
    assert client_stream.can_send_now


async def test_what_was_broken_off_goes_with_the_end(
    client_stream: ClientStream, taker: Taker, machine: ResponseStreamStateMachine
) -> None:
    taker.waits = asyncio.Event()
    rest = client_stream.send(machine.text("a"))
    assert rest is not None
    rest.close()
    taker.waits = None
    assert client_stream.can_send_now
    await client_stream.send_last(machine.finish("stop"), 1.0, lambda _instead: None)
    assert taker.taken == list(range(2, taker.taken[-1] + 1))


async def test_batch_that_waited_while_the_response_ended_is_not_the_last(
    client_stream: ClientStream, taker: Taker, machine: ResponseStreamStateMachine
) -> None:
    taker.waits = may = asyncio.Event()
    beat = asyncio.create_task(passed_on(client_stream, machine.text("a")))
    await asyncio.sleep(0)
    last = asyncio.create_task(client_stream.send_last(machine.finish("stop"), 1.0, lambda _instead: None))
    may.set()
    await asyncio.gather(beat, last)
    assert taker.ends == [False, True]


@pytest.mark.parametrize("failure", [RuntimeError("a defect"), HttpError(500, "refused")])
async def test_delivery_that_fails_fails_in_the_task_of_the_run(
    client_stream: ClientStream, taker: Taker, machine: ResponseStreamStateMachine, failure: Exception
) -> None:
    """What calls may be a connection to an upstream, which could do nothing with it."""
    taker.failure = failure
    rest = client_stream.send(machine.text("a"))
    assert rest is not None
    with pytest.raises(type(failure)):
        await client_stream.drain(rest)


async def test_client_that_may_leave_is_let_go_when_a_delivery_fails(
    taker: Taker, machine: ResponseStreamStateMachine
) -> None:
    client = Client(may_leave=True)
    client.attach(taker.deliver, from_callback=True)
    client_stream = ClientStream(client, None)
    taker.failure = OSError("gone")
    assert client_stream.send(machine.text("a")) is None
    taker.failure = None
    assert client_stream.send(machine.text("b")) is None
    assert taker.taken == []
    assert client.last_sent == -1


class FakePersistence:
    """What keeps in this process; `failure` is what keeps it from that."""

    can_send_now = True

    def __init__(self, taker: Taker) -> None:
        self.batch = Frames(0, -1, b"")
        self.failure: Exception | None = None
        self.kept: list[int] = []
        self.sent_before: list[int] = []
        self._taker = taker

    def append(self, events: list[Event]) -> None:
        if self.failure is not None:
            raise self.failure
        self.sent_before.append(len(self._taker.taken))
        self.kept += [event.sequence_number for event in events]
        self.batch = frames_of(events)


async def test_what_is_kept_in_this_process_is_kept_and_then_delivered(
    taker: Taker, machine: ResponseStreamStateMachine
) -> None:
    client, persistence = Client(may_leave=True), FakePersistence(taker)
    client.attach(taker.deliver, from_callback=True)
    client_stream = ClientStream(client, cast(Any, persistence))
    for word in "ab":
        assert client_stream.send(machine.text(word)) is None
    assert persistence.kept == taker.taken == [2, 3, 4, 5]
    assert persistence.sent_before == [0, 3]
    assert taker.frames == persistence.batch.data
    client.detach()
    assert client_stream.send(machine.text("c")) is None
    assert persistence.kept == [2, 3, 4, 5, 6]
    assert client.last_sent == 5


async def test_what_cannot_be_kept_is_not_delivered(
    taker: Taker, machine: ResponseStreamStateMachine
) -> None:
    client, persistence = Client(may_leave=True), FakePersistence(taker)
    client.attach(taker.deliver, from_callback=True)
    client_stream = ClientStream(client, cast(Any, persistence))
    persistence.failure = StoreError(StoreError.UNAVAILABLE, "The store is gone.")
    rest = client_stream.send(machine.text("a"))
    assert rest is not None
    with pytest.raises(StoreError):
        await client_stream.drain(rest)
    assert taker.taken == []
    assert client_stream.can_send_now


class FakeRemotePersistence(FakePersistence):
    """What keeps elsewhere: a batch may leave when `there` is done."""

    def append(self, events: list[Event]) -> asyncio.Future[None]:  # type: ignore[override]
        super().append(events)
        self.there = asyncio.get_running_loop().create_future()
        return self.there

    async def persist(self, events: list[Event]) -> list[Event]:
        super().append(events)
        return events


class Far:
    """A client stream that stores elsewhere, and its callbacks for batches that waited for the log."""

    def __init__(self, taker: Taker) -> None:
        self.client, self.persistence = Client(may_leave=True), FakeRemotePersistence(taker)
        self.client.attach(taker.deliver, from_callback=True)
        self.client_stream = ClientStream(self.client, cast(Any, self.persistence))
        self.said: list[SuspendedCoroutine | None] = []

    def send(self, events: list[Event]) -> None:
        assert self.client_stream.send(events, self.said.append) is None
        assert self.client_stream.waits_for_log

    async def have_it(self) -> None:
        """The log says that it has the batch, and callbacks have run."""
        self.persistence.there.set_result(None)
        await asyncio.sleep(0)


@pytest.fixture
async def far(taker: Taker) -> Far:
    return Far(taker)


async def test_s1_what_is_kept_elsewhere_leaves_by_itself_when_it_is_there(
    far: Far, taker: Taker, machine: ResponseStreamStateMachine
) -> None:
    far.send(machine.text("a"))
    await asyncio.sleep(0.01)
    assert (taker.taken, far.said, far.client_stream.can_send_now) == ([], [], False)
    await far.have_it()
    assert (taker.taken, far.said, far.client_stream.can_send_now) == ([2, 3, 4], [None], True)
    assert not far.client_stream.waits_for_log
    assert taker.frames == far.persistence.batch.data


async def test_nothing_passes_what_waits_for_its_log(
    far: Far, taker: Taker, machine: ResponseStreamStateMachine
) -> None:
    far.send(machine.text("a"))
    second = asyncio.create_task(passed_on(far.client_stream, machine.text("b")))
    await asyncio.sleep(0)
    assert far.persistence.kept == [2, 3, 4]
    await far.have_it()
    assert taker.taken == [2, 3, 4]
    await asyncio.sleep(0)
    assert not far.client_stream.can_send_now
    await far.have_it()
    await second
    assert taker.taken == far.persistence.kept == [2, 3, 4, 5]
    assert far.client_stream.can_send_now


async def test_s1_task_waits_for_the_log(far: Far, taker: Taker, machine: ResponseStreamStateMachine) -> None:
    passing = asyncio.create_task(passed_on(far.client_stream, machine.text("a")))
    await asyncio.sleep(0)
    assert far.client_stream.storing
    assert taker.taken == []
    await far.have_it()
    await passing
    assert taker.taken == [2, 3, 4]
    assert not far.client_stream.storing


async def test_what_is_there_and_waits_for_its_client_is_left_to_the_task(
    far: Far, taker: Taker, machine: ResponseStreamStateMachine
) -> None:
    taker.waits = may = asyncio.Event()
    far.send(machine.text("a"))
    await far.have_it()
    (rest,) = far.said
    assert rest is not None
    assert not far.client_stream.can_send_now
    may.set()
    await far.client_stream.drain(rest)
    assert taker.taken == [2, 3, 4]
    assert far.client_stream.can_send_now


@pytest.mark.parametrize("waits", [False, True])
async def test_end_comes_behind_what_is_under_way(
    far: Far, taker: Taker, machine: ResponseStreamStateMachine, waits: bool
) -> None:
    """Whether its client can take it then, or it is broken off."""
    taker.waits = asyncio.Event() if waits else None
    far.send(machine.text("a"))
    last = asyncio.create_task(
        far.client_stream.send_last(machine.finish("stop"), 1.0, lambda _instead: None)
    )
    await asyncio.sleep(0)
    assert far.persistence.kept == [2, 3, 4]
    await far.have_it()
    if waits:
        taker.waits = None
        (rest,) = far.said
        assert rest is not None
        rest.close()
    await last
    assert taker.taken == far.persistence.kept == list(range(2, taker.taken[-1] + 1))


async def test_batch_whose_turn_never_came_goes_with_the_end(
    client_stream: ClientStream, taker: Taker, machine: ResponseStreamStateMachine
) -> None:
    taker.waits = may = asyncio.Event()
    beat = asyncio.create_task(passed_on(client_stream, machine.text("a")))
    await asyncio.sleep(0)
    behind = asyncio.create_task(passed_on(client_stream, machine.text("b")))
    await asyncio.sleep(0)
    behind.cancel()
    await asyncio.wait([behind])
    may.set()
    await beat
    settled: list[Event | None] = []
    await client_stream.send_last(machine.finish("stop"), 1.0, settled.append)
    assert taker.taken == list(range(2, taker.taken[-1] + 1))
    assert settled == [None]


async def test_lock_passes_on_from_a_waiter_cancelled_as_it_acquired() -> None:
    lock, steps = FifoLock(), list[str]()

    async def one(name: str) -> None:
        async with lock:
            steps.append(name)

    await lock.acquire()
    first, second = (asyncio.create_task(one(name)) for name in "ab")
    await asyncio.sleep(0)
    lock.release()
    first.cancel()
    await asyncio.wait([first, second], timeout=5)
    assert steps == ["b"]
    assert lock.free


async def test_lock_is_not_free_while_somebody_waits_for_it() -> None:
    lock, steps = FifoLock(), list[str]()

    async def one(name: str) -> None:
        async with lock:
            steps.append(name)
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(one(name)) for name in "abc"]
    free = []
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        free.append(lock.free)
    assert steps == ["a", "b", "c"]
    assert free == [False] * (len(free) - 1) + [True]


async def test_cancelled_waiter_leaves_the_lock() -> None:
    lock = FifoLock()
    async with lock:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), lock:
                pass
        assert not lock.free
    assert lock.free
