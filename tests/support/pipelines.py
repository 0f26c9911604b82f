"""A run's pipeline without its outer parts: an upstream's body, a store and a client that a test drives."""

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any, cast

from openresponses_bridge import ResponseStreamStateMachine
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.events import Event, OutputTextDelta
from openresponses_bridge.state import ResponseStreamPhase
from openresponses_server.errors import UpstreamError
from openresponses_server.http.client.body import FairScheduler, ResponseBody
from openresponses_server.runs.client import Batch, Client
from openresponses_server.runs.exchange import Outflow, Wakeup
from openresponses_server.runs.pipeline import Pipeline, Stage
from openresponses_server.store.frames import Frames
from openresponses_server.store.persistence import frames_of
from openresponses_server.upstreams.http import HttpReply
from tests.support.waiting import until


class Connection:
    """A connection whose count is the number of times it was paused, less those it was resumed."""

    paused = 0

    def pause(self) -> None:
        self.paused += 1

    def resume(self) -> None:
        self.paused -= 1


class Untimed(FairScheduler):
    """Leaves nothing to the next iteration because of the time, which a busy machine would decide."""

    def _is_time_over(self) -> bool:
        return False


class Spoken:
    """A translation of bytes: each read is a text, and `.` ends the response."""

    question: Any = None
    failure: BridgeError | None = None

    def __init__(self) -> None:
        self.machine = ResponseStreamStateMachine("m")
        self.is_complete = False

    @property
    def begun(self) -> bool:
        return self.machine.phase is not ResponseStreamPhase.IDLE

    @property
    def ended(self) -> bool:
        return self.is_complete

    def begin(self) -> list[Event]:
        return [] if self._started else self._start()

    def keepalive(self) -> list[Event]:
        return self.machine.extension_event("x:alive", {})

    _started = False

    def _start(self) -> list[Event]:
        self._started = True
        return self.machine.start()

    def feed(self, data: bytes) -> list[Event]:
        events = self.begin()
        text, end, _ = data.decode().partition(".")
        if text:
            events += self.machine.text(text)
        return events + self.end() if end else events

    def end(self) -> list[Event]:
        self.is_complete = True
        return self.begin() + self.machine.finish("stop")

    def cancel(self) -> list[Event]:
        self.is_complete = True
        return self.begin() + self.machine.cancel()

    def settle(self, objection: str | None) -> list[Event]:
        return self.end()


class Persistence:
    """Takes the place of what stores a response: its beginning is stored in a task; with `far`, later batches
    are stored in a log elsewhere, which confirms each of them."""

    def __init__(self, *, far: bool = False, begun: bool = False) -> None:
        self.far, self.begun = far, begun
        self.batch = Frames(0, -1, b"")
        self.kept: list[int] = []
        self.asked: list[asyncio.Future[None]] = []
        self.failure: Exception | None = None
        self.beginning = asyncio.Event()
        self.lost = self.ended_elsewhere = False

    def append(self, events: list[Event]) -> Awaitable[None] | None:
        if self.failure is not None:
            raise self.failure
        self._note(events)
        if not self.begun:
            return self._begin()
        if not self.far:
            return None
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]

    async def persist(self, events: list[Event], unsent: list[Event] | None = None) -> list[Event]:
        self._note(events)
        return events

    def _note(self, events: list[Event]) -> None:
        self.kept += [event.sequence_number for event in events]
        self.batch = frames_of(events)

    async def _begin(self) -> None:
        await self.beginning.wait()
        self.begun = True


class Bench:
    """A run without its outer parts: the upstream sends `body`, and `sent` are the events that the client has
    received."""

    def __init__(self, persistence: Persistence | None = None) -> None:
        self.connection = Connection()
        self.body = ResponseBody(self.connection, Untimed())
        self.reply = HttpReply("one", cast(Any, SimpleNamespace(content=self.body, headers={})), 10.0, "")
        self.spoken, self.persistence = Spoken(), persistence
        self.sent: list[Event] = []
        self.lasts: list[bool] = []
        self.frames: list[bytes | None] = []
        self.failure: Exception | None = None
        self.takes = asyncio.Event()
        self.takes.set()
        self.client = Client(may_leave=persistence is not None)
        self.client.attach(self.deliver)
        outcome: Any = SimpleNamespace(
            asks=lambda _attempts: None,
            answered_at=None,
            timing=SimpleNamespace(read=lambda _: None),
        )
        outflow = Outflow(self.client, cast(Any, persistence), Wakeup())
        self.objection = asyncio.get_running_loop().create_future()
        judge = SimpleNamespace(objection=self._object)
        self.pipeline = Pipeline(cast(Any, self.spoken), outflow, cast(Any, judge), outcome, "", None)
        self.running = asyncio.create_task(self._run())

    async def _object(self, _question: object, _owner: str) -> str | None:
        return await self.objection  # type: ignore[no-any-return]

    async def _run(self) -> None:
        try:
            last = await self.pipeline.follow(cast(Any, self))
        except asyncio.CancelledError:
            last = self.pipeline.last or self.spoken.cancel()
        await self.pipeline.finish(last, 1.0, lambda _instead: None)

    # ── as `Attempts` ──────────────────────────────────────────────────────────────────────────────────
    replaceable: object | None = None
    was_cut = False
    others: tuple[HttpReply | None, ...] = ()
    asking: asyncio.Event | None = None
    committed = 0

    def commit(self) -> None:
        self.committed += 1

    async def ask_instead(self, _error: UpstreamError) -> HttpReply | None:
        if self.asking is not None:
            await self.asking.wait()
        other, *self.others = self.others  # type: ignore[assignment]
        if other is not None:
            self.reply.close()
            self.reply = other
        return other

    async def __aenter__(self) -> HttpReply:
        return self.reply

    async def __aexit__(self, *_: object) -> None:
        self.reply.close()

    # ── as its client ──────────────────────────────────────────────────────────────────────────────────
    def deliver(self, batch: Batch) -> Awaitable[None] | None:
        if self.failure is not None:
            raise self.failure
        if not self.takes.is_set():
            return self._later(batch)
        self._take(batch)
        return None

    async def _later(self, batch: Batch) -> None:
        await self.takes.wait()
        self._take(batch)

    def _take(self, batch: Batch) -> None:
        if self.persistence is not None:
            assert batch.events[-1].sequence_number in self.persistence.kept, "sent before it was kept"
        self.sent += batch.events
        self.lasts.append(batch.last)
        self.frames.append(batch.frames)

    @property
    def numbers(self) -> list[int]:
        return [event.sequence_number for event in self.sent]

    @property
    def text(self) -> str:
        return "".join(event.delta for event in self.sent if isinstance(event, OutputTextDelta))

    async def begin(self) -> None:
        await asyncio.sleep(0)
        self.body.feed(b"a")
        if self.persistence is not None:
            self.persistence.beginning.set()
            await until(lambda: bool(self.sent))

    async def have_it(self) -> None:
        """Confirm the newest batch as the log does, and let the callbacks run."""
        assert self.persistence is not None
        self.persistence.asked[-1].set_result(None)
        await asyncio.sleep(0)

    async def end(self) -> None:
        await asyncio.wait([self.running], timeout=60)
        assert self.running.done(), "it hangs"
        await self.running
        assert self.numbers == list(range(len(self.numbers)))
        assert self.lasts[-1]
        assert not any(self.lasts[:-1])
        assert self.pipeline.stage is Stage.ENDED


REFUSED = b'data: {"error": {"message": "gone", "code": "x"}}\n\n'


def refusing(persistence: Persistence | None, *others: HttpReply | None) -> Bench:
    bench = Bench(persistence)
    bench.replaceable = SimpleNamespace(refused=lambda _body: UpstreamError(400, "gone"))
    bench.others = others
    bench.asking = asyncio.Event()
    return bench
