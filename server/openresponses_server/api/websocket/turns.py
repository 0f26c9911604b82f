"""The turns of one connection: a message in, the events of its response out, the memory kept.

An error that ends a turn is sent once. Before the stream has begun it is the error envelope; after
that it is `response.failed` with the partial output, in the place of the `error` event that a stream has
before it: on a WebSocket an `error` ends the turn, and what would follow it would be taken for the next.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

import anyio
import structlog

from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.errors import BridgeError, InvalidRequestError, WireError
from openresponses_bridge.protocol.codec import decode_create_message, decode_json, encode_sse
from openresponses_bridge.protocol.request import CreateResponse, ResponseCreateMessage
from openresponses_bridge.protocol.usage import Usage
from openresponses_bridge.wire import choose_wire
from openresponses_server.api.turns import traced, turn
from openresponses_server.api.websocket.memory import ConnectionMemory
from openresponses_server.api.websocket.turn_stream import Send, TurnStream, send_events
from openresponses_server.budget import hand_over
from openresponses_server.http.direct_writes import Write
from openresponses_server.http.envelopes import DEFECT, envelope
from openresponses_server.limits.requests import check_conversation, check_request
from openresponses_server.requests.admission import admit, check_references
from openresponses_server.requests.bodies import decoded
from openresponses_server.requests.prepare import prepare
from openresponses_server.requests.service import Service
from openresponses_server.runs.outcome import log_ended
from openresponses_server.runs.rest import rest_of
from openresponses_server.runs.run import Run
from openresponses_server.store.base import StoredResponse
from openresponses_server.store.frames import Frames
from openresponses_server.store.history import Conversation, own_input

_log = structlog.get_logger(__name__)
# what a message may carry and what means nothing here (specification, "WebSocket")
_STRAY: Final = {"stream": None, "stream_options": None, "background": None, "restart": None}


class Turns:
    """`begin` and `take` one message after the other; `send` takes a message for the client, `write` one that
    waits for nothing. `busy` from the beginning of a turn until its last message has left. `owner` is whose
    the responses are, `memory` what they may go on from."""

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
        self._send = send if service.traces is None else traced(send)
        self._write = write
        self._memory = memory
        self._run: Run | None = None
        self._cancelled = False
        self._freed: Callable[[], None] | None = None
        self.busy = False

    def begin(self, freed: Callable[[], None]) -> None:
        """A turn is to be taken. `freed` is called when the next one may follow it."""
        self.busy, self._cancelled, self._freed = True, False, freed

    async def take(self, message: str | bytes, others: Iterable[ConnectionMemory] = ()) -> None:
        """One turn, from its message to its end. Any failure is reported to the client. It may go on from
        what `others` remember."""
        request_id = f"req_{secrets.token_hex(12)}"
        started = time.perf_counter()
        outcome: Any = "completed"
        try:
            async with turn(self._service.traces, self._headers, self._owner, request_id, message):
                outcome = await self._turn(message, request_id, others)
        except BridgeError as error:
            outcome = error.code
            await self._refuse(error, message)
        except Exception:
            outcome = DEFECT.code
            _log.exception("turn.internal_error", request_id=request_id)
            await self._refuse(DEFECT, message)
        finally:
            spent = round((time.perf_counter() - started) * 1000, 1)
            _log.info("turn", outcome=outcome, ms=spent, request_id=request_id)

    async def close(self) -> None:
        """The client has left."""
        self._memory.close()
        if self._run is not None:
            await self._run.abandon()

    def cancel(self, response_id: str | None) -> None:
        """End the turn that is under way, if it makes this response, or whichever it makes."""
        run = self._run if self.busy else None
        if run is None or run.translation.ended:
            self._cancelled = self._cancelled or response_id is None  # what it makes is not known yet
        elif response_id in (None, run.translation.response_id):
            run.stop()

    async def _turn(self, message: str | bytes, request_id: str, others: Iterable[ConnectionMemory]) -> str:
        self._service.gate.check_open()
        limits = self._service.settings.limits
        given = await decoded(message, limits, decode_create_message)
        asked = _request_of(given)
        check_request(asked, limits)
        self._memory.fork(others, asked.previous_response_id)
        request, before, hold = await self._memory.continued(self._service.store, asked)
        check_references(asked, request, limits)
        check_conversation(request, len(before.items), limits)
        if given.generate is False:
            return await self._warm_up(request, before)
        prepared = await prepare(
            self._service,
            request,
            self._headers,
            request_id,
            owner=self._owner,
            history=before.items,
            upstream=before.upstream,
            hold=hold,
        )
        run = prepared.run()
        self._run = run
        if self._cancelled:
            run.stop()
        await self._follow(run, request, before, prepared.headers)
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
            self._be_free,
        )
        at_once = self._service.traces is None  # a trace is found in the task of its turn
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._accompany, run, stream)
            failure: BridgeError | None = None
            try:
                deliver = stream.deliver_at_once if at_once else stream.deliver
                await run.generate(deliver, may_fall_behind=True, anywhere=at_once)
                if run.client.is_behind:
                    await stream.catch_up(rest_of(run, self._service.gate, self._service.runs.follower))
            except BridgeError as error:
                failure = error  # out of the group as it is, not wrapped into a group of errors
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    def _remember(self, run: Run, request: CreateResponse, before: Conversation) -> None:
        """Before the last event leaves, because the next turn may follow it at once."""
        response = run.translation.snapshot
        if response.status == "failed":
            self._memory.evict(request.previous_response_id)
        else:
            upstream = None if run.keeping is None else run.keeping.upstream()
            self._memory.keep(request, response, before, upstream)

    async def _accompany(self, run: Run, stream: TurnStream) -> None:
        """Say something while the upstream says nothing."""
        interval = self._service.settings.keep_alive
        while True:
            quiet = anyio.current_time() - stream.sent_at
            if quiet < interval:
                await anyio.sleep(interval - quiet)
                continue
            await run.show_life()
            await anyio.sleep(interval)

    async def _warm_up(self, request: CreateResponse, before: Conversation) -> str:
        """Codex's prewarm: the input is taken in and nothing is generated."""
        target = self._service.router.resolve(request.model)
        await admit(self._service, request, self._owner)
        machine = ResponseStreamStateMachine(
            request.model or target.model, request, wire=choose_wire(request, self._headers)
        )
        events = machine.start()
        machine.usage(Usage.of(0, 0))
        events += machine.finish("stop")
        response = machine.snapshot
        if request.store is not False:
            frames = Frames(0, len(events) - 1, encode_sse(events))
            expires_at = self._service.runs.expires_at(time.time())
            record = StoredResponse(response, own_input(request), owner=self._owner, expires_at=expires_at)
            await self._service.store.put(record, frames)
        hand_over()
        self._memory.keep(request, response, before)
        log_ended(response)
        await send_events(self._send, events)
        self._be_free()
        return "warmed_up"

    def _be_free(self) -> None:
        self.busy = False
        freed, self._freed = self._freed, None
        if freed is not None:
            freed()

    async def _refuse(self, error: BridgeError, message: str | bytes) -> None:
        self._memory.evict(await self._continued(message))
        await self._send(envelope(error))
        self._be_free()

    async def _continued(self, message: str | bytes) -> str | None:
        """The response that a message, however broken, meant to continue; None for one beyond the limits,
        which is not read."""
        try:
            value = await decoded(message, self._service.settings.limits, decode_json)
        except (WireError, InvalidRequestError):
            return None
        wanted = value.get("previous_response_id") if isinstance(value, dict) else None
        return wanted if isinstance(wanted, str) else None


def _request_of(message: ResponseCreateMessage) -> CreateResponse:
    fields = {name: getattr(message, name) for name in CreateResponse.__struct_fields__}
    return CreateResponse(**fields | _STRAY)
