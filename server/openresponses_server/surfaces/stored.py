"""Stored responses, for the endpoints of every API that has them: found, read again, deleted, and made in the
background. An id of another owner is unknown (law S7)."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from openresponses_bridge.dialects.base import AnswerForm
from openresponses_bridge.protocol import response as protocol
from openresponses_bridge.protocol.codec import decode_event
from openresponses_bridge.sse import SSEDecoder, is_done
from openresponses_server.errors import HttpError
from openresponses_server.requests.service import Service
from openresponses_server.store.base import ResponseProgress
from openresponses_server.surfaces.stored_stream import StoredStream
from openresponses_server.tasks import off_loop

BEFORE_FIRST: Final = -1
"""The sequence number that stands for the time before a stream's first event."""


def count_reader(service: Service, owner: str, answer: Callable[[], Awaitable[ASGIApp]]) -> ASGIApp:
    """A response that makes and sends the one of `answer`, and counts as a reader of this owner until it
    ends. Raises HttpError 429 if there are too many readers."""

    async def read(scope: Scope, receive: Receive, send: Send) -> None:
        async with service.gate.readers.shared(owner):
            await (await answer())(scope, receive, send)

    return read


def unknown_response(response_id: str) -> HttpError:
    """The id is unknown or belongs to another owner (law S7)."""
    return HttpError(404, f"Response with id '{response_id[:80]}' not found.", code="response_not_found")


async def stored_response(service: Service, response_id: str, owner: str) -> protocol.Response:
    """Return the response as it ended or so far. Raises HttpError 404."""
    record = await service.store.get(response_id, owner)
    if record is None:
        raise unknown_response(response_id)
    running = service.running.get(response_id, owner)
    shown = None if running is None else running.visible_response
    return record.response if shown is None else shown


async def found_stream(service: Service, response_id: str, owner: str, after: int) -> ResponseProgress:
    """Return the response whose events above `after` a client asks for. Raises HttpError 404, and 400 if
    there is no event `after`."""
    progress = await service.store.standing(response_id, owner)
    if progress is None:
        raise unknown_response(response_id)
    running = service.running.get(response_id, owner)
    await service.runs.follower.check_starting_after(
        progress, after, None if running is None else running.last_persisted
    )
    return progress


async def delete_response(service: Service, response_id: str, owner: str) -> None:
    """Delete the response; one in progress is cancelled. Raises HttpError 404."""
    if not await service.store.delete(response_id, owner):
        raise unknown_response(response_id)
    if service.traces is not None:
        service.traces.delete(owner, response_id)
    await service.runs.discard(response_id)


def stream_of(
    service: Service,
    progress: ResponseProgress,
    form: AnswerForm,
    headers: Mapping[str, str],
    keep_alive: bytes,
) -> StoredStream:
    """Return all events of a stored response, in the form of another API."""
    frames = service.runs.follower.follow(progress, BEFORE_FIRST)
    pieces = _encoded(frames, form)
    return StoredStream(pieces, headers, service.settings.keep_alive, form.stream_type, keep_alive)


async def _encoded(frames: AsyncIterator[bytes], form: AnswerForm) -> AsyncIterator[bytes]:
    """The frames in this form. Without `[DONE]` before their end the client can ask for the rest, so that
    they end without an end."""
    decoder = SSEDecoder(sys.maxsize)  # an event may contain the whole response
    encode, done = form.encoders[0], False

    def encoded(data: bytes) -> bytes:
        nonlocal done
        events = []
        for frame in decoder.feed(data):
            if is_done(frame):
                done = True
            else:
                events.append(decode_event(frame.data))
        return encode(events) if events else b""

    async for data in frames:
        piece = await off_loop(len(data), partial(encoded, data))
        if piece:
            yield piece
    if done:
        yield form.end()


def json_answer(body: bytes, headers: Mapping[str, str] | None = None) -> Response:
    """Return these bytes of JSON as an answer."""
    return Response(body, headers=headers, media_type="application/json")
