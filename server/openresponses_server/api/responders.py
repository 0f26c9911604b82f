"""ASGI applications that send a run's response over HTTP, as a stream or as JSON.

Each is one coroutine, with a monitor that notices a disconnected client and sends keep-alives.
sse-starlette's EventSourceResponse takes four tasks for a stream and an async generator: see
docs/decisions.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import anyio
from starlette.types import Receive, Scope, Send

from openresponses_bridge.dialects.base import CANCELLED
from openresponses_bridge.errors import BridgeError
from openresponses_server.api.forms import SurfaceForm
from openresponses_server.errors import HttpError, failure
from openresponses_server.http.direct_writes import offered
from openresponses_server.runs.client import Batch
from openresponses_server.runs.pipeline import Translation
from openresponses_server.runs.run import Run
from openresponses_server.tasks import end_tasks

# The monitor starts as a timer, and becomes a task only for a request that takes longer: most do not.

_STARTS_AFTER: Final = 0.25  # seconds; law S3 has an upstream aborted within one
_RECANCEL_INTERVAL: Final = 0.5  # seconds; a library may mistake a cancellation for its own timeout

WatchClient = Callable[[float], Awaitable[bool]]
"""Watches the client of a request that has taken this many seconds. Returns when the client has disconnected:
whether the request is to be cancelled."""


class ClientMonitor:
    """A context that is cancelled, and then left without an error, when the client disconnects; `client_left`
    says so. `watch_client` runs in a task, which starts after `latest` seconds or sooner; its exceptions are
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
        mine = self._cancelled > 0
        for _ in range(self._cancelled):
            self._handler.uncancel()
        if self._failure is not None:
            raise self._failure
        return mine and isinstance(error, asyncio.CancelledError) and not self._handler.cancelling()

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
_BLANK_LINE: Final = b"\n\n"

RemainingStream = Callable[[], AsyncIterator[bytes]]
"""The bytes of a stream after the last event that its client was sent, in chunks that may end within an
event."""


class Responder:
    """An ASGI application that responds to one request with its runs, mostly one.

    It raises errors before the first byte, for the application's handlers; a client that disconnects aborts
    the upstreams.
    """

    def __init__(self, runs: Sequence[Run], headers: Mapping[str, str], keep_alive: float) -> None:
        self._runs = runs
        self._extra_headers = headers
        self._keep_alive = keep_alive

    @property
    def _headers(self) -> list[tuple[bytes, bytes]]:
        # read at the first byte: an upstream that accepts adds its losses
        return [
            (name.encode("latin-1"), value.encode("latin-1")) for name, value in self._extra_headers.items()
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._offered = offered(scope)
        try:
            await self._serve(receive, send)
        finally:
            # Tracebacks of cancelled tasks refer to this object until the next garbage collection, which must
            # not keep the responses.
            vars(self).clear()

    async def _serve(self, receive: Receive, send: Send) -> None:
        refused: BridgeError | None = None

        async def watch_client(begun: float) -> bool:
            await self._watch_client(receive, send, self._keep_alive - begun)
            return self._needs_client

        async with ClientMonitor(watch_client, self._keep_alive) as monitor:
            try:
                await self._answer(send)
            except BridgeError as error:
                refused = error
        if monitor.client_left:
            for run in self._runs:
                await self._client_left(run)
        if refused is not None:
            raise refused

    async def _client_left(self, run: Run) -> None:
        """Called for each run when the client has disconnected."""
        await run.abandon()

    @property
    def _needs_client(self) -> bool:
        """Whether anything is left to do that only this client needs."""
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
        """Send a keep-alive, if one is due; the seconds until the next call."""
        return self._keep_alive

    async def _answer(self, send: Send) -> None:
        raise NotImplementedError


class StreamingResponder(Responder):
    """Sends a stream, with keep-alives between its frames."""

    stream_type: bytes
    keep_alive: bytes
    _head_sent = False
    _last_write_at = 0.0

    def __init__(self, runs: Sequence[Run], headers: Mapping[str, str], keep_alive: float) -> None:
        super().__init__(runs, headers, keep_alive)
        self._loop = asyncio.get_running_loop()  # looking it up at each write is expensive

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        if not self._head_sent:
            head = [(b"content-type", self.stream_type), *_STREAM_HEADERS, *self._headers]
            await send({"type": "http.response.start", "status": 200, "headers": head})
            self._head_sent = True
        self._last_write_at = self._loop.time()
        await send({"type": "http.response.body", "body": body, "more_body": more})

    async def _send_keepalive(self, send: Send) -> float:
        """Send the first events once the upstream has accepted (nothing is sent before the status is known,
        law S6), after that comments, or events to a client that ignores comments (field case 43)."""
        quiet = self._loop.time() - self._last_write_at
        if quiet < self._keep_alive:
            return self._keep_alive - quiet
        shown = [run.send_keepalive() for run in self._runs]
        if not any(shown) and self._head_sent and any(not run.draining for run in self._runs):
            self._last_write_at = self._loop.time()
            await send({"type": "http.response.body", "body": self.keep_alive, "more_body": True})
        return self._keep_alive


class RunStreamResponder(StreamingResponder):
    """The stream of one run, in the form of its surface: one write for each read from the upstream. `rest` is
    the remaining stream for a client that falls behind, so that the run need not wait for it."""

    def __init__(
        self,
        run: Run,
        headers: Mapping[str, str],
        keep_alive: float,
        form: SurfaceForm,
        rest: RemainingStream | None = None,
    ) -> None:
        super().__init__([run], headers, keep_alive)
        self._run = run
        self._form = form
        self._rest = rest
        self._catching_up = False
        self._at_frame_end = True
        # serializes comments and chunks while the client is slow
        self._write_lock = asyncio.Lock()
        self.stream_type, self.keep_alive = form.stream_type, form.keep_alive

    async def _answer(self, send: Send) -> None:
        self._asgi_send = send
        await self._run.generate(self._deliver, may_fall_behind=self._rest is not None)
        if self._rest is not None and self._run.client.is_behind:
            self._catching_up = True
            await self._catch_up(send, self._rest)

    def _deliver(self, batch: Batch) -> Awaitable[None] | None:
        data = self._form.streamed(batch, batch.last)
        if not batch.last and self._offered(data):
            if data:
                self._last_write_at = self._loop.time()
            return None
        return self._send(self._asgi_send, data, more=not batch.last)

    async def _catch_up(self, send: Send, rest: RemainingStream) -> None:
        async for data in rest():
            async with self._write_lock:
                self._at_frame_end = data.endswith(_BLANK_LINE)
                await self._send(send, data)
        await self._send(send, b"", more=False)
        self._catching_up = False

    @property
    def _needs_client(self) -> bool:
        return self._catching_up or super()._needs_client

    async def _send_keepalive(self, send: Send) -> float:
        async with self._write_lock:
            return await super()._send_keepalive(send) if self._at_frame_end else self._keep_alive


class JsonResponder(Responder):
    """Sends one JSON body."""

    async def _send(self, send: Send, body: bytes) -> None:
        length = (b"content-length", str(len(body)).encode())
        head = [(b"content-type", b"application/json"), length, *self._headers]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": body})


class RunJsonResponder(JsonResponder):
    """The response as JSON when it has ended.

    A response that failed without output becomes an HTTP error; one with output is sent, if its surface can
    express that.
    """

    def __init__(self, run: Run, headers: Mapping[str, str], keep_alive: float, form: SurfaceForm) -> None:
        super().__init__([run], headers, keep_alive)
        self._run = run
        self._form = form

    async def _answer(self, send: Send) -> None:
        await self._run.generate(None)
        translation = self._run.translation
        response = translation.in_one_form if self._form.single_reasoning_form else translation.snapshot
        body = self._form.whole(response)
        if body is None or (response.error is not None and not response.output):
            raise failure_of(self._run.translation)
        await self._send(send, body)


def failure_of(translation: Translation) -> HttpError:
    """The HTTP error for a response that can't be sent as one."""
    response = translation.snapshot
    if response.error is None:
        details = response.incomplete_details
        if CANCELLED.code in (response.status, details and details.reason):
            return HttpError(502, CANCELLED.message, code="cancelled")
        return HttpError(502, f"The response ended as {response.status}.", code=response.status)
    return translation.failure if isinstance(translation.failure, HttpError) else failure(response.error)
