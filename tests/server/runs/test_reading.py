"""What comes while a run waits for its upstream is passed on where it arrives, and is kept elsewhere too."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from openresponses_bridge import ResponseStreamStateMachine
from openresponses_bridge.protocol.events import Event
from openresponses_server.runs.client_stream import Batch, Client, ClientStream
from openresponses_server.runs.reading import ReplyReader
from openresponses_server.store.frames import Frames
from openresponses_server.store.persistence import frames_of
from openresponses_server.upstreams.http import HttpReply
from openresponses_server.upstreams.http1.body import Body, FairScheduler
from tests.support.waiting import until

pytestmark = pytest.mark.anyio


class Still:
    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Spoken:
    """A translation of bytes, of which each read is a text."""

    question = None

    def __init__(self) -> None:
        self.machine = ResponseStreamStateMachine("m")
        self.is_complete = self._begun = False

    def feed(self, data: bytes) -> list[Event]:
        begun = [] if self._begun else self.machine.start()
        self._begun = True
        return begun + self.machine.text(data.decode())

    def end(self) -> list[Event]:
        return self.machine.finish("stop")


class FakePersistence:
    """What keeps elsewhere, and has what it is given when the test says so."""

    can_send_now = True

    def __init__(self) -> None:
        self.batch = Frames(0, -1, b"")
        self.asked: list[asyncio.Future[None]] = []

    def append(self, events: list[Event]) -> asyncio.Future[None]:
        self.batch = frames_of(events)
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]

    async def persist(self, events: list[Event]) -> list[Event]:
        self.batch = frames_of(events)
        return events


class Bench:
    """A run of which the first read is kept and delivered; `body` is what comes from its upstream."""

    def __init__(self) -> None:
        self.body = Body(Still(), FairScheduler(), asyncio.get_running_loop())
        self.reply = HttpReply("one", cast(Any, SimpleNamespace(content=self.body)), 10.0, "")
        self.spoken, self.persistence = Spoken(), FakePersistence()
        self.taken: list[int] = []
        self.room = asyncio.Event()
        self.room.set()
        client = Client(may_leave=True)
        client.attach(self.deliver, from_callback=True)
        self.client_stream = ClientStream(client, cast(Any, self.persistence))
        outcome: Any = SimpleNamespace(
            first_bytes_received=lambda: None, timing=SimpleNamespace(read=lambda _: None)
        )
        self.reading = ReplyReader(cast(Any, self.spoken), self.client_stream, cast(Any, None), outcome, "")
        self.running = asyncio.create_task(self.reading.read_to_end(self.reply))

    def deliver(self, batch: Batch) -> Any:
        if not self.room.is_set():
            return self._later(batch)
        self.taken += [event.sequence_number for event in batch.events]
        return None

    async def _later(self, batch: Batch) -> None:
        await self.room.wait()
        self.deliver(batch)

    async def begin(self) -> None:
        self.body.feed(b"a")
        await until(lambda: bool(self.persistence.asked))
        self.persistence.asked[-1].set_result(None)
        await until(lambda: self.body._direct_receiver is not None)

    async def have_it(self) -> None:
        self.persistence.asked[-1].set_result(None)
        await asyncio.sleep(0)

    async def end(self) -> None:
        """The run ends, and all has been sent once."""
        last = await self.running
        await self.client_stream.send_last(last, 1.0, lambda _instead: None)
        assert self.taken == list(range(self.taken[-1] + 1))


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    await made.begin()
    yield made
    made.reply.close()


async def test_s1_what_comes_is_passed_on_without_the_task_of_the_run(bench: Bench) -> None:
    before = len(bench.taken)
    for number in range(1, 4):
        bench.body.feed(b"b")
        assert len(bench.persistence.asked) == number + 1
        assert len(bench.taken) == before + number - 1
        await bench.have_it()
        assert len(bench.taken) == before + number
    bench.body.end()
    await bench.end()


async def test_s4_what_comes_meanwhile_is_not_read(bench: Bench) -> None:
    for text in (b"b", b"c", b"d"):
        bench.body.feed(text)
    assert bench.body._size == 2
    await bench.have_it()
    assert bench.body._size == 0
    assert len(bench.persistence.asked) == 3
    bench.body.end()
    await bench.have_it()
    await bench.end()


async def test_client_that_cannot_take_it_then_is_waited_for_by_the_run(bench: Bench) -> None:
    before = len(bench.taken)
    bench.body.feed(b"b")
    bench.room.clear()
    await bench.have_it()
    bench.body.feed(b"c")
    await asyncio.sleep(0.01)
    assert (len(bench.taken), bench.body._size) == (before, 1)
    bench.room.set()
    await until(lambda: len(bench.persistence.asked) == 3)
    await bench.have_it()
    bench.body.end()
    await bench.end()


@pytest.mark.parametrize("room", [True, False])
async def test_interrupted_run_sends_what_was_under_way_before_its_end_and_once(
    bench: Bench, room: bool
) -> None:
    bench.body.feed(b"b")
    bench.running.cancel()
    await asyncio.wait([bench.running])
    ending = asyncio.create_task(
        bench.client_stream.send_last(bench.spoken.machine.cancel(), 1.0, lambda _instead: None)
    )
    await asyncio.sleep(0)
    if not room:
        bench.room.clear()
    await bench.have_it()
    bench.room.set()
    async with asyncio.timeout(5):
        await ending
    assert bench.taken == list(range(bench.taken[-1] + 1))
