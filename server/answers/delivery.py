"""A run → an HTTP answer, streamed or whole.

Each answer is one coroutine that reads and writes, and one companion that notices when the client
leaves and keeps the connection alive while no events come. Measured against sse-starlette's
EventSourceResponse, which takes four tasks per stream and an async generator: see docs/decisions.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import anyio
from starlette.types import Receive, Scope, Send

from bridge.errors import BridgeError
from server.answers.forms import Form
from server.errors import HttpError, failure
from server.runs.client import Batch
from server.runs.run import Run
from server.runs.translation import Translation

_STREAM_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy that buffers would undo the streaming
)


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
        refused: BridgeError | None = None
        left = False
        async with anyio.create_task_group() as tasks:

            async def accompany() -> None:
                nonlocal left
                await self._accompany(receive, send)
                if not all(run.translation.ended for run in self._runs):
                    left = True
                    tasks.cancel_scope.cancel()

            tasks.start_soon(accompany)
            try:
                await self._answer(send)
            except BridgeError as error:
                refused = error
            tasks.cancel_scope.cancel()
        if left:
            for run in self._runs:
                await run.abandon()
        if refused is not None:
            raise refused

    async def _accompany(self, receive: Receive, send: Send) -> None:
        """Return when the client has left."""
        wait = self._keep_alive
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

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        if not self._begun:
            self._begun = True
            head = [(b"content-type", self.stream_type), *_STREAM_HEADERS, *self._headers]
            await send({"type": "http.response.start", "status": 200, "headers": head})
        self._written_at = anyio.current_time()
        await send({"type": "http.response.body", "body": body, "more_body": more})

    async def _speak_up(self, send: Send) -> float:
        """Keep the connection alive: with the first events once the upstream has accepted (nothing is
        sent before the status is known, law S6), after that with comments, or with events for a client
        that does not count comments (field case 43)."""
        quiet = anyio.current_time() - self._written_at
        if quiet < self._keep_alive:
            return self._keep_alive - quiet
        shown = [await run.show_life() for run in self._runs]
        if not any(shown) and self._begun and any(run.waiting for run in self._runs):
            self._written_at = anyio.current_time()
            await send({"type": "http.response.body", "body": self.keep_alive, "more_body": True})
        return self._keep_alive


class StreamedAnswer(Streaming):
    """The stream of one run, in the form of its surface. What one read brought leaves in one write."""

    def __init__(self, run: Run, headers: Mapping[str, str], keep_alive: float, form: Form) -> None:
        super().__init__([run], headers, keep_alive)
        self._run = run
        self._form = form
        self.stream_type, self.keep_alive = form.stream_type, form.keep_alive

    async def _answer(self, send: Send) -> None:
        async def deliver(batch: Batch) -> None:
            await self._write(send, batch)

        await self._run.generate(deliver)

    async def _write(self, send: Send, batch: Batch) -> None:
        ended = self._run.translation.ended
        await self._send(send, self._form.streamed(batch, ended), more=not ended)


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
        await self._run.generate(to_nobody)
        response = self._run.translation.snapshot
        body = self._form.whole(response)
        if body is None or (response.error is not None and not response.output):
            raise failure_of(self._run.translation)
        await self._send(send, body)


async def to_nobody(_batch: Batch) -> None:
    """Deliver nothing: the response is read when it has ended."""


def failure_of(translation: Translation) -> HttpError:
    """A response that has no answer in it, as an HTTP error."""
    response = translation.snapshot
    if response.error is None:
        return HttpError(502, f"The response ended as {response.status}.", code=response.status)
    return translation.failure if isinstance(translation.failure, HttpError) else failure(response.error)
