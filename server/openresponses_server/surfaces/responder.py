"""The ASGI application that sends the answer to one request in the form of its client's API: a stream or one
body, of one choice or several.

A response that is being made is sent by one coroutine, with a monitor that notices a disconnected client and
sends keep-alives. sse-starlette's EventSourceResponse takes four tasks for a stream and an async generator
(see docs/decisions.md): it sends what is stored (`stored_stream.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol

import anyio
from starlette.types import Receive, Scope, Send

from openresponses_bridge.dialects.base import CANCELLED, EncodeEvents, EncodeResponses, http_failure
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.response import Response
from openresponses_server.errors import HttpError
from openresponses_server.http.flow import offered
from openresponses_server.limits.gate import Gate
from openresponses_server.limits.memory import Reservation
from openresponses_server.runs.client import Batch, Deliver
from openresponses_server.runs.exchange import Translation
from openresponses_server.runs.run import Run
from openresponses_server.surfaces.stored_stream import may_be_followed
from openresponses_server.tasks import end_tasks

# The monitor starts as a timer, and becomes a task only for a request that takes longer: most do not.

_STARTS_AFTER: Final = 0.25  # seconds; law S3 has an upstream aborted within one
_RECANCEL_INTERVAL: Final = 0.5  # seconds; a library may mistake a cancellation for its own timeout

WatchClient = Callable[[float], Awaitable[bool]]
"""Watches the client of a request that has taken this many seconds. Returns when the client has disconnected;
the result is whether the request is to be cancelled."""


class ClientMonitor:
    """A context that is cancelled, and then left without an error, when the client disconnects; `client_left`
    says so. `watch_client` runs in a task, which starts after at most `latest` seconds; its exceptions are
    raised here."""

    def __init__(self, watch_client: WatchClient, latest: float) -> None:
        self._watch_client = watch_client
        self._after = min(_STARTS_AFTER, latest)
        self._task: asyncio.Task[None] | None = None
        self._cancelled = 0
        self._failure: Exception | None = None
        self.client_left = False

    async def __aenter__(self) -> ClientMonitor:
        self._loop = asyncio.get_running_loop()
        handler = asyncio.current_task(self._loop)
        assert handler is not None
        self._handler = handler
        self._timer = self._loop.call_later(self._after, self._begin)
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: Any
    ) -> bool:
        self._timer.cancel()
        if self._task is not None:
            # Its cancellation's traceback refers to this object: a reference back would be a cycle, which
            # keeps the whole response until a garbage collection.
            task, self._task = self._task, None
            await end_tasks([task])
        cancelled_here = self._cancelled > 0
        for _ in range(self._cancelled):
            self._handler.uncancel()
        if self._failure is not None:
            raise self._failure
        return cancelled_here and isinstance(error, asyncio.CancelledError) and not self._handler.cancelling()

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._watch())

    async def _watch(self) -> None:
        try:
            if not await self._watch_client(self._after):
                return
            self.client_left = True
        except Exception as error:
            self._failure = error
        while True:
            self._cancelled += 1
            self._handler.cancel()
            await asyncio.sleep(_RECANCEL_INTERVAL)


_STREAM_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy that buffers would undo the streaming
)

RemainingStream = Callable[[], AsyncIterator[bytes]]
"""The bytes of a stream after the last event that its client was sent, in chunks that may end within an
event."""


class StreamForm(Protocol):
    """The part of an `AnswerForm` that encodes streams."""

    stream_type: bytes
    is_protocol: bool

    @property
    def encoders(self) -> Sequence[EncodeEvents]:
        """As in `AnswerForm`."""
        ...

    def end(self) -> bytes:
        """As in `AnswerForm`."""
        ...


class WholeForm(Protocol):
    """The part of an `AnswerForm` that encodes answers that are not streamed."""

    single_reasoning_form: bool

    @property
    def whole(self) -> EncodeResponses:
        """As in `AnswerForm`."""
        ...


class KeepAlive(NamedTuple):
    """The seconds without anything sent after which a client is sent these bytes."""

    seconds: float
    data: bytes


class Choices(NamedTuple):
    """The shared part of several choices, which are several concurrent runs. Their slots in the gate are
    reserved together, and the reservation is released after all of them; `end` is called with the number of
    each run that has ended."""

    gate: Gate
    reservation: Reservation
    end: Callable[[int], None]

    @asynccontextmanager
    async def reserved(self, runs: Sequence[Run]) -> AsyncIterator[None]:
        """Hold the slots and the memory of these runs while the context lasts."""
        try:
            async with self.gate.slots(runs[0].owner, len(runs)):
                yield
        finally:
            self.reservation.release()


class Responder:
    """Responds to one request with its runs, usually one.

    It raises errors before the first byte, for the application's handlers; a client that disconnects aborts
    the upstreams. A run of several that fails is reported in its choice while the others continue; if all are
    refused before the first byte, the error of the first choice is raised. `leaving_cancels`: clients cancel
    by disconnecting, even a response that is stored.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        headers: Mapping[str, str],
        keep_alive: KeepAlive,
        choices: Choices | None = None,
        *,
        leaving_cancels: bool = False,
    ) -> None:
        self._runs = runs
        self._extra_headers = headers
        self._keep_alive = keep_alive
        self._choices = choices
        self._leaving_cancels = leaving_cancels
        self._refused: dict[int, BridgeError] = {}

    @property
    def _headers(self) -> list[tuple[bytes, bytes]]:
        # read at the first byte: an upstream that accepts adds its losses
        headers: list[tuple[bytes, bytes]] = []
        for name, value in self._extra_headers.items():
            headers.append((name.encode("latin-1"), value.encode("latin-1")))
        return headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused: BridgeError | None = None

        async def watch_client(begun: float) -> bool:
            await self._watch_client(receive, send, self._keep_alive.seconds - begun)
            return self._needs_client

        try:
            async with ClientMonitor(watch_client, self._keep_alive.seconds) as monitor:
                try:
                    async with nullcontext() if self._choices is None else self._choices.reserved(self._runs):
                        await self._answer(scope, send)
                except BridgeError as error:
                    refused = error
            if monitor.client_left:
                for run in self._runs:
                    if self._leaving_cancels:
                        run.stop()
                    await run.abandon()
            if refused is not None:
                raise refused
        finally:
            # Tracebacks of cancelled tasks refer to this object until the next garbage collection, which must
            # not keep the responses.
            vars(self).clear()

    @property
    def _needs_client(self) -> bool:
        """True if anything is left to do that only this client needs."""
        return not all(run.translation.ended for run in self._runs)

    async def _watch_client(self, receive: Receive, send: Send, wait: float) -> None:
        """Return when the client has disconnected. Send a keep-alive after `wait` seconds."""
        while True:
            with anyio.move_on_after(wait):
                if (await receive())["type"] == "http.disconnect":
                    return
                continue
            wait = await self._send_keepalive(send)

    async def _send_keepalive(self, _send: Send) -> float:
        """Send a keep-alive if one is due. Returns the seconds until the next call."""
        return self._keep_alive.seconds

    async def _answer(self, scope: Scope, send: Send) -> None:
        raise NotImplementedError

    async def _generate_all(self, delivers: Sequence[Deliver | None]) -> None:
        """Run several to their ends. Raises the first one's error when all were refused."""
        async with anyio.create_task_group() as tasks:
            for number, deliver in enumerate(delivers):
                tasks.start_soon(self._run_one, number, deliver)
        if len(self._refused) == len(self._runs):
            raise self._refused[0]

    async def _run_one(self, number: int, deliver: Deliver | None) -> None:
        assert self._choices is not None
        try:
            await self._runs[number].generate(deliver)
        except BridgeError as error:
            self._refused[number] = error
        finally:
            self._choices.end(number)


class StreamResponder(Responder):
    """Sends a stream, one write for each read from an upstream, with keep-alives between its frames; of
    several choices the chunks of all, interleaved.

    `make_form` is called when the answer begins. `rest` is the remaining stream for a client that falls
    behind, so that the run need not wait for it.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        headers: Mapping[str, str],
        keep_alive: KeepAlive,
        make_form: Callable[[], StreamForm],
        choices: Choices | None = None,
        *,
        leaving_cancels: bool = False,
        rest: RemainingStream | None = None,
    ) -> None:
        super().__init__(runs, headers, keep_alive, choices, leaving_cancels=leaving_cancels)
        self._make_form = make_form
        self._rest = rest
        self._form: StreamForm | None = None
        self._alone = choices is None
        self._catching_up = False
        self._head_sent = False
        self._at_frame_end = True
        self._last_write_at = 0.0
        self._loop = asyncio.get_running_loop()  # looking it up at each write is expensive
        self._write_lock = asyncio.Lock()  # serializes what has to wait for the client

    async def _answer(self, scope: Scope, send: Send) -> None:
        self._offered = offered(scope)
        if not self._alone:
            await self._generate_all([partial(self._deliver, send, n) for n in range(len(self._runs))])
            await self._send(send, self._last_of_choices(), more=False)
            return
        run, rest = self._runs[0], self._rest
        await run.generate(partial(self._deliver, send, 0), may_fall_behind=rest is not None)
        if rest is not None and run.client.is_behind:
            self._catching_up = True
            await self._catch_up(send, rest)

    def _deliver(self, send: Send, choice: int, batch: Batch) -> Awaitable[None] | None:
        form = self._form
        if form is None:
            form = self._form = self._make_form()
        ends = batch.last and self._alone
        if batch.frames is None or not form.is_protocol:
            data = form.encoders[choice](batch.events)
        else:
            data = batch.frames
        if ends:
            data += form.end()
        # events that wait for the client, perhaps those of another choice, must not be overtaken
        if not ends and not self._write_lock.locked() and self._offered(data):
            if data:
                self._last_write_at = self._loop.time()
            return None
        return self._send(send, data, more=not ends)

    def _last_of_choices(self) -> bytes:
        """Encode the failures of refused choices, then the end."""
        form = self._form or self._make_form()
        refused = [
            form.encoders[number](self._runs[number].refuse(error))
            for number, error in sorted(self._refused.items())
        ]
        return b"".join([*refused, form.end()])

    async def _send(self, send: Send, body: bytes, *, more: bool = True, whole_frames: bool = True) -> None:
        async with self._write_lock:
            self._at_frame_end = whole_frames
            if not self._head_sent:
                assert self._form is not None
                head = [(b"content-type", self._form.stream_type), *_STREAM_HEADERS, *self._headers]
                await send({"type": "http.response.start", "status": 200, "headers": head})
                self._head_sent = True
            self._last_write_at = self._loop.time()
            await send({"type": "http.response.body", "body": body, "more_body": more})

    async def _send_keepalive(self, send: Send) -> float:
        """Send the first events once the upstream has accepted (nothing is sent before the status is known,
        law S6), after that comments, or events to a client that ignores comments (field case 43)."""
        async with self._write_lock:
            seconds = self._keep_alive.seconds
            if not self._at_frame_end:
                return seconds
            quiet = self._loop.time() - self._last_write_at
            if quiet < seconds:
                return seconds - quiet
            sent = [run.send_keepalive() for run in self._runs]
            if not any(sent) and self._head_sent and any(not run.draining for run in self._runs):
                self._last_write_at = self._loop.time()
                await send({"type": "http.response.body", "body": self._keep_alive.data, "more_body": True})
            return seconds

    async def _catch_up(self, send: Send, rest: RemainingStream) -> None:
        async for data in rest():
            await self._send(send, data, whole_frames=may_be_followed(data))
        await self._send(send, b"", more=False)
        self._catching_up = False

    @property
    def _needs_client(self) -> bool:
        return self._catching_up or super()._needs_client


class WholeResponder(Responder):
    """Sends one JSON body when the response has ended, or those of all choices have. `make_form` is called
    then.

    A response that failed without output becomes an HTTP error; one with output is sent, if its API can
    express that.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        headers: Mapping[str, str],
        keep_alive: KeepAlive,
        make_form: Callable[[], WholeForm],
        choices: Choices | None = None,
    ) -> None:
        super().__init__(runs, headers, keep_alive, choices)
        self._make_form = make_form

    async def _answer(self, _scope: Scope, send: Send) -> None:
        alone = self._choices is None
        if alone:
            await self._runs[0].generate(None)
        else:
            await self._generate_all([None] * len(self._runs))
            for number, error in self._refused.items():
                self._runs[number].refuse(error)
        form = self._make_form()
        attribute = "translation.in_one_form" if form.single_reasoning_form else "translation.snapshot"
        responses: list[Response] = list(map(attrgetter(attribute), self._runs))
        body, (first, *_) = form.whole(*responses), responses
        if body is None or (alone and first.error is not None and not first.output):
            raise failure_of(self._runs[0].translation)
        length = (b"content-length", str(len(body)).encode())
        head = [(b"content-type", b"application/json"), length, *self._headers]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": body})


def failure_of(translation: Translation) -> HttpError:
    """Return the HTTP error for a response that can't be sent as one."""
    response = translation.snapshot
    if response.error is None:
        details = response.incomplete_details
        if CANCELLED.code in (response.status, details and details.reason):
            return HttpError(502, CANCELLED.message, code="cancelled")
        return HttpError(502, f"The response ended as {response.status}.", code=response.status)
    return translation.failure if isinstance(translation.failure, HttpError) else http_failure(response.error)
