"""The turns of one connection: a turn receives a message, sends the events of its response, and keeps the
memory.

An error that ends a turn is sent once. Before the stream has begun it is the error envelope; after that it is
`response.failed` with the partial output, instead of the `error` event that a stream has before it: on a
WebSocket an `error` ends the turn, and an event after it would be taken for one of the next turn.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Final

import anyio
import structlog
from msgspec.structs import replace

from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.errors import BridgeError, WireError
from openresponses_bridge.protocol.codec import (
    decode_create_message,
    decode_event,
    decode_json,
    encode,
    encode_sse,
)
from openresponses_bridge.protocol.events import TERMINAL_EVENTS, ErrorEvent, Event, ResponseFailed
from openresponses_bridge.protocol.request import CreateResponse, ResponseCreateMessage, conversation_of
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.protocol.secrets import items_without_secrets
from openresponses_bridge.protocol.usage import Usage
from openresponses_bridge.sse import Frame, SSEDecoder
from openresponses_bridge.wire import wire_for
from openresponses_server.api.tracing import trace_turn, with_trace
from openresponses_server.api.websocket.memory import ConnectionMemory
from openresponses_server.errors import HttpError, without_frames
from openresponses_server.http.flow import Write
from openresponses_server.http.refusals import DEFECT, envelope, with_headers
from openresponses_server.limits.memory import release_received
from openresponses_server.limits.requests import check_conversation, check_request
from openresponses_server.requests.admission import check_references, count_unanswered
from openresponses_server.requests.assembly import RunAssembly
from openresponses_server.requests.bodies import decode_body
from openresponses_server.requests.client_traits import read_headers
from openresponses_server.requests.outgoing import prewarm_for
from openresponses_server.requests.prepare import prepare
from openresponses_server.requests.prepared import Received
from openresponses_server.requests.service import Service, target_of
from openresponses_server.runs.client import Batch
from openresponses_server.runs.follow import remaining_stream
from openresponses_server.runs.outcome import log_ended
from openresponses_server.runs.run import Run
from openresponses_server.store.base import StoredResponse
from openresponses_server.store.frames import Frames
from openresponses_server.store.history import Conversation, own_input
from openresponses_server.tasks import end_tasks

# The events of one turn are sent as messages, from its run or, to a client that fell behind, from the store.

Send = Callable[[bytes], Awaitable[None]]
"""Sends one whole message. If it is cancelled, nothing was sent."""

_TERMINAL: Final = frozenset(kind.__struct_config__.tag for kind in TERMINAL_EVENTS)  # type: ignore[attr-defined]
_MESSAGES_PER_YIELD: Final = 64  # messages of one piece after which other connections get their turn


class TurnStream:
    """Sends each event of `run` once, with `write` where that need not wait. The first message has the
    `headers` that an HTTP answer of this run would have. `before_end` is called before the last message is
    sent, `after_end` after it."""

    def __init__(
        self,
        run: Run,
        send: Send,
        write: Write,
        headers: Mapping[str, str],
        before_end: Callable[[], None],
        after_end: Callable[[], None],
    ) -> None:
        self._run = run
        self._send = send
        self._write = write
        self._headers = headers
        self._before_end = before_end
        self._after_end = after_end
        self._ending = False
        self._loop = asyncio.get_running_loop()
        self.sent_at = self._loop.time()
        """The time at which something was last sent, on the event loop's clock."""

    def deliver_now(self, batch: Batch) -> Awaitable[None] | None:
        """Write events if that need not wait; otherwise return an awaitable that sends the rest."""
        if not batch.last and not self._headers and self._write_now(batch.events):
            return None
        return self.deliver(batch)

    async def deliver(self, batch: Batch) -> None:
        """Send events, except those that were sent before an interruption."""
        if batch.last:
            self._end()
        for event in without_error(batch.events) if batch.last else batch.events:
            if event.sequence_number > self._run.client.last_sent:
                await self._send_numbered(event.sequence_number, encode(event))
        if batch.last:
            self._after_end()

    def _write_now(self, events: Iterable[Event]) -> bool:
        """Write events in order until one would have to wait. Returns whether all were written."""
        for event in events:
            if not self._write(encode(event)):
                return False
            self._run.client.last_sent = event.sequence_number
        self.sent_at = self._loop.time()
        return True

    async def catch_up(self, rest: AsyncGenerator[bytes]) -> None:
        """Send the remaining stream after the last sent event. Raises HttpError if `rest` ends before the
        response, and what `rest` raises."""
        decoder = SSEDecoder(sys.maxsize)  # an event may contain the whole response
        error_frame: Frame | None = None
        async with aclosing(rest) as pieces:
            async for piece in pieces:
                for count, frame in enumerate(decoder.feed(piece), 1):
                    if frame.event == "error":
                        error_frame = frame
                    elif frame.event in _TERMINAL:
                        await self._send_end([error_frame, frame] if error_frame else [frame])
                        return
                    elif frame.event:
                        await self._send_numbered(self._run.client.last_sent + 1, frame.data)
                    if count % _MESSAGES_PER_YIELD == 0:
                        await anyio.sleep(0)
        raise _stream_interrupted(self._run)

    async def _send_end(self, frames: list[Frame]) -> None:
        await self._run.wait_for_end()
        self._end()
        if len(frames) == 1:
            await self._send_first(frames[0].data)
        else:
            (last,) = without_error([decode_event(frame.data) for frame in frames])
            await self._send_first(encode(last))
        self._after_end()

    async def _send_numbered(self, number: int, message: bytes) -> None:
        await self._send_first(message)
        self._run.client.last_sent = number

    async def _send_first(self, message: bytes) -> None:
        if self._headers:
            message = with_headers(message, self._headers)
        self.sent_at = self._loop.time()
        await self._send(message)
        self._headers = {}

    def _end(self) -> None:
        if not self._ending:
            self._ending = True
            self._before_end()


def without_error(events: list[Event]) -> list[Event]:
    """Return the last events of a turn, with `response.failed` instead of the `error` before it."""
    if len(events) < 2 or not isinstance(events[-2], ErrorEvent):
        return events
    failed = events[-1]
    assert isinstance(failed, ResponseFailed)
    return [*events[:-2], replace(failed, sequence_number=events[-2].sequence_number)]


async def send_events(send: Send, events: Iterable[Event]) -> None:
    """Send events, one message each."""
    for event in events:
        await send(encode(event))


def _stream_interrupted(run: Run) -> HttpError:
    response_id, last = run.translation.response_id, run.client.last_sent
    where = f"/v1/responses/{response_id}?stream=true" + (f"&starting_after={last}" if last >= 0 else "")
    what = f"The rest of the response can't be read now, or it was deleted. Ask for it with GET {where}."
    return HttpError(503, what, code="stream_broken_off")


_log = structlog.get_logger(__name__)
# fields that a message may have and that mean nothing here (specification, "WebSocket")
_IGNORED_FIELDS: Final = {"stream": None, "stream_options": None, "background": None, "restart": None}


class TurnRunner:
    """Runs the turns of one lane: `begin`, then `run_turn`, for each message. `busy` is True from `begin`
    until the turn's last message has been sent. `write` sends only what can be sent without waiting; `memory`
    has the response that a turn may continue."""

    def __init__(
        self,
        service: Service,
        headers: Mapping[str, str],
        owner: str,
        send: Send,
        write: Write,
        memory: ConnectionMemory,
    ) -> None:
        self._service = service
        self._headers = headers
        self._owner = owner
        self._send = send if service.traces is None else with_trace(send)
        self._write = write
        self._memory = memory
        self._run: Run | None = None
        self._cancelled = False
        self._on_idle: Callable[[], None] | None = None
        self._refusal_is_sent = True
        self.busy = False
        self.message: str | bytes | None = None
        """The message of the last turn that has begun."""
        self.steerable = True
        """True if that turn can be continued with input that was sent meanwhile; False for a compaction."""
        self.ended: Response | None = None
        """The response of the last turn, once it has ended; None for a refused turn."""

    @property
    def response_id(self) -> str | None:
        """The id of the last response that has begun."""
        return None if self._run is None else self._run.translation.response_id

    @property
    def running(self) -> bool:
        """True if that response is being made."""
        return self.busy and self._run is not None and not self._run.translation.ended

    def begin(self, on_idle: Callable[[], None]) -> None:
        """Reserve the lane for a turn. `on_idle` is called when the next one may begin."""
        self.busy, self._cancelled, self._on_idle = True, False, on_idle
        self.ended = None

    async def run_turn(
        self,
        message: str | bytes,
        others: Iterable[ConnectionMemory] = (),
        *,
        refusal_is_sent: bool = True,
    ) -> bool:
        """Run one turn. Returns whether its response was created. Any failure is reported to the client,
        except a refusal if `refusal_is_sent` is False. The turn may continue a response that one of `others`
        remembers."""
        self.message, self._refusal_is_sent = message, refusal_is_sent
        request_id = f"req_{secrets.token_hex(12)}"
        started = time.perf_counter()
        outcome: Any = "completed"
        before, created = self._run, True
        try:
            async with trace_turn(self._service.traces, self._headers, self._owner, request_id, message):
                outcome = await self._turn(message, request_id, others)
        except BridgeError as error:
            outcome, created = error.code, self._has_begun(before)
            without_frames(error)
            await self._refuse(error, message)
        except Exception:
            outcome, created = DEFECT.code, self._has_begun(before)
            _log.exception("turn.internal_error", request_id=request_id)
            await self._refuse(DEFECT, message)
        finally:
            spent = round((time.perf_counter() - started) * 1000, 1)
            _log.info("turn", outcome=outcome, ms=spent, request_id=request_id)
        return created

    def _has_begun(self, before: Run | None) -> bool:
        """Return True if a run after this one has sent anything."""
        return self._run is not None and self._run is not before and self._run.client.last_sent >= 0

    async def close(self) -> None:
        """Abandon the run, since the client has disconnected."""
        self._memory.close()
        if self._run is not None:
            await self._run.abandon()

    def cancel(self, response_id: str | None) -> None:
        """Cancel the current turn if it makes this response; any turn if `response_id` is None."""
        run = self._run if self.busy else None
        if run is None or run.translation.ended:
            self._cancelled = self._cancelled or response_id is None  # the run has not begun
        elif response_id in (None, run.translation.response_id):
            run.stop()

    async def _turn(self, message: str | bytes, request_id: str, others: Iterable[ConnectionMemory]) -> str:
        self._service.gate.check_open()
        limits = self._service.settings.limits
        payload = await decode_body(message, limits, decode_create_message)
        original = _request_of(payload)
        check_request(original, limits)
        self._memory.fork(others, original.previous_response_id)
        continuation = await self._memory.resolve(self._service.store, original)
        request, before = continuation.request, continuation.before
        check_references(original, request, limits)
        check_conversation(request, len(before.items), limits)
        received = Received(
            request, self._headers, request_id, self._owner, continued=continuation, streams=True
        )
        if payload.generate is False:
            return await self._prewarm(received, before)
        prepared = await prepare(received, self._service)
        run = RunAssembly(prepared, self._service).run()
        self._run, self.steerable = run, not (prepared.compacts or request.context_management)
        if self._cancelled:
            run.stop()
        await self._follow(run, request, before, prepared.answer_headers)
        return run.translation.snapshot.status

    async def _follow(
        self, run: Run, request: CreateResponse, before: Conversation, headers: Mapping[str, str]
    ) -> None:
        stream = TurnStream(
            run,
            self._send,
            self._write,
            headers,
            partial(self._remember, run, request, before),
            self._finish,
        )
        write_directly = self._service.traces is None  # the trace is in the context of the turn's task
        keepalives = asyncio.create_task(self._send_keepalives(run, stream))
        try:
            deliver = stream.deliver_now if write_directly else stream.deliver
            await run.generate(deliver, may_fall_behind=True)
            if run.client.is_behind:
                await stream.catch_up(remaining_stream(run, self._service.gate, self._service.runs.follower))
        finally:
            await end_tasks([keepalives])

    def _remember(self, run: Run, request: CreateResponse, before: Conversation) -> None:
        """Remember the response before its last event is sent, because the next turn may follow at once."""
        response = self.ended = run.translation.snapshot
        if response.status == "failed":
            self._memory.evict(request.previous_response_id)
        else:
            upstream = None if run.persistence is None else run.persistence.upstream()
            self._memory.remember(request, response, before, upstream)

    async def _send_keepalives(self, run: Run, stream: TurnStream) -> None:
        """Send keep-alives while there are no events."""
        interval = self._service.settings.keep_alive
        while True:
            quiet = anyio.current_time() - stream.sent_at
            if quiet < interval:
                await anyio.sleep(interval - quiet)
                continue
            run.send_keepalive()
            await anyio.sleep(interval)

    async def _prewarm(self, received: Received, before: Conversation) -> str:
        """Handle Codex's prewarm: the input is remembered, and stored if requested, and a connection to the
        upstream is opened for the next turn. Nothing is sent there, and nothing is generated."""
        request = received.body
        target = target_of(self._service, request.model, self._owner)
        received = read_headers(received, self._service)
        await count_unanswered(received, self._service)
        wire = wire_for(request, self._headers, received.client.wire)
        machine = ResponseStreamStateMachine(request.model or target.model, request, wire=wire)
        if target.prewarms:
            prewarm_for(received, target, before.responses, machine.response_id)
        events = machine.start()
        machine.usage(Usage.of(0, 0))
        events += machine.finish("stop")
        response = machine.snapshot
        if request.store is not False:
            frames = Frames(0, len(events) - 1, encode_sse(events))
            expires_at = self._service.runs.expires_at(time.time())
            items = items_without_secrets(own_input(request))
            record = StoredResponse(
                response,
                items,
                owner=self._owner,
                expires_at=expires_at,
                conversation=conversation_of(request),
            )
            await self._service.store.put(record, frames)
        release_received()
        self._memory.remember(request, response, before)
        log_ended(response)
        await send_events(self._send, events)
        self._finish()
        return "warmed_up"

    def _finish(self) -> None:
        self.busy = False
        on_idle, self._on_idle = self._on_idle, None
        if on_idle is not None:
            on_idle()

    async def _refuse(self, error: BridgeError, message: str | bytes) -> None:
        self._memory.evict(await self._previous_id_of(message))
        if self._refusal_is_sent:
            await self._send(envelope(error))
        self._finish()

    async def _previous_id_of(self, message: str | bytes) -> str | None:
        """Return the id of the response that a message, even a broken one, should continue; None for a
        message that exceeds the limits, or that the server no longer reads because it stops."""
        try:
            value = await decode_body(message, self._service.settings.limits, decode_json)
        except (WireError, BridgeError):
            return None
        previous_id = value.get("previous_response_id") if isinstance(value, dict) else None
        return previous_id if isinstance(previous_id, str) else None


def _request_of(message: ResponseCreateMessage) -> CreateResponse:
    fields = {name: getattr(message, name) for name in CreateResponse.__struct_fields__}
    return CreateResponse(**fields | _IGNORED_FIELDS)
