"""The connections to one upstream. A pooled one may be closed without this side knowing yet: its server
closed it in the moment in which it was taken. A request that meets such a one is made once more, on a new
one.

That is only for a connection that was used before, on which no byte of an answer came (RFC 9110, 9.2.2): a
request that fails otherwise may have been acted on, and a new connection that fails would fail again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, Protocol

import aiohttp
import structlog
from aiohttp.client_proto import ResponseHandler

from server.settings import Timeouts
from server.upstreams.turns import Turns

_PIECE: Final = 256 * 1024  # bytes of a body that are written at once
_log = structlog.get_logger(__name__)


class Content(Protocol):
    """An answer's body, as aiohttp's `StreamReader` gives it."""

    async def readany(self) -> bytes: ...

    def read_nowait(self) -> bytes: ...

    def set_exception(self, exc: BaseException) -> None: ...


class Answer(Protocol):
    """The part of aiohttp's `ClientResponse` that an upstream uses."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def content(self) -> Content: ...

    def close(self) -> None: ...

    async def __aenter__(self) -> Any: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Requests(Protocol):
    """What makes requests: connections, or what stands before or instead of them."""

    async def request(self, method: str, url: str, **options: Any) -> Answer: ...

    async def close(self) -> None: ...


Connect = Callable[[str, Timeouts], Requests]
"""What makes the requests of an upstream with this name."""


class Line(ResponseHandler):
    """One connection, and what is known of it. `turns` are those at its event loop."""

    turns: Turns
    requests = 0
    heard = False
    """A byte has come since the latest request."""
    came: Callable[[int], None] | None = None
    """Called with the number of bytes that have come, or 0 when nothing more will."""

    def data_received(self, data: bytes) -> None:
        self.heard = True
        super().data_received(data)
        if self.came is not None:
            self.came(len(data))

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if self.came is not None:
            self.came(0)

    @property
    def stale(self) -> bool:
        return self.requests > 1 and not self.heard


def line_of(answer: Answer) -> Line | None:
    """The connection on which an answer comes; None when all of it has come, and when it does not come on one
    of these."""
    if not isinstance(answer, aiohttp.ClientResponse) or answer.connection is None:
        return None
    line = answer.connection.protocol
    return line if isinstance(line, Line) else None


def has_come(answer: Answer) -> bool:
    """All of it is here, to be read."""
    return isinstance(answer, aiohttp.ClientResponse) and answer.content.is_eof()


def is_read(answer: Answer) -> bool:
    """All of it has been read."""
    return isinstance(answer, aiohttp.ClientResponse) and answer.content.at_eof()


_taken: Final[ContextVar[Line | None]] = ContextVar("taken", default=None)


class _Pool(aiohttp.TCPConnector):
    """Says which connection a request was given."""

    def __init__(self) -> None:
        super().__init__(limit=0)
        self._turns = Turns()
        self._factory = self._made  # type: ignore[assignment]

    def _made(self) -> Line:
        line = Line(loop=self._loop)
        line.turns = self._turns
        return line

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> Any:
        connection = await super().connect(req, traces, timeout)
        line = connection.protocol
        if isinstance(line, Line):
            line.requests += 1
            line.heard = False
            _taken.set(line)
        return connection


class Connections:
    """Made in the event loop that they are used in; `name` is the upstream's, for the log."""

    def __init__(self, name: str, timeouts: Timeouts) -> None:
        self._name = name
        self._pooled = _session(_Pool(), timeouts)
        self._new = _session(aiohttp.TCPConnector(limit=0, force_close=True), timeouts)

    async def request(self, method: str, url: str, **options: Any) -> aiohttp.ClientResponse:
        """As a session's: `options` are those of aiohttp. A body has to be bytes. Raises aiohttp's errors."""
        _taken.set(None)
        try:
            return await self._pooled.request(method, url, **_in_pieces(options))
        except aiohttp.ServerTimeoutError:
            raise
        except aiohttp.ClientConnectionError as error:
            line = _taken.get()
            if line is None or not line.stale:
                raise
            _log.info("upstream.connection_stale", upstream=self._name, reason=type(error).__name__)
        return await self._new.request(method, url, **_in_pieces(options))

    async def close(self) -> None:
        """Close them all."""
        await self._pooled.close()
        await self._new.close()


def _in_pieces(options: dict[str, Any]) -> dict[str, Any]:
    """The options for one attempt: a large body at once would hold up the event loop while it is copied to
    the system (40 MB: 0.3 s)."""
    body = options.get("data", b"")
    if len(body) <= _PIECE:
        return options
    headers = {**options["headers"], "content-length": str(len(body))}
    return {**options, "data": _pieces(body), "headers": headers}


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), _PIECE):
        yield body[start : start + _PIECE]


def _session(connector: aiohttp.TCPConnector, timeouts: Timeouts) -> aiohttp.ClientSession:
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, connect=timeouts.connect, sock_connect=timeouts.connect),
    )
    # aiohttp would ask again by itself, but for GET only, and on a pooled connection as well
    session._retry_connection = False
    return session
