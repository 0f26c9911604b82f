"""The connections to one upstream. A pooled one may be closed without this side knowing yet: its server
closed it in the moment in which it was taken. A request that meets such a one is made once more, on a new
one.

That is only for a connection that was used before, on which no byte of an answer came (RFC 9110, 9.2.2): a
request that fails otherwise may have been acted on, and a new connection that fails would fail again.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import partial
from typing import Any, Final

import aiohttp
import structlog
from aiohttp.client_proto import ResponseHandler

from server.settings import Timeouts

_log = structlog.get_logger(__name__)


class _Line(ResponseHandler):
    """One connection, and what is known of it."""

    requests = 0
    heard = False
    """A byte has come since the latest request."""

    def data_received(self, data: bytes) -> None:
        self.heard = True
        super().data_received(data)

    @property
    def stale(self) -> bool:
        return self.requests > 1 and not self.heard


_taken: Final[ContextVar[_Line | None]] = ContextVar("taken", default=None)


class _Pool(aiohttp.TCPConnector):
    """Says which connection a request was given."""

    def __init__(self) -> None:
        super().__init__(limit=0)
        self._factory = partial(_Line, loop=self._loop)  # type: ignore[assignment]

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> Any:
        connection = await super().connect(req, traces, timeout)
        line = connection.protocol
        if isinstance(line, _Line):
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
            return await self._pooled.request(method, url, **options)
        except aiohttp.ServerTimeoutError:
            raise
        except aiohttp.ClientConnectionError as error:
            line = _taken.get()
            if line is None or not line.stale:
                raise
            _log.info("upstream.connection_stale", upstream=self._name, reason=type(error).__name__)
        return await self._new.request(method, url, **options)

    async def close(self) -> None:
        """Close them all."""
        await self._pooled.close()
        await self._new.close()


def _session(connector: aiohttp.TCPConnector, timeouts: Timeouts) -> aiohttp.ClientSession:
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, connect=timeouts.connect, sock_connect=timeouts.connect),
    )
    # aiohttp would ask again by itself, but for GET only, and on a pooled connection as well
    session._retry_connection = False
    return session
