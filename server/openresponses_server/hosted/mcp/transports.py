"""The transports to MCP servers: those of the official SDK, with limits on what a server sends.

The SDK reads lines and bodies of any size, so the bytes come through our own process and our own HTTP client.
The SDK does not know the address or the headers of a server, so that its logs and spans can't show them.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, suppress
from functools import partial
from typing import Any, Final
from urllib.parse import urljoin

import anyio
import httpx2
import mcp_types
from mcp import MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCRequest

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json
from openresponses_server.http.client.connect_options import WITHOUT_PROXY, ConnectOptions
from openresponses_server.http.client.connection import Http1Response, request_target_of
from openresponses_server.http.client.failures import RemoteProtocolError, public_reason
from openresponses_server.http.client.fetching import PatientConnector, PublicConnector
from openresponses_server.http.client.pool import ConnectionPool
from openresponses_server.http.flow import BodyReader
from openresponses_server.processes import (
    ChildProcess,
    LineSplitter,
    LineTooLong,
    LineWriter,
    OversizedLine,
    log_stderr,
)
from openresponses_server.settings import Timeouts
from openresponses_server.tasks import off_loop

MOST_UNASKED: Final = 10_000
"""The limit of messages between two requests of ours, beyond which a connection is closed, unless they come
slowly."""
_SLOWLY: Final = 1000.0  # messages a second: a tool may log that many for as long as it runs
_MOST_FLOODED: Final = 32
"""The limit of bytes between two requests of ours, as a multiple of the limit of one message."""
_LONGEST_ERROR: Final = 4000  # characters
_OWN_ERROR: Final = -32000  # JSON-RPC: an error of the implementation
_UNLIKE: Final = "its answer is not what the protocol defines"
_READ: Final = 64 * 1024
_UNREAD: Final = 4 * 1024 * 1024  # written bytes that a program has not read
_CALL: Final = "tools/call"
_LIST_CHANGED: Final = "notifications/tools/list_changed"

Streams = tuple[Any, Any]
"""The stream of received messages and the stream of sent ones, as the SDK defines them."""
Transport = AbstractAsyncContextManager[Streams]


class Traffic:
    """The data that one connection has received since our latest request. `ended` is set when it can't be
    used any more, and `reason` says why."""

    def __init__(
        self, most_bytes: int, changed: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`most_bytes` is the limit of one message. `changed` is called when the server reports that its
        tools have changed."""
        self._clock = clock
        self._counted_at = clock()
        self.most_bytes = most_bytes
        self.changed = changed
        self.ended = asyncio.Event()
        self.reason = "it ended the connection"
        self.session_lost = False
        """True if the server no longer knows the session: no further request is sent in it. Those in progress
        may still be answered."""
        self.is_given_up = False
        """True if the server has exceeded a limit."""
        self._messages = 0.0
        self._bytes = 0
        self._mark = secrets.token_hex(16)  # which no server knows

    def failure(self, message: str, *, is_unsent: bool = False) -> ErrorData:
        """Return the error of one request that failed here, in our own words. `is_unsent` is True if the
        server did not act on it."""
        return ErrorData(code=_OWN_ERROR, message=message, data=[self._mark, is_unsent])

    def is_ours(self, error: ErrorData) -> bool:
        """Return True if `failure` has made this error."""
        return isinstance(error.data, list) and error.data[:1] == [self._mark]

    def is_unsent(self, error: ErrorData) -> bool:
        """Return True if the server did not act on the request with this error."""
        return self.is_ours(error) and error.data[1] is True

    def asked(self) -> None:
        """Reset the counts when a request of ours is sent: its answer may use the whole of the limits."""
        self._messages = 0.0
        self._bytes = 0

    def received_bytes(self, size: int) -> bool:
        """Count received bytes. Returns True if the limit allows them."""
        self._bytes += size
        return self._bytes <= _MOST_FLOODED * self.most_bytes or self.give_up("it sends more than is read")

    def received_message(self) -> bool:
        """Count a received message. Returns True if the limit allows it."""
        now = self._clock()
        self._messages = max(0.0, self._messages - (now - self._counted_at) * _SLOWLY) + 1
        self._counted_at = now
        return self._messages <= MOST_UNASKED or self.give_up("it sends more than is read")

    def give_up(self, reason: str) -> bool:
        """End the connection, since the server has exceeded a limit. Returns False."""
        self.is_given_up = True
        return self.end(reason)

    def end(self, reason: str | None = None) -> bool:
        """Record that the connection has ended. Returns False."""
        if not self.ended.is_set():
            self.reason = reason or self.reason
            self.ended.set()
        return False


class _Received:
    """The received messages, as the SDK reads them. Notifications are left out: a server may send any number,
    and they change nothing here but the validity of its list."""

    def __init__(self, inner: Any, traffic: Traffic, clean: Callable[[str], str]) -> None:
        self._inner = inner
        self._traffic = traffic
        self._clean = clean

    async def receive(self) -> SessionMessage:
        while True:
            await asyncio.sleep(0)  # lets others run, since what is buffered arrives without a pause
            try:
                received = await self._inner.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                self._traffic.end()
                raise
            if not self._traffic.received_message():
                raise anyio.EndOfStream
            if not isinstance(received, SessionMessage):
                continue  # not JSON-RPC
            if isinstance(received.message, JSONRPCError):  # the SDK shows its text in a span
                error = received.message.error
                # cleaned before it is cut: half a secret would not be found
                error.message = self._clean(error.message[: 2 * _LONGEST_ERROR])[:_LONGEST_ERROR]
                if error.code == mcp_types.PARSE_ERROR:  # has pydantic's words, which quote what was received
                    error.message = _UNLIKE
            if not isinstance(received.message, JSONRPCNotification):
                return received
            if received.message.method == _LIST_CHANGED:
                self._traffic.changed()

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> _Received:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> _Received:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Sent:
    """Our messages, as the SDK writes them."""

    def __init__(self, inner: Any, traffic: Traffic) -> None:
        self._inner = inner
        self._traffic = traffic

    async def send(self, message: SessionMessage) -> None:
        if isinstance(message.message, JSONRPCRequest):
            self._traffic.asked()
        await self._inner.send(message)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> _Sent:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


@asynccontextmanager
async def bounded(
    transport: Transport, traffic: Traffic, clean: Callable[[str], str]
) -> AsyncIterator[Streams]:
    """The transport, with the bounds of `traffic`. `clean` removes secrets from errors."""
    async with transport as (received, sent):
        yield _Received(received, traffic, clean), _Sent(sent, traffic)


# --- a program's input and output -----------------------------------------------------------------------


class _Lines:
    """The messages that a program writes, one per line. One that is too long fails the request that it
    answers."""

    def __init__(self, child: ChildProcess, traffic: Traffic) -> None:
        self._child = child
        self._traffic = traffic
        self._splitter = LineSplitter(traffic.most_bytes)
        self._lines: deque[bytes | OversizedLine] = deque()

    async def receive(self) -> SessionMessage | Exception:
        while not self._lines:
            data = await self._child.stdout.read(_READ)
            if not data:
                self._traffic.end("its program has ended")
                raise anyio.EndOfStream
            try:
                self._lines.extend(self._splitter.feed(data))
            except LineTooLong:
                self._traffic.give_up("it sends more than is read")
                raise anyio.EndOfStream from None
            if not self._traffic.received_bytes(len(data)):
                raise anyio.EndOfStream
        line = self._lines.popleft()
        if isinstance(line, OversizedLine):
            return self._too_long(line)
        try:
            return await off_loop(len(line), partial(_session_message, line), begun=True)
        except ValueError as error:
            return error

    def _too_long(self, line: OversizedLine) -> SessionMessage | Exception:
        if line.answered is None:
            return ValueError("a message that answers nothing is too long")
        error = self._traffic.failure(f"it sent a message of more than {self._traffic.most_bytes} bytes")
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=line.answered, error=error))

    async def aclose(self) -> None:
        return None


class _Input:
    """The input of a program. A request that can't be written fails alone; nothing waits for an answer to any
    other message."""

    def __init__(self, child: ChildProcess, traffic: Traffic) -> None:
        self._writer = LineWriter(child, _UNREAD)
        self._traffic = traffic

    async def send(self, message: SessionMessage) -> None:
        if self._traffic.ended.is_set():
            raise anyio.BrokenResourceError
        line = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        reason = "its program does not read what it is sent"
        try:
            if self._writer.write(line):
                return
        except BrokenPipeError:
            reason = "its program has ended"
            self._traffic.end(reason)
        except TimeoutError:
            self._traffic.give_up(reason)
        if isinstance(message.message, JSONRPCRequest):
            raise MCPError.from_error_data(self._traffic.failure(reason, is_unsent=True))

    async def aclose(self) -> None:
        return None


def _session_message(data: bytes) -> SessionMessage:
    """Decode a line. Raises ValueError."""
    return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(data, by_name=False))


@asynccontextmanager
async def program(
    command: list[str],
    environment: Mapping[str, str],
    cwd: str,
    *,
    name: str,
    clean: Callable[[str], str],
    stop_seconds: float,
    traffic: Traffic,
) -> AsyncIterator[Streams]:
    """A program, started on entry, and ended on exit with its children. `clean` removes secrets from the
    lines of its standard error, which are logged. Raises OSError if it can't be started."""
    child = await ChildProcess.start(command, environment, cwd)
    errors = asyncio.create_task(log_stderr(child.stderr, "mcp.stderr", clean, server=name))
    try:
        yield _Lines(child, traffic), _Input(child, traffic)
    finally:
        with anyio.CancelScope(shield=True):
            rest = asyncio.create_task(_discard(child.stdout))  # else it could not end
            await child.stop(0 if traffic.is_given_up else stop_seconds, [errors, rest])


async def _discard(stream: asyncio.StreamReader) -> None:
    while await stream.read(_READ):
        pass


# --- streamable HTTP ------------------------------------------------------------------------------------

_ADDRESS: Final = "http://mcp.invalid/"  # given to the SDK instead of the server's address
_FORWARDED: Final = ("accept", "content-type")
_REDIRECTS: Final = frozenset({307, 308})  # those that keep the method
_MOST_REDIRECTS: Final = 3
_MOST_REFUSAL: Final = 64 * 1024  # bytes
_JSON: Final = "application/json"


class _Unreadable(httpx2.StreamError, httpx2.SSEError):
    """Raised if an answer can't be read to its end. The SDK turns both base classes into the failure of one
    request, whatever kind of body it was."""


class _Body(httpx2.AsyncByteStream):
    """The body of an answer, limited in bytes and, at `deadline`, in time."""

    def __init__(self, answer: Http1Response, most: int, deadline: float) -> None:
        self._answer = answer
        self._most = most
        self._deadline = deadline

    async def __aiter__(self) -> AsyncIterator[bytes]:
        reader = BodyReader(self._answer.content)
        size = 0
        while True:
            try:
                async with asyncio.timeout_at(self._deadline):
                    data = await reader.read()
            except OSError as error:
                self._answer.close()
                raise _Unreadable(f"it can't be read: {public_reason(error)}") from None
            if not data:
                return
            size += len(data)
            if size > self._most:
                self._answer.close()
                raise _Unreadable(f"it has more than {self._most} bytes")
            yield data

    async def aclose(self) -> None:
        self._answer.close()


class _OurClient(httpx2.AsyncBaseTransport):
    """Sends the SDK's requests with our own client, to the server's address and with its headers.

    A failure is an answer with a JSON-RPC error: an exception would end the session with all other calls.
    """

    def __init__(
        self, pool: ConnectionPool, url: str, headers: Mapping[str, str], seconds: float, traffic: Traffic
    ) -> None:
        """`seconds` is the limit of a request with its answer. The SDK continues to read after its caller has
        gone."""
        self._pool = pool
        self._seconds = seconds
        self._url = url
        self._headers = dict(headers)
        self._traffic = traffic

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            return httpx2.Response(405)  # no stream of messages that are not answers
        deadline = asyncio.get_running_loop().time() + self._seconds
        body = await request.aread()
        headers = {
            name: value
            for name, value in request.headers.items()
            if name in _FORWARDED or name.startswith("mcp-")
        } | self._headers
        try:
            answer = await self._answer(request.method, headers, body, once=_is_call(body))
        except (OSError, ValueError) as error:  # the target of a redirect may be no address
            return self._failure(502, f"it can't be reached: {public_reason(error)}")
        if answer.status == 404 and "mcp-session-id" in headers:
            answer.close()
            self._traffic.session_lost = True
            return self._failure(404, "it has ended the session", is_unsent=True)
        if answer.status >= 400:
            return await self._refusal(answer, deadline)
        response_headers = {
            name: answer.headers[name]
            for name in ("content-type", "mcp-session-id")
            if name in answer.headers
        }
        if not response_headers.get("content-type", "").lower().startswith(_JSON):
            return httpx2.Response(
                answer.status, headers=response_headers, stream=self._body(answer, deadline)
            )
        with closing(answer):
            try:
                data = b"".join([piece async for piece in self._body(answer, deadline)])
            except _Unreadable as error:
                return self._failure(502, str(error))
        return httpx2.Response(answer.status, headers=response_headers, content=data)

    def _body(self, answer: Http1Response, deadline: float) -> _Body:
        return _Body(answer, self._traffic.most_bytes, deadline)

    async def _refusal(self, answer: Http1Response, deadline: float) -> httpx2.Response:
        """Return an answer with the status of an error. It is unchanged if it says what is wrong, which the
        SDK reads."""
        with closing(answer):
            try:
                async with asyncio.timeout_at(deadline):
                    data = await BodyReader(answer.content).collect(_MOST_REFUSAL)
                error = decode_json(data).get("error") if len(data) < _MOST_REFUSAL else None
            except (OSError, AttributeError, WireError):
                error = None
        if isinstance(error, dict):
            return httpx2.Response(answer.status, headers={"content-type": _JSON}, content=data)
        return self._failure(answer.status, f"it answered with status {answer.status}")

    def _failure(self, status: int, what: str, *, is_unsent: bool = False) -> httpx2.Response:
        error = self._traffic.failure(what, is_unsent=is_unsent)
        body = JSONRPCError(jsonrpc="2.0", id=None, error=error).model_dump_json(by_alias=True)
        return httpx2.Response(status, headers={"content-type": _JSON}, content=body.encode())

    async def _answer(
        self, method: str, headers: dict[str, str], body: bytes, *, once: bool
    ) -> Http1Response:
        """Follow redirects within the server's origin: nothing is sent to another one. Raises OSError."""
        url = self._url
        for _ in range(_MOST_REDIRECTS + 1):
            answer = await self._pool.request(method, url, headers=headers, data=body, once=once)
            if answer.status not in _REDIRECTS:
                return answer
            answer.close()
            url = urljoin(url, answer.headers.get("location", ""))
            if request_target_of(url).origin != request_target_of(self._url).origin:
                raise RemoteProtocolError("it redirects to another server")
        raise RemoteProtocolError("it redirects in a loop")

    async def aclose(self) -> None:
        await self._pool.close()


def _is_call(body: bytes) -> bool:
    """Return True if the message calls a tool, or can't be read."""
    try:
        return not body or decode_json(body).get("method") == _CALL
    except (AttributeError, WireError):
        return True


@asynccontextmanager
async def streamable_http(
    url: str,
    headers: Mapping[str, str],
    *,
    is_public: bool,
    connect_seconds: float,
    answer_seconds: float,
    traffic: Traffic,
) -> AsyncIterator[Streams]:
    """A server at an address. If `is_public`, only addresses of the public internet are connected to, and no
    proxy is used, which would look up the name again."""
    timeouts = Timeouts(
        connect=connect_seconds, first_byte=answer_seconds, idle=answer_seconds, total=answer_seconds
    )
    options = ConnectOptions(proxy=WITHOUT_PROXY) if is_public else ConnectOptions()
    pool = ConnectionPool("", timeouts, options, PublicConnector if is_public else PatientConnector)
    client = httpx2.AsyncClient(
        transport=_OurClient(pool, url, headers, answer_seconds, traffic), timeout=None, trust_env=False
    )
    async with client:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with streamable_http_client(
                _ADDRESS, http_client=client, max_sse_event_size=traffic.most_bytes
            ) as streams:
                yield streams
