"""A run → an HTTP answer, streamed or whole.

Each answer is one coroutine that reads and writes, and its company, which notices when the client leaves and
keeps the connection alive while no events come. Measured against sse-starlette's
EventSourceResponse, which takes four tasks per stream and an async generator: see docs/decisions.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import anyio
from starlette.types import Receive, Scope, Send

from openresponses_bridge.dialects.base import CANCELLED
from openresponses_bridge.errors import BridgeError
from openresponses_server.api.forms import Form
from openresponses_server.errors import HttpError, failure
from openresponses_server.http.direct_writes import offered
from openresponses_server.runs.client_stream import Batch
from openresponses_server.runs.run import Run
from openresponses_server.runs.translation import Translation
from openresponses_server.tasks import end_tasks

# What goes along with the making of an answer: it notices that the client has left, and keeps its connection
# alive.
#
# Most answers are made before there is anything to notice, so it begins as a timer and becomes a task when
# the
# answer takes longer.

_BEGINS_AFTER: Final = 0.25  # seconds; law S3 has an upstream aborted within one
_AGAIN: Final = 0.5  # seconds: a library may take a cancellation for its own timeout

Accompany = Callable[[float], Awaitable[bool]]
"""Goes along with an answer that has been made for so many seconds. Returns when the client has left: whether
the answer is for nobody then."""


class Company:
    """While this context lasts, `accompany` goes along with it in its own task, which is begun after a while,
    `soonest` seconds at the latest. When the client has left, what is within is cancelled and the context
    ends without an error; `left` says so then. What `accompany` raises is raised here."""

    def __init__(self, accompany: Accompany, soonest: float) -> None:
        self._accompany = accompany
        self._after = min(_BEGINS_AFTER, soonest)
        self._task: asyncio.Task[None] | None = None
        self._cancelled = 0
        self._failure: Exception | None = None
        self.left = False

    async def __aenter__(self) -> Company:
        self._loop = asyncio.get_running_loop()
        making = asyncio.current_task(self._loop)
        assert making is not None
        self._making = making
        self._timer = self._loop.call_later(self._after, self._begin)
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: Any
    ) -> bool:
        self._timer.cancel()
        if self._task is not None:
            # It keeps the traceback of its cancellation, and that this object: with a reference back all that
            # the answer was made of would stay until a look for garbage.
            task, self._task = self._task, None
            await end_tasks([task])
        mine = self._cancelled > 0
        for _ in range(self._cancelled):
            self._making.uncancel()
        if self._failure is not None:
            raise self._failure
        return mine and isinstance(error, asyncio.CancelledError) and not self._making.cancelling()

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._go_along())

    async def _go_along(self) -> None:
        try:
            if not await self._accompany(self._after):
                return
            self.left = True
        except Exception as error:
            self._failure = error
        while True:
            self._cancelled += 1
            self._making.cancel()
            await asyncio.sleep(_AGAIN)


_STREAM_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy that buffers would undo the streaming
)
_BLANK_LINE: Final = b"\n\n"

Rest = Callable[[], AsyncIterator[bytes]]
"""The bytes of a stream after the last event that its client was sent, to the end; they may be cut
anywhere."""


class Answer:
    """An ASGI application that answers one request with its runs, mostly one.

    An error before the first byte leaves as an exception, for the application's handlers; leaving
    clients abort the upstreams.
    """

    def __init__(self, runs: Sequence[Run], headers: Mapping[str, str], keep_alive: float) -> None:
        self._runs = runs
        self._given = headers
        self._keep_alive = keep_alive

    @property
    def _headers(self) -> list[tuple[bytes, bytes]]:
        # read when the answer begins: what an upstream says of losses is known when it has accepted
        return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self._given.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._offered = offered(scope)
        try:
            await self._serve(receive, send)
        finally:
            # Tracebacks of what was cancelled refer to this object until the next look for garbage, which may
            # be far off; the responses are not to wait for that.
            vars(self).clear()

    async def _serve(self, receive: Receive, send: Send) -> None:
        refused: BridgeError | None = None

        async def accompany(begun: float) -> bool:
            await self._accompany(receive, send, self._keep_alive - begun)
            return self._unfinished

        async with Company(accompany, self._keep_alive) as company:
            try:
                await self._answer(send)
            except BridgeError as error:
                refused = error
        if company.left:
            for run in self._runs:
                await self._leave(run)
        if refused is not None:
            raise refused

    async def _leave(self, run: Run) -> None:
        """The client has left while this was made."""
        await run.abandon()

    @property
    def _unfinished(self) -> bool:
        """There is something left to do that only the client needs."""
        return not all(run.translation.ended for run in self._runs)

    async def _accompany(self, receive: Receive, send: Send, wait: float) -> None:
        """Return when the client has left. The connection is to be kept alive after so many seconds."""
        while True:
            with anyio.move_on_after(wait):
                if (await receive())["type"] == "http.disconnect":
                    return
                continue
            wait = await self._speak_up(send)

    async def _speak_up(self, _send: Send) -> float:
        """Called when some time has passed; the seconds until the next call."""
        return self._keep_alive

    async def _answer(self, send: Send) -> None:
        raise NotImplementedError


class Streaming(Answer):
    """A stream: bytes that leave as they come, and keep-alives in between."""

    stream_type: bytes
    keep_alive: bytes
    _begun = False
    _written_at = 0.0

    def __init__(self, runs: Sequence[Run], headers: Mapping[str, str], keep_alive: float) -> None:
        super().__init__(runs, headers, keep_alive)
        self._loop = asyncio.get_running_loop()  # to look for it at each write is dear

    def _write(self, body: bytes) -> bool:
        """Send a piece without waiting, if that is possible now; whether it was."""
        if not self._offered(body):
            return False
        if body:
            self._written_at = self._loop.time()
        return True

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        if not self._begun:
            head = [(b"content-type", self.stream_type), *_STREAM_HEADERS, *self._headers]
            await send({"type": "http.response.start", "status": 200, "headers": head})
            self._begun = True
        self._written_at = self._loop.time()
        await send({"type": "http.response.body", "body": body, "more_body": more})

    async def _speak_up(self, send: Send) -> float:
        """Keep the connection alive: with the first events once the upstream has accepted (nothing is
        sent before the status is known, law S6), after that with comments, or with events for a client
        that does not count comments (field case 43)."""
        quiet = self._loop.time() - self._written_at
        if quiet < self._keep_alive:
            return self._keep_alive - quiet
        shown = [await run.send_keepalive() for run in self._runs]
        if not any(shown) and self._begun and any(run.client_waits for run in self._runs):
            self._written_at = self._loop.time()
            await send({"type": "http.response.body", "body": self.keep_alive, "more_body": True})
        return self._keep_alive


class StreamedAnswer(Streaming):
    """The stream of one run, in the form of its surface. What one read brought leaves in one write. `rest`
    gives what a client that fell behind has not got, so that the run need not wait."""

    def __init__(
        self, run: Run, headers: Mapping[str, str], keep_alive: float, form: Form, rest: Rest | None = None
    ) -> None:
        super().__init__([run], headers, keep_alive)
        self._run = run
        self._form = form
        self._rest = rest
        self._catching_up = False
        self._between = True
        # a comment that waits for the client must not come behind the next piece
        self._piece = asyncio.Lock()
        self.stream_type, self.keep_alive = form.stream_type, form.keep_alive

    async def _answer(self, send: Send) -> None:
        self._asgi_send = send
        await self._run.generate(self._deliver, may_fall_behind=self._rest is not None, from_callback=True)
        if self._rest is not None and self._run.client.is_behind:
            self._catching_up = True
            await self._catch_up(send, self._rest)

    def _deliver(self, batch: Batch) -> Awaitable[None] | None:
        data = self._form.streamed(batch, batch.last)
        if not batch.last and self._write(data):
            return None
        return self._send(self._asgi_send, data, more=not batch.last)

    async def _catch_up(self, send: Send, rest: Rest) -> None:
        async for data in rest():
            async with self._piece:
                self._between = data.endswith(_BLANK_LINE)
                await self._send(send, data)
        await self._send(send, b"", more=False)
        self._catching_up = False

    @property
    def _unfinished(self) -> bool:
        return self._catching_up or super()._unfinished

    async def _speak_up(self, send: Send) -> float:
        async with self._piece:
            return await super()._speak_up(send) if self._between else self._keep_alive


class Whole(Answer):
    """An answer as one body."""

    async def _send(self, send: Send, body: bytes) -> None:
        length = (b"content-length", str(len(body)).encode())
        head = [(b"content-type", b"application/json"), length, *self._headers]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": body})


class WholeAnswer(Whole):
    """The answer as JSON when the response has ended.

    A response that failed without any output is an HTTP error; with output it is sent as it is, where the
    surface has a form for that.
    """

    def __init__(self, run: Run, headers: Mapping[str, str], keep_alive: float, form: Form) -> None:
        super().__init__([run], headers, keep_alive)
        self._run = run
        self._form = form

    async def _answer(self, send: Send) -> None:
        await self._run.generate(None)
        translation = self._run.translation
        response = translation.in_one_form if self._form.one_form else translation.snapshot
        body = self._form.whole(response)
        if body is None or (response.error is not None and not response.output):
            raise failure_of(self._run.translation)
        await self._send(send, body)


def failure_of(translation: Translation) -> HttpError:
    """A response that has no answer in it, as an HTTP error."""
    response = translation.snapshot
    if response.error is None:
        details = response.incomplete_details
        if CANCELLED.code in (response.status, details and details.reason):
            return HttpError(502, CANCELLED.message, code="cancelled")
        return HttpError(502, f"The response ended as {response.status}.", code=response.status)
    return translation.failure if isinstance(translation.failure, HttpError) else failure(response.error)
