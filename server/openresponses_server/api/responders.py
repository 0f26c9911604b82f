"""What sends a response over HTTP, as a stream or as JSON, and the forms in which each surface encodes it.

A response that is being made is sent by one coroutine, with a monitor that notices a disconnected client and
sends keep-alives. sse-starlette's EventSourceResponse takes four tasks for a stream and an async generator
(see docs/decisions.md): it sends what is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, cast

import anyio
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Message, Receive, Scope, Send

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects import anthropic_messages, chat_completions, gemini, vscode
from openresponses_bridge.dialects.base import CANCELLED, ClientSide, Dialect, Outbound
from openresponses_bridge.dialects.chat_completions import AnswerOptions, OutboundOptions
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol import codec
from openresponses_bridge.protocol.codec import encode, encode_sse
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.seal import Sealer
from openresponses_bridge.sse import DONE, encode_comment
from openresponses_server.errors import HttpError, failure
from openresponses_server.http.flow import offered
from openresponses_server.runs.client import Batch
from openresponses_server.runs.pipeline import Translation
from openresponses_server.runs.run import Run
from openresponses_server.tasks import end_tasks

SSE_TYPE: Final = b"text/event-stream; charset=utf-8"
KEEP_ALIVE: Final = encode_comment("keep-alive")
_BLANK_LINE: Final = b"\n\n"


class StreamForm(Protocol):
    """Encodes a response as a stream for one surface."""

    stream_type: bytes
    """The content type of a stream."""
    keep_alive: bytes
    """What is sent while there are no events."""

    def streamed(self, batch: Batch, ended: bool) -> bytes:
        """The bytes for the events of one read; `ended` marks the last ones."""
        ...


class WholeForm(Protocol):
    """Encodes a response as one body for one surface."""

    single_reasoning_form: bool
    """The surface has one field for reasoning: `whole` is given the first of its forms only."""

    def whole(self, response: Response) -> bytes | None:
        """The body for a response that has ended; None when the surface can only report an error."""
        ...


class ResponseForm:
    """The Responses API: events, `[DONE]` last."""

    stream_type = SSE_TYPE
    keep_alive = KEEP_ALIVE
    single_reasoning_form = False

    def streamed(self, batch: Batch, ended: bool) -> bytes:
        frames = encode_sse(batch.events) if batch.frames is None else batch.frames
        return frames + DONE if ended else frames

    def whole(self, response: Response) -> bytes | None:
        return encode(response)


class DialectSurface(NamedTuple):
    """An API of another dialect over HTTP."""

    dialect: Dialect
    stream_type: bytes = SSE_TYPE
    keep_alive: bytes = KEEP_ALIVE

    @property
    def side(self) -> ClientSide:
        """The dialect as its clients speak it."""
        assert self.dialect.client is not None
        return self.dialect.client

    def request(self, body: bytes, sealer: Sealer) -> tuple[CreateResponse, Diagnostics]:
        """Translate a client's request; its losses. Raises InvalidRequestError with `param`."""
        assert self.side.request is not None
        return self.side.request(body, sealer)


CHAT: Final = DialectSurface(chat_completions.DIALECT)
MESSAGES: Final = DialectSurface(
    anthropic_messages.DIALECT, keep_alive=b'event: ping\ndata: {"type": "ping"}\n\n'
)
# a blank line: Google's clients take a comment for the beginning of an error
GEMINI: Final = DialectSurface(gemini.DIALECT, keep_alive=b"\n\n")
PARTS: Final = DialectSurface(vscode.DIALECT, b"application/jsonl; charset=utf-8", b"\n")


class DialectForm:
    """Encodes a response with an outbound of its dialect. `sealer` seals reasoning."""

    single_reasoning_form = True

    def __init__(self, surface: DialectSurface, outbound: Outbound[Any], sealer: Sealer) -> None:
        self.stream_type = surface.stream_type
        self.keep_alive = surface.keep_alive
        self._outbound = outbound
        self._encode = surface.side.encode
        self._whole = surface.side.whole
        self._sealer = sealer

    def streamed(self, batch: Batch, ended: bool) -> bytes:
        chunks = [chunk for event in batch.events for chunk in self._outbound.feed(event)]
        return self._encode([*chunks, *self._outbound.close()] if ended else chunks)

    def whole(self, response: Response) -> bytes | None:
        if self._whole is None:
            raise NotImplementedError("this surface always streams")
        return self._whole(response, self._sealer)


class ChatForm(DialectForm):
    """Encodes a response of one choice for Chat Completions. The outbound is made with the first events:
    whether text after tool calls is sent depends on the upstream that has accepted."""

    def __init__(self, options: AnswerOptions, sealer: Sealer, translation: Translation) -> None:
        self._translation = translation
        self._options = options
        self._begun = False
        super().__init__(CHAT, chat_completions.Outbound(), sealer)

    def streamed(self, batch: Batch, ended: bool) -> bytes:
        if not self._begun:
            self._begun = True
            options = chat_options(self._options, self._sealer, self._translation)
            self._outbound = chat_completions.Outbound(include_usage=self._options.include_usage, **options)
        return super().streamed(batch, ended)

    def whole(self, response: Response) -> bytes | None:
        options = chat_options(self._options, self._sealer, self._translation)
        answer = chat_completions.completion(response, **options)
        return codec.encode(answer) if isinstance(answer, chat_completions.ChatCompletion) else None


def chat_options(options: AnswerOptions, sealer: Sealer, translation: Translation) -> OutboundOptions:
    """The options of the outbound, by the client's request and the upstream's traits."""
    return {
        "legacy_functions": options.legacy_functions,
        "sealer": sealer,
        "text_after_tool_call": "pass" if translation.text_after_tools else "drop",
    }


# The monitor starts as a timer, and becomes a task only for a request that takes longer: most do not.

_STARTS_AFTER: Final = 0.25  # seconds; law S3 has an upstream aborted within one
_RECANCEL_INTERVAL: Final = 0.5  # seconds; a library may mistake a cancellation for its own timeout

WatchClient = Callable[[float], Awaitable[bool]]
"""Watches the client of a request that has taken this many seconds. Returns when the client has disconnected:
whether the request is to be cancelled."""


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
        headers: list[tuple[bytes, bytes]] = []
        for name, value in self._extra_headers.items():
            headers.append((name.encode("latin-1"), value.encode("latin-1")))
        return headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._offered = offered(scope)
        refused: BridgeError | None = None

        async def watch_client(begun: float) -> bool:
            await self._watch_client(receive, send, self._keep_alive - begun)
            return self._needs_client

        try:
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
        finally:
            # Tracebacks of cancelled tasks refer to this object until the next garbage collection, which must
            # not keep the responses.
            vars(self).clear()

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
    """Sends a stream, one write for each read from an upstream, with keep-alives between its frames."""

    stream_type: bytes
    keep_alive: bytes
    _head_sent = False
    _at_frame_end = True
    _last_write_at = 0.0

    def __init__(self, runs: Sequence[Run], headers: Mapping[str, str], keep_alive: float) -> None:
        super().__init__(runs, headers, keep_alive)
        self._loop = asyncio.get_running_loop()  # looking it up at each write is expensive
        self._write_lock = asyncio.Lock()  # serializes what has to wait for the client

    def _deliver(self, send: Send, form: StreamForm, batch: Batch) -> Awaitable[None] | None:
        data = form.streamed(batch, batch.last)
        ends = batch.last and len(self._runs) == 1
        # events that wait for the client, perhaps those of another choice, must not be overtaken
        if not ends and not self._write_lock.locked() and self._offered(data):
            if data:
                self._last_write_at = self._loop.time()
            return None
        return self._send(send, data, more=not ends)

    async def _send(self, send: Send, body: bytes, *, more: bool = True, whole_frames: bool = True) -> None:
        async with self._write_lock:
            self._at_frame_end = whole_frames
            if not self._head_sent:
                head = [(b"content-type", self.stream_type), *_STREAM_HEADERS, *self._headers]
                await send({"type": "http.response.start", "status": 200, "headers": head})
                self._head_sent = True
            self._last_write_at = self._loop.time()
            await send({"type": "http.response.body", "body": body, "more_body": more})

    async def _send_keepalive(self, send: Send) -> float:
        """Send the first events once the upstream has accepted (nothing is sent before the status is known,
        law S6), after that comments, or events to a client that ignores comments (field case 43)."""
        async with self._write_lock:
            if not self._at_frame_end:
                return self._keep_alive
            quiet = self._loop.time() - self._last_write_at
            if quiet < self._keep_alive:
                return self._keep_alive - quiet
            sent = [run.send_keepalive() for run in self._runs]
            if not any(sent) and self._head_sent and any(not run.draining for run in self._runs):
                self._last_write_at = self._loop.time()
                await send({"type": "http.response.body", "body": self.keep_alive, "more_body": True})
            return self._keep_alive


class RunStreamResponder(StreamingResponder):
    """The stream of one run, in the form of its surface. `rest` is the remaining stream for a client that
    falls behind, so that the run need not wait for it."""

    def __init__(
        self,
        run: Run,
        headers: Mapping[str, str],
        keep_alive: float,
        form: StreamForm,
        rest: RemainingStream | None = None,
    ) -> None:
        super().__init__([run], headers, keep_alive)
        self._run = run
        self._form = form
        self._rest = rest
        self._catching_up = False
        self.stream_type, self.keep_alive = form.stream_type, form.keep_alive

    async def _answer(self, send: Send) -> None:
        deliver = partial(self._deliver, send, self._form)
        await self._run.generate(deliver, may_fall_behind=self._rest is not None)
        if self._rest is not None and self._run.client.is_behind:
            self._catching_up = True
            await self._catch_up(send, self._rest)

    async def _catch_up(self, send: Send, rest: RemainingStream) -> None:
        async for data in rest():
            await self._send(send, data, whole_frames=_may_be_followed(data))
        await self._send(send, b"", more=False)
        self._catching_up = False

    @property
    def _needs_client(self) -> bool:
        return self._catching_up or super()._needs_client


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

    def __init__(self, run: Run, headers: Mapping[str, str], keep_alive: float, form: WholeForm) -> None:
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


class StoredStream(EventSourceResponse):
    """Sends the pieces of a stored stream, which may end within a frame, and between two frames keep-alives
    while no pieces come. `keepalive` is what is sent as one, `frame_end` the bytes at the end of a frame."""

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        headers: Mapping[str, str],
        keep_alive: float,
        content_type: bytes = SSE_TYPE,
        keepalive: bytes = KEEP_ALIVE,
        frame_end: bytes = _BLANK_LINE,
    ) -> None:
        self._keepalive, self._frame_end = keepalive, frame_end
        super().__init__(
            pieces,
            headers=headers,
            media_type=content_type.decode().partition(";")[0],
            ping=keep_alive,
            ping_message_factory=cast(
                Callable[[], ServerSentEvent], lambda: keepalive
            ),  # it sends bytes as well
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await super().__call__(
            scope, receive, _drop_keepalives_within_frames(send, self._keepalive, self._frame_end)
        )

    # the tasks of its group, of which all but one are cancelled at the end

    async def _stream_response(self, send: Send) -> None:
        await _cancelled_without_error(super()._stream_response(send))

    async def _ping(self, send: Send) -> None:
        await _cancelled_without_error(super()._ping(send))

    async def _listen_for_disconnect(self, receive: Receive) -> None:
        await _cancelled_without_error(super()._listen_for_disconnect(receive))

    async def _listen_for_exit_signal_with_grace(self) -> None:
        await _cancelled_without_error(super()._listen_for_exit_signal_with_grace())


async def _cancelled_without_error(work: Awaitable[None]) -> None:
    """Await what a task of a group does. When the group ends it, all that it has in hand would stay in the
    error's traceback until the next garbage collection."""
    with suppress(anyio.get_cancelled_exc_class()):
        await work


def _may_be_followed(data: bytes, frame_end: bytes = _BLANK_LINE) -> bool:
    """Whether a keep-alive may come after these bytes, which end a frame and not the stream."""
    return data.endswith(frame_end) and not data.endswith(DONE)


def _drop_keepalives_within_frames(send: Send, keepalive: bytes, frame_end: bytes) -> Send:
    """`send`, serialized, and without keep-alives that would come within a frame or after `[DONE]`."""
    lock, at_frame_end = anyio.Lock(), True

    async def send_in_order(message: Message) -> None:
        nonlocal at_frame_end
        async with lock:  # what waits for a slow client must not be overtaken
            body = message.get("body", b"")
            if body == keepalive:
                if not at_frame_end:
                    return
            elif body:
                at_frame_end = _may_be_followed(body, frame_end)
            await send(message)

    return send_in_order
