"""`OpenResponsesClient`: a client of Responses servers.

The server is not trusted: answers are limited in size and time, redirects are not followed, and a stream that
ends early is an error.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit

import msgspec

from openresponses_bridge.decoder import Cancellation
from openresponses_bridge.dialects.responses import ResponsesOptions, to_responses, whole_answer
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.codec import decode_event, encode, event_from
from openresponses_bridge.protocol.events import TERMINAL_EVENTS, ErrorEvent, Event, ResponseCreated
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.unknown import UnknownEvent
from openresponses_bridge.sse import Frame, SSEDecoder, is_done
from openresponses_server.errors import HttpError, UpstreamError, too_long, too_slow
from openresponses_server.http.flow import BodyReader
from openresponses_server.settings import Retries, Timeouts
from openresponses_server.tasks import expire
from openresponses_server.upstreams.base import UpstreamReply, UpstreamRequest
from openresponses_server.upstreams.catalog import ReportedModel
from openresponses_server.upstreams.dialects import RESPONSES
from openresponses_server.upstreams.http import AddressOptions, HttpUpstream, UpstreamKey
from openresponses_server.upstreams.refusals import Clean, in_band_refusal, refusal, seconds_of
from openresponses_server.upstreams.routing.attempts import PASSING, waiting_time

__all__ = ["OpenResponsesClient", "OpenResponsesError"]

# Waits for a server end when the user cancels or the time is over.

T = TypeVar("T")


class ResponseScope:
    """The scope of one response, which takes at most `total` seconds. One task waits for `cancel`
    throughout."""

    def __init__(self, cancel: Cancellation | None, total: float) -> None:
        self._cancel = cancel
        self._total = total
        self._deadline = asyncio.get_running_loop().time() + total
        self._listening: asyncio.Task[None] | None = None
        self._scope: asyncio.Timeout | None = None

    async def __aenter__(self) -> Self:
        if self._cancel is not None and not self.is_cancelled():
            self._listening = asyncio.create_task(self._listen(self._cancel))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._listening is not None:
            self._listening.cancel()

    def is_cancelled(self) -> bool:
        """Return True if the user has cancelled."""
        return self._cancel is not None and self._cancel.is_set()

    async def unless_cancelled(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """The result of `work`; None if the user cancelled. Raises UpstreamError on timeout."""
        if self.is_cancelled():
            return None
        scope = asyncio.timeout_at(self._deadline)
        try:
            async with scope:
                self._scope = scope
                return await work()
        except TimeoutError:
            if self.is_cancelled():
                return None
            raise too_slow(self._total) from None
        finally:
            self._scope = None

    async def sleep(self, seconds: float) -> None:
        """Sleep, at most until the user cancels."""
        await self.unless_cancelled(lambda: asyncio.sleep(seconds))

    async def _listen(self, cancel: Cancellation) -> None:
        await cancel.wait()
        if self._scope is not None:
            expire(self._scope)


# Refusals and failures of a Responses server are one error.


class OpenResponsesError(HttpError):
    """A request that was refused, or an answer that was interrupted. `http_status`, `error_type`, `code`,
    `message` and `param` are the server's if it sent them. For a server that is unreachable, silent or sends
    something else, the status is 502 or 504, with a code of `UpstreamError`."""

    @classmethod
    def from_response(cls, status: int, headers: Mapping[str, str], body: bytes, clean: Clean = str) -> Self:
        """The error for an answer whose status is not 2xx, with a body in any format. A redirect is an error,
        because the key must not follow it. `headers` have names in lower case, or a case-insensitive look-up;
        `clean` removes secrets from texts."""
        return cls.of(refusal(status, headers, body, clean))

    @classmethod
    def of(cls, error: BridgeError) -> Self:
        """Return this error as an OpenResponsesError."""
        return cls(
            error.http_status,
            error.message,
            code=error.code,
            error_type=error.error_type,
            param=error.param,
            headers=error.headers if isinstance(error, HttpError) else None,
        )

    @property
    def retry_after(self) -> float | None:
        """The seconds of the server's `retry-after`; None if it sent none."""
        return seconds_of(self.headers.get("retry-after"))

    @property
    def is_passing(self) -> bool:
        """True if a retry may succeed."""
        return self.http_status in PASSING and self.code != UpstreamError.TIMEOUT


def cut_short() -> UpstreamError:
    """The error for a stream that ended before its response."""
    what = "the stream ended before the response was complete"
    return UpstreamError(502, what, code=UpstreamError.DISCONNECTED, cause=what)


def empty() -> UpstreamError:
    """The error for a stream without any event."""
    what = "the server answered with an empty stream"
    return UpstreamError(502, what, code=UpstreamError.INVALID_RESPONSE, cause=what)


MOST_BYTES: Final = 256 * 1024 * 1024
TIMEOUTS: Final = Timeouts(first_byte=120.0, idle=120.0)
RETRIES: Final = Retries(times=2)
_CANCELLING: Final = 2.0  # seconds for a server to cancel a stored response
_LONGEST_ID: Final = 128
# such a server stores responses, and refuses unsupported fields itself
_OPTIONS: Final = ResponsesOptions(stateful=True)


class OpenResponsesClient:
    """A client of the server at `base_url` (with or without `/v1`). Used as an asynchronous context, or
    closed by `close`; it belongs to the event loop in which it is first used.

    `api_key` is sent as a bearer token, to that address only; like the values of `headers` it is left out of
    errors. `timeouts`, in seconds, are for the connection, the first byte, each silence (`idle`) and one
    whole response. `retries` is how often a request is sent again, which is done only before the first event;
    `on_wait` is called before each retry with the seconds until then and the error. `most_bytes` is the limit
    of one answer.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts = TIMEOUTS,
        retries: Retries = RETRIES,
        most_bytes: int = MOST_BYTES,
        on_wait: Callable[[float, OpenResponsesError], None] | None = None,
    ) -> None:
        self._timeouts = timeouts
        self._retries = retries
        self._most = most_bytes
        self._on_wait = on_wait
        extra_headers = {name.lower(): value for name, value in (headers or {}).items()}
        self.server = HttpUpstream(
            urlsplit(base_url).hostname or base_url,
            base_url,
            RESPONSES,
            timeouts,
            UpstreamKey(value=api_key, is_ours=False),
            AddressOptions(headers=extra_headers, secrets=list(extra_headers.values())),
        )
        """The server as an upstream."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self.server.close()

    async def models(self) -> list[ReportedModel]:
        """The models that the server lists. Raises OpenResponsesError."""
        try:
            return await self.server.models()
        except BridgeError as error:
            raise OpenResponsesError.of(error) from error

    async def stream(
        self, request: CreateResponse | Mapping[str, Any], cancel: Cancellation | None = None
    ) -> AsyncGenerator[Event]:
        """The events of one response up to its terminal event. A mapping is sent as it is, as a streamed
        request. After `cancel` the iteration ends, the connection is closed, and a response that the server
        stores is cancelled there, since it may continue without its client.

        Raises OpenResponsesError for a request that is refused or not answered, and for a stream that ends
        early or can't be read; InvalidRequestError for a request that can't be sent.
        """
        body = _body(request)
        async with ResponseScope(cancel, self._timeouts.total) as scope:
            for attempt in range(self._retries.times + 1):
                begun = False
                try:
                    async with aclosing(self._attempt(body, scope)) as events:
                        async for event in events:
                            begun = True
                            yield event
                    return
                except BridgeError as error:
                    wait = (
                        None if begun or attempt == self._retries.times else self._retry_delay(error, attempt)
                    )
                    if wait is None:
                        raise OpenResponsesError.of(error) from error
                    if self._on_wait is not None:
                        self._on_wait(wait, OpenResponsesError.of(error))
                await scope.sleep(wait)

    def _retry_delay(self, error: BridgeError, attempt: int) -> float | None:
        if not isinstance(error, UpstreamError):
            return None
        return waiting_time(error, attempt, self._retries, random.random())

    async def _attempt(self, body: bytes, scope: ResponseScope) -> AsyncGenerator[Event]:
        request = UpstreamRequest(RESPONSES.endpoint.path, body, f"req_{secrets.token_hex(12)}")
        seen = _ResponseState()
        try:
            async with AsyncExitStack() as stack:
                reply = await scope.unless_cancelled(
                    lambda: stack.enter_async_context(self.server.open(request))
                )
                if reply is None:
                    return
                async with aclosing(self._events(reply, scope)) as events:
                    async for event in events:
                        seen.add(event)
                        yield event
        finally:
            if scope.is_cancelled() and seen.runs and is_plain_id(seen.kept):
                await self._cancel(seen.kept)

    async def _events(self, reply: UpstreamReply, scope: ResponseScope) -> AsyncGenerator[Event]:
        reader, frames, received = BodyReader(reply), SSEDecoder(), 0
        latest: Event | None = None
        while (data := await scope.unless_cancelled(reader.read)) is not None:
            received += len(data)
            if received > self._most:
                raise too_long(self._most)
            for frame in frames.feed(data) if data else frames.close():
                if (event := _event(frame)) is not None:
                    latest = event
                    yield event
                    if type(event) in TERMINAL_EVENTS:
                        return
            if not data and isinstance(latest, ErrorEvent):
                return  # the server said why
            if not data:
                raise empty() if latest is None else cut_short()

    async def _cancel(self, response_id: str) -> None:
        """Cancel the response on the server; errors are ignored."""
        path = f"{RESPONSES.endpoint.path}/{response_id}/cancel"
        with suppress(BridgeError, TimeoutError):
            async with asyncio.timeout(_CANCELLING):
                async with self.server.open(UpstreamRequest(path, b"{}", f"req_{secrets.token_hex(12)}")):
                    pass


class _ResponseState:
    """The state of the response: its id if the server stores it, and whether it is in progress."""

    kept = ""
    runs = True

    def add(self, event: Event) -> None:
        if isinstance(event, ResponseCreated) and event.response.store:
            self.kept = event.response.id
        self.runs = type(event) not in TERMINAL_EVENTS


def is_plain_id(response_id: str) -> bool:
    """Return True if an id from a server can be part of a path without changing its meaning."""
    plain = response_id.replace("_", "").replace("-", "")
    return len(response_id) <= _LONGEST_ID and plain.isascii() and plain.isalnum()


def _body(request: CreateResponse | Mapping[str, Any]) -> bytes:
    if isinstance(request, CreateResponse):
        body, _ = to_responses(msgspec.structs.replace(request, stream=True), options=_OPTIONS)
        return encode(body)
    return encode({**request, "stream": True})


def _event(frame: Frame) -> Event | None:
    """The event in a frame; None if there is none. Raises the error that a server sends as an event."""
    if not frame.data or is_done(frame):
        return None
    event = decode_event(frame.data)
    if not isinstance(event, UnknownEvent) or event.type:
        return event
    if (whole := whole_answer(event.raw)) is not None:
        return event_from(whole)
    if (refused := in_band_refusal(frame.data)) is not None:
        raise refused
    return event_from({**event.raw, "type": frame.event}) if frame.event else event
