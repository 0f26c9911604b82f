"""Requests over WebSockets, behind the interface of the HTTP client: an answer is read as one over
HTTP.

A connection belongs to one `session` (the key that asks), one address and one set of headers, so that no
other key ever uses it or sees an id of it. It may be opened before its first request, within limits, and is
soon closed if no request comes. It has one request at a time; of a request that continues its last answer
only the difference is sent. A request is sent over HTTP instead when no WebSocket can be opened, when it is
not one that a WebSocket can have, and once, when the connection is lost before anything of its answer was
received: the server has not begun it then. A connection that is lost later is an error, as it is over HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import structlog
from msgspec import Struct

from openresponses_bridge.dialects.base import Meaning, SocketFraming, SocketRefusal, SocketRequest
from openresponses_server.http.client.body import FairScheduler, ResponseBody
from openresponses_server.http.client.connection import request_target_of
from openresponses_server.http.client.failures import RemoteProtocolError, cause_of
from openresponses_server.http.client.pool import ConnectionPool
from openresponses_server.http.client.socket import SocketConnection, SocketLost, SocketRefused
from openresponses_server.http.client.upload import Upload
from openresponses_server.settings import SocketSettings, Timeouts
from openresponses_server.tasks import end_tasks, off_loop
from openresponses_server.upstreams.base import HttpClient, HttpClientFactory, HttpResponse, SocketCounts

_STREAM: Final = {"content-type": "text/event-stream"}
_JSON: Final = {"content-type": "application/json"}
# a frame of the event stream that the same answer is over HTTP; in JSON a line end is white space
_FIELD: Final = b"data: "
_END: Final = b"\n\n"
_ONE_LINE: Final = bytes.maketrans(b"\r\n", b"  ")
# headers of one request, which say nothing about who asks
_OF_REQUEST: Final = frozenset({"x-request-id", "traceparent", "tracestate"})
_OF_BODY: Final = frozenset({"content-type", "accept"})
_PASSING: Final = frozenset({401, 403, 407, 408, 429})  # refusals that are not about WebSockets
_CONNECTIONS: Final = 2  # that one request is sent on, of which the first has expired
_OFF_SECONDS: Final = 60.0  # for which an upstream is not asked for WebSockets that has refused one
_log = structlog.get_logger(__name__)

Key = tuple[str, str, tuple[tuple[str, str], ...]]
"""Who asks, the address, and the headers."""


class SocketResponse(Struct, eq=False):
    """The answer to one request, as over HTTP."""

    status: int
    headers: Mapping[str, str]
    content: ResponseBody
    abandon: Callable[[ResponseBody], None]

    def close(self) -> None:
        """Discard the rest; the connection is closed if more may arrive."""
        self.abandon(self.content)


class _Socket:
    """A connection with what it knows. `free` is called when it can be used again, `gone` when it can't."""

    def __init__(
        self,
        connection: SocketConnection,
        framing: SocketFraming,
        scheduler: FairScheduler,
        key: Key,
        free: Callable[[_Socket], None],
        gone: Callable[[_Socket], None],
    ) -> None:
        self.key = key
        self.turns = 0
        self.conversation = ""
        """That of its last request."""
        self.opened_at = asyncio.get_running_loop().time()
        self.session = framing.session()
        self.timer: asyncio.TimerHandle | None = None
        """Closes it when it was idle too long, or is too old."""
        self.is_prewarmed = False
        """True if it was opened ahead and no request has taken it yet."""
        self._connection = connection
        self._scheduler = scheduler
        self._free, self._gone = free, gone
        self._body: ResponseBody | None = None
        self._begun: asyncio.Future[tuple[Meaning, SocketRefusal | None]] | None = None
        connection.on_message, connection.on_end = self._receive, self._end

    @property
    def is_open(self) -> bool:
        """True if it can have a request."""
        return self._connection.is_open and self._body is None

    def may_have(self, conversation: str) -> bool:
        """Return True if a request of this conversation may get it: where that has no name, its content
        decides, which is not known yet."""
        return self.is_prewarmed or not conversation or conversation == self.conversation

    async def ask(
        self, request: SocketRequest, known: int, seconds: float
    ) -> tuple[Meaning, SocketResponse | None]:
        """Send a request; returns what the first message of its answer means, and the answer if it has one.
        Raises OSError; TimeoutError if that takes so long."""
        self.turns += 1
        body = self._body = ResponseBody(self._connection, self._scheduler)
        begun = self._begun = asyncio.get_running_loop().create_future()
        self.conversation = request.conversation
        try:
            async with asyncio.timeout(seconds):
                await self._connection.send(self.session.message(request, known))
                meaning, refusal = await begun
        except BaseException:
            if self._body is body:  # else the turn has ended, and the next one may have begun
                self._connection.abort()
            raise
        if meaning in (Meaning.EVENT, Meaning.LAST):
            return meaning, SocketResponse(200, _STREAM, body, self._abandon)
        return meaning, None if refusal is None else self._refused(refusal)

    def _refused(self, refusal: SocketRefusal) -> SocketResponse:
        body = ResponseBody(self._connection, self._scheduler)
        body.feed(refusal.body)
        body.end()
        return SocketResponse(refusal.status, {**refusal.headers, **_JSON}, body, self._abandon)

    def close(self) -> None:
        """Close it at the end of a turn."""
        self._connection.close()

    def abort(self) -> None:
        """Close it within a turn."""
        self._connection.abort()

    def _abandon(self, body: ResponseBody) -> None:
        if self._body is body:
            self._connection.abort()

    def _receive(self, message: bytes) -> None:
        body, begun = self._body, self._begun
        if body is None:
            self._connection.abort()  # a message without a request, which the next one must not get
            return
        meaning = self.session.read(message)
        if meaning is Meaning.SKIPPED:
            return
        if begun is not None and not begun.done():
            begun.set_result((meaning, self.session.refusal))
        if meaning in (Meaning.EVENT, Meaning.LAST):
            body.feed(b"%b%b%b" % (_FIELD, message.translate(_ONE_LINE), _END))
        if meaning is not Meaning.EVENT:
            self._body = None
            self._connection.resume()
            if meaning is Meaning.EXPIRED or not self._connection.is_sent:
                self._connection.close()  # which ends the sending of a request that was answered early
            else:
                self._free(self)
            body.end()

    def _end(self, error: OSError) -> None:
        body, self._body = self._body, None
        if self._begun is not None and not self._begun.done():
            self._begun.set_exception(error)
            self._begun.exception()  # nobody may wait for it
        self._gone(self)
        if body is not None:
            body.end(error)


class _Prewarming(Struct, eq=False):
    """A connection that is being opened ahead."""

    task: asyncio.Task[None]
    is_awaited: bool = False
    """True if a request waits for it."""
    is_refused: bool = False


class SocketRequests:
    """An `HttpClient` that has the streamed requests of a dialect over WebSockets."""

    def __init__(
        self,
        requests: ConnectionPool,
        path: str,
        framing: SocketFraming,
        name: str,
        timeouts: Timeouts,
        limits: SocketSettings,
        counts: SocketCounts,
    ) -> None:
        """`path`: that of these requests; all others go over HTTP, with `requests`."""
        self._requests = requests
        self._path = path
        self._framing = framing
        self._name = name
        self._timeouts = timeouts
        self._limits = limits
        self._counts = counts
        self._loop = asyncio.get_running_loop()
        self._scheduler = FairScheduler()
        self._open: set[_Socket] = set()
        self._opening = 0
        self._idle: dict[Key, list[_Socket]] = {}
        self._prewarming: dict[Key, _Prewarming] = {}
        self._off_until = 0.0  # on the loop's clock
        self._closed = False

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        data: bytes | Upload = b"",
        session: str = "",
    ) -> HttpResponse:
        """Send a request, over a WebSocket if it is one for it. Raises as the HTTP client does."""
        over_http = partial(self._requests.request, method, url, headers=headers, data=data)
        if isinstance(data, Upload) or not url.partition("?")[0].endswith(self._path):
            return await over_http()
        socket_request = await off_loop(len(data), partial(self._framing.read, data), begun=True)
        if socket_request is None:
            return await over_http()
        answer = None
        if self._loop.time() >= self._off_until and not self._closed:
            answer = await self._ask(socket_request, url, headers, session)
        if answer is None:
            self._counts.observe("http")
            return await over_http()
        return answer

    def prewarm(
        self, url: str, *, headers: Mapping[str, str], session: str = "", conversation: str = ""
    ) -> None:
        if self._closed or self._loop.time() < self._off_until:
            return
        key, sent = self._handshake(url, headers, session)
        idle = [each for each in self._idle.get(key, ()) if each.is_open]
        if key in self._prewarming or any(each.may_have(conversation) for each in idle):
            return
        if not self._may_prewarm(session):
            self._counts.observe_prewarmed("limited")
            return
        self._prewarming[key] = _Prewarming(self._loop.create_task(self._prewarm(key, sent)))

    def _may_prewarm(self, session: str) -> bool:
        """Return True if one more connection may be without a request, in total and for this session."""
        ahead = [*self._prewarming, *(each.key for each in self._open if each.is_prewarmed)]
        of_session = sum(key[0] == session for key in ahead)
        limits = self._limits
        return len(ahead) < limits.prewarmed and (not session or of_session < limits.prewarmed_per_key)

    async def _prewarm(self, key: Key, headers: Mapping[str, str]) -> None:
        """Open a connection that becomes idle. No other one is closed for it."""
        try:
            if self._is_full:
                self._counts.observe_prewarmed("limited")
                return
            socket = await self._opened(key, headers)
            socket.is_prewarmed = True
            self._release(socket)
        except SocketRefused as error:
            self._prewarming[key].is_refused = True
            self._counts.observe_prewarmed("refused")
            self._refused(error)
        finally:
            del self._prewarming[key]

    def _handshake(self, url: str, headers: Mapping[str, str], session: str) -> tuple[Key, Mapping[str, str]]:
        """Return the key of the connections for such a request, and the headers with which one is opened."""
        sent = {**headers, **_with(headers, self._framing.headers)}
        sent = {name: value for name, value in sent.items() if name not in _OF_BODY}
        who = tuple(sorted(each for each in sent.items() if each[0] not in _OF_REQUEST))
        return (session, url, who), sent

    async def _ask(
        self, request: SocketRequest, url: str, headers: Mapping[str, str], session: str
    ) -> SocketResponse | None:
        """The answer over a WebSocket; None if the request is to be made over HTTP."""
        key, sent = self._handshake(url, headers, session)
        socket, known = self._free_socket(key, request)
        prewarming = self._prewarming.get(key)
        if socket is None and prewarming is not None and not prewarming.is_awaited:
            if not await _has_opened(prewarming):
                return None
            socket, known = self._free_socket(key, request)
        seconds = self._timeouts.first_byte
        for _ in range(_CONNECTIONS):
            try:
                socket = socket or await self._new_socket(key, sent)
                if socket is None:
                    return None
                meaning, answer = await socket.ask(request, known, seconds)
                if meaning is Meaning.NOT_CONTINUED and socket.is_open:
                    self._reserve(socket)
                    known = 0
                    meaning, answer = await socket.ask(request, known, seconds)
            except SocketRefused as error:
                self._refused(error)
                return None
            except SocketLost as error:
                _log.info("upstream.websocket_lost", upstream=self._name, reason=cause_of(error))
                return None
            except RemoteProtocolError:
                self._turn_off()
                raise
            if answer is not None:
                self._counts.observe("continued" if known else "whole")
                return answer
            if meaning is not Meaning.EXPIRED:
                return None
            socket, known = None, 0
        return None

    def _free_socket(self, key: Key, request: SocketRequest) -> tuple[_Socket | None, int]:
        """An idle connection of this key, and what it knows of the request: one that knows something, else
        one of the same conversation, which then knows nothing, else one that was opened ahead; or None."""
        idle = [each for each in reversed(self._idle.get(key, ())) if each.is_open]
        for socket in idle:
            known = socket.session.known(request)
            if known:
                self._reserve(socket)
                return socket, known
        named = request.conversation
        free = next((each for each in idle if named and each.conversation == named), None)
        free = free or next((each for each in idle if each.is_prewarmed), None)
        if free is not None:
            self._reserve(free)
        return free, 0

    def _reserve(self, socket: _Socket) -> None:
        """Reserve an idle connection for a request."""
        self._remove_idle(socket)
        if socket.is_prewarmed:
            socket.is_prewarmed = False
            self._counts.observe_prewarmed("used")

    def _remove_idle(self, socket: _Socket) -> None:
        """Take a connection from the idle ones."""
        idle = self._idle.get(socket.key, [])
        if socket in idle:
            idle.remove(socket)
            if not idle:
                del self._idle[socket.key]
        if socket.timer is not None:
            socket.timer.cancel()
            socket.timer = None

    async def _new_socket(self, key: Key, headers: Mapping[str, str]) -> _Socket | None:
        """Open a connection; None if there may be no more. Raises OSError."""
        if self._is_full and not self._close_oldest():
            return None
        return await self._opened(key, headers)

    @property
    def _is_full(self) -> bool:
        return len(self._open) + self._opening >= self._limits.connections

    async def _opened(self, key: Key, headers: Mapping[str, str]) -> _Socket:
        """Open a connection. Raises SocketRefused."""
        self._opening += 1
        connection = None
        try:
            try:
                target, most = request_target_of(key[1]), self._limits.message_bytes
                connection = await self._requests.connect(key[1], partial(SocketConnection, target, most))
                async with asyncio.timeout(self._timeouts.connect):
                    await connection.open(headers)
            except OSError as error:
                raise error if isinstance(error, SocketRefused) else SocketRefused(cause_of(error)) from error
            if self._closed:
                raise SocketRefused("this server is stopping")
            if not connection.is_open:  # its end came with the handshake, and nobody else hears of it
                raise SocketRefused("it closed the connection after its handshake")
        except BaseException:
            if connection is not None:
                connection.abort()
            raise
        finally:
            self._opening -= 1
        socket = _Socket(connection, self._framing, self._scheduler, key, self._release, self._remove)
        self._open.add(socket)
        self._counts.open += 1
        return socket

    def _close_oldest(self) -> bool:
        """Close the connection that has been idle longest; return False if there is none."""
        oldest = min((each for idle in self._idle.values() for each in idle), key=_idle_until, default=None)
        if oldest is None:
            return False
        oldest.close()
        return True

    def _release(self, socket: _Socket) -> None:
        """The turn of a connection has ended, or it was opened ahead."""
        limits, now = self._limits, self._loop.time()
        idle = limits.prewarmed_idle if socket.is_prewarmed else limits.idle
        left = socket.opened_at + limits.age - now
        if socket.turns >= limits.turns or left <= 0 or self._closed:
            socket.close()
            return
        self._idle.setdefault(socket.key, []).append(socket)
        socket.timer = self._loop.call_later(min(idle, left), socket.close)

    def _remove(self, socket: _Socket) -> None:
        """A connection has ended."""
        self._remove_idle(socket)
        if socket in self._open:
            self._open.discard(socket)
            self._counts.open -= 1
            if socket.is_prewarmed:
                self._counts.observe_prewarmed("unused")

    def _refused(self, error: SocketRefused) -> None:
        _log.info("upstream.websocket_refused", upstream=self._name, reason=str(error))
        if 300 <= error.status < 500 and error.status not in _PASSING:
            self._turn_off()

    def _turn_off(self) -> None:
        self._off_until = self._loop.time() + _OFF_SECONDS

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        await end_tasks([each.task for each in self._prewarming.values()])
        for socket in list(self._open):
            socket.abort() if not socket.is_open else socket.close()
        await self._requests.close()


async def _has_opened(prewarming: _Prewarming) -> bool:
    """Wait for a connection that is opened ahead, which goes on without this request if that is cancelled.
    Return False if the upstream has refused it, or this server stops."""
    prewarming.is_awaited = True
    try:
        await asyncio.wait((prewarming.task,))
    finally:
        prewarming.is_awaited = False
    return not (prewarming.is_refused or prewarming.task.cancelled())


def _idle_until(socket: _Socket) -> float:
    return socket.timer.when() if socket.timer is not None else 0.0


def _with(headers: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """These headers of the framing, behind the values that a request has of them."""
    return {name: f"{headers[name]},{value}" if name in headers else value for name, value in own.items()}


def over_sockets(
    connect: Callable[[str, Timeouts], ConnectionPool],
    path: str,
    framing: SocketFraming,
    limits: SocketSettings,
    counts: SocketCounts,
) -> HttpClientFactory:
    """A factory of clients that have requests for `path` over WebSockets, and all else over those of
    `connect`."""

    def connected(name: str, timeouts: Timeouts) -> HttpClient:
        return SocketRequests(connect(name, timeouts), path, framing, name, timeouts, limits, counts)

    return connected
