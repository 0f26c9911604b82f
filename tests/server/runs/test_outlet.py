"""Batches leave in their order, whether they wait for their client or not."""

import asyncio
from collections.abc import Awaitable
from typing import Any, cast

import pytest

from openresponses_bridge import ResponseStreamStateMachine
from openresponses_bridge.protocol.events import Event
from openresponses_server.errors import HttpError
from openresponses_server.runs.outlet import Batch, Client, Order, Outlet, Rest
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
async def outlet(taker: Taker) -> Outlet:
    client = Client(may_leave=False)
    client.attach(taker.deliver, anywhere=True)
    return Outlet(client, None)


async def passed_on(outlet: Outlet, events: list[Event]) -> None:
    if (rest := outlet.pass_on(events)) is not None:
        await rest


async def test_what_waits_for_nothing_is_delivered_when_the_call_returns(
    outlet: Outlet, taker: Taker, machine: ResponseStreamStateMachine
) -> None:
    assert outlet.flows
    assert outlet.pass_on(machine.text("a")) is None
    assert taker.taken == [2, 3, 4]
    assert outlet.flows


async def test_nothing_passes_what_waits_for_its_client(
    outlet: Outlet, taker: Taker, machine: ResponseStreamStateMachine
) -> None:
    """Neither while it waits, nor between its going on and the turn of the next one."""
    taker.waits = may = asyncio.Event()
    rest = outlet.pass_on(machine.text("a"))
    assert isinstance(rest, Rest)
    flowed = [outlet.flows]
    first = asyncio.create_task(outlet.finish(rest))
    second = asyncio.create_task(passed_on(outlet, machine.text("b")))
    await asyncio.sleep(0)
    flowed.append(outlet.flows)
    taker.waits = None  # it takes what comes from now on
    may.set()
    while not first.done():
        await asyncio.sleep(0)
        flowed.append(outlet.flows or second.done())
    assert not any(flowed[:-1])
    await second
    assert taker.taken == [2, 3, 4, 5]
    assert outlet.flows


async def test_what_was_broken_off_goes_with_the_end(
    outlet: Outlet, taker: Taker, machine: ResponseStreamStateMachine
) -> None:
    taker.waits = asyncio.Event()
    rest = outlet.pass_on(machine.text("a"))
    assert rest is not None
    rest.close()
    taker.waits = None
    assert outlet.flows
    await outlet.pass_last(machine.finish("stop"), 1.0, lambda _instead: None)
    assert taker.taken == list(range(2, taker.taken[-1] + 1))


async def test_batch_that_waited_while_the_response_ended_is_not_the_last(
    outlet: Outlet, taker: Taker, machine: ResponseStreamStateMachine
) -> None:
    taker.waits = may = asyncio.Event()
    beat = asyncio.create_task(passed_on(outlet, machine.text("a")))
    await asyncio.sleep(0)
    last = asyncio.create_task(outlet.pass_last(machine.finish("stop"), 1.0, lambda _instead: None))
    may.set()
    await asyncio.gather(beat, last)
    assert taker.ends == [False, True]


@pytest.mark.parametrize("failure", [RuntimeError("a defect"), HttpError(500, "refused")])
async def test_delivery_that_fails_fails_in_the_task_of_the_run(
    outlet: Outlet, taker: Taker, machine: ResponseStreamStateMachine, failure: Exception
) -> None:
    """What calls may be a connection to an upstream, which could do nothing with it."""
    taker.failure = failure
    rest = outlet.pass_on(machine.text("a"))
    assert rest is not None
    with pytest.raises(type(failure)):
        await outlet.finish(rest)


async def test_client_that_may_leave_is_let_go_when_a_delivery_fails(
    taker: Taker, machine: ResponseStreamStateMachine
) -> None:
    client = Client(may_leave=True)
    client.attach(taker.deliver, anywhere=True)
    outlet = Outlet(client, None)
    taker.failure = OSError("gone")
    assert outlet.pass_on(machine.text("a")) is None
    taker.failure = None
    assert outlet.pass_on(machine.text("b")) is None
    assert taker.taken == []
    assert client.last_sent == -1


class Keeping:
    """What keeps in this process; `failure` is what keeps it from that."""

    flows = True

    def __init__(self, taker: Taker) -> None:
        self.batch = Frames(0, -1, b"")
        self.failure: Exception | None = None
        self.kept: list[int] = []
        self.sent_before: list[int] = []
        self._taker = taker

    def keep(self, events: list[Event]) -> None:
        if self.failure is not None:
            raise self.failure
        self.sent_before.append(len(self._taker.taken))
        self.kept += [event.sequence_number for event in events]
        self.batch = frames_of(events)


async def test_what_is_kept_in_this_process_is_kept_and_then_delivered(
    taker: Taker, machine: ResponseStreamStateMachine
) -> None:
    client, keeping = Client(may_leave=True), Keeping(taker)
    client.attach(taker.deliver, anywhere=True)
    outlet = Outlet(client, cast(Any, keeping))
    for word in "ab":
        assert outlet.pass_on(machine.text(word)) is None
    assert keeping.kept == taker.taken == [2, 3, 4, 5]
    assert keeping.sent_before == [0, 3]
    assert taker.frames == keeping.batch.data
    client.detach()
    assert outlet.pass_on(machine.text("c")) is None
    assert keeping.kept == [2, 3, 4, 5, 6]
    assert client.last_sent == 5


async def test_what_cannot_be_kept_is_not_delivered(
    taker: Taker, machine: ResponseStreamStateMachine
) -> None:
    client, keeping = Client(may_leave=True), Keeping(taker)
    client.attach(taker.deliver, anywhere=True)
    outlet = Outlet(client, cast(Any, keeping))
    keeping.failure = StoreError(StoreError.UNAVAILABLE, "The store is gone.")
    rest = outlet.pass_on(machine.text("a"))
    assert rest is not None
    with pytest.raises(StoreError):
        await outlet.finish(rest)
    assert taker.taken == []
    assert outlet.flows


class FarKeeping(Keeping):
    """What keeps elsewhere: a batch may leave when `there` is done."""

    def keep(self, events: list[Event]) -> asyncio.Future[None]:  # type: ignore[override]
        super().keep(events)
        self.there = asyncio.get_running_loop().create_future()
        return self.there

    async def take(self, events: list[Event]) -> list[Event]:
        super().keep(events)
        return events


class Far:
    """An outlet that keeps elsewhere, and what it said of batches that were under way."""

    def __init__(self, taker: Taker) -> None:
        self.client, self.keeping = Client(may_leave=True), FarKeeping(taker)
        self.client.attach(taker.deliver, anywhere=True)
        self.outlet = Outlet(self.client, cast(Any, self.keeping))
        self.said: list[Rest | None] = []

    def pass_on(self, events: list[Event]) -> None:
        assert self.outlet.pass_on(events, self.said.append) is None
        assert self.outlet.under_way

    async def have_it(self) -> None:
        """The log says that it has the batch, and callbacks have run."""
        self.keeping.there.set_result(None)
        await asyncio.sleep(0)


@pytest.fixture
async def far(taker: Taker) -> Far:
    return Far(taker)


async def test_s1_what_is_kept_elsewhere_leaves_by_itself_when_it_is_there(
    far: Far, taker: Taker, machine: ResponseStreamStateMachine
) -> None:
    far.pass_on(machine.text("a"))
    await asyncio.sleep(0.01)
    assert (taker.taken, far.said, far.outlet.flows) == ([], [], False)
    await far.have_it()
    assert (taker.taken, far.said, far.outlet.flows) == ([2, 3, 4], [None], True)
    assert not far.outlet.under_way
    assert taker.frames == far.keeping.batch.data


async def test_nothing_passes_what_waits_for_its_log(
    far: Far, taker: Taker, machine: ResponseStreamStateMachine
) -> None:
    far.pass_on(machine.text("a"))
    second = asyncio.create_task(passed_on(far.outlet, machine.text("b")))
    await asyncio.sleep(0)
    assert far.keeping.kept == [2, 3, 4]
    await far.have_it()
    assert taker.taken == [2, 3, 4]
    await asyncio.sleep(0)
    assert not far.outlet.flows
    await far.have_it()
    await second
    assert taker.taken == far.keeping.kept == [2, 3, 4, 5]
    assert far.outlet.flows


async def test_s1_task_waits_for_the_log(far: Far, taker: Taker, machine: ResponseStreamStateMachine) -> None:
    passing = asyncio.create_task(passed_on(far.outlet, machine.text("a")))
    await asyncio.sleep(0)
    assert far.outlet.storing
    assert taker.taken == []
    await far.have_it()
    await passing
    assert taker.taken == [2, 3, 4]
    assert not far.outlet.storing


async def test_what_is_there_and_waits_for_its_client_is_left_to_the_task(
    far: Far, taker: Taker, machine: ResponseStreamStateMachine
) -> None:
    taker.waits = may = asyncio.Event()
    far.pass_on(machine.text("a"))
    await far.have_it()
    (rest,) = far.said
    assert rest is not None
    assert not far.outlet.flows
    may.set()
    await far.outlet.finish(rest)
    assert taker.taken == [2, 3, 4]
    assert far.outlet.flows


@pytest.mark.parametrize("waits", [False, True])
async def test_end_comes_behind_what_is_under_way(
    far: Far, taker: Taker, machine: ResponseStreamStateMachine, waits: bool
) -> None:
    """Whether its client can take it then, or it is broken off."""
    taker.waits = asyncio.Event() if waits else None
    far.pass_on(machine.text("a"))
    last = asyncio.create_task(far.outlet.pass_last(machine.finish("stop"), 1.0, lambda _instead: None))
    await asyncio.sleep(0)
    assert far.keeping.kept == [2, 3, 4]
    await far.have_it()
    if waits:
        taker.waits = None
        (rest,) = far.said
        assert rest is not None
        rest.close()
    await last
    assert taker.taken == far.keeping.kept == list(range(2, taker.taken[-1] + 1))


async def test_batch_whose_turn_never_came_goes_with_the_end(
    outlet: Outlet, taker: Taker, machine: ResponseStreamStateMachine
) -> None:
    taker.waits = may = asyncio.Event()
    beat = asyncio.create_task(passed_on(outlet, machine.text("a")))
    await asyncio.sleep(0)
    behind = asyncio.create_task(passed_on(outlet, machine.text("b")))
    await asyncio.sleep(0)
    behind.cancel()
    await asyncio.wait([behind])
    may.set()
    await beat
    settled: list[Event | None] = []
    await outlet.pass_last(machine.finish("stop"), 1.0, settled.append)
    assert taker.taken == list(range(2, taker.taken[-1] + 1))
    assert settled == [None]


async def test_order_goes_on_from_one_who_gave_up_when_it_had_come() -> None:
    order, steps = Order(), list[str]()

    async def one(name: str) -> None:
        async with order:
            steps.append(name)

    await order.come()
    first, second = (asyncio.create_task(one(name)) for name in "ab")
    await asyncio.sleep(0)
    order.release()
    first.cancel()
    await asyncio.wait([first, second], timeout=5)
    assert steps == ["b"]
    assert order.free


async def test_order_is_not_free_while_somebody_has_a_turn_to_come() -> None:
    order, steps = Order(), list[str]()

    async def one(name: str) -> None:
        async with order:
            steps.append(name)
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(one(name)) for name in "abc"]
    free = []
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        free.append(order.free)
    assert steps == ["a", "b", "c"]
    assert free == [False] * (len(free) - 1) + [True]


async def test_who_gives_up_waiting_leaves_the_order() -> None:
    order = Order()
    async with order:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), order:
                pass
        assert not order.free
    assert order.free
