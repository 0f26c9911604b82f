"""The connections to one upstream. A pooled one may be closed without this side knowing yet: its server
closed it in the moment in which it was taken. A request that meets such a one is made once more, on a new
one.

That is only for a connection that was used before, on which no byte of an answer came (RFC 9110, 9.2.2): a
request that fails otherwise may have been acted on, and a new connection that fails would fail again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

import structlog

from server.settings import Timeouts
from server.upstreams.http1.connection import Answer, Connection
from server.upstreams.http1.head import Origin, head_of, place_of
from server.upstreams.http1.reaching import Reaching
from server.upstreams.turns import Turns

_IDLE: Final = 15.0  # seconds after which a connection that nobody needs is closed
_log = structlog.get_logger(__name__)


class Connections:
    """Made in the event loop that they are used in; `name` is the upstream's, for the log."""

    def __init__(self, name: str, timeouts: Timeouts) -> None:
        self._name = name
        self._timeouts = timeouts
        self._loop = asyncio.get_running_loop()
        self._turns = Turns()
        self._reaching = Reaching()
        self._open: set[Connection] = set()
        self._free: dict[Origin, list[Connection]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], data: bytes = b""
    ) -> Answer:
        """The answer, when its head is here. Raises OSError."""
        place = place_of(url)
        head = head_of(method, place, headers, len(data))
        pooled = self._pooled(place.origin)
        if pooled is not None:
            try:
                return await pooled.ask(head, data, self._timeouts.first_byte)
            except TimeoutError:
                raise
            except OSError as error:
                if not pooled.is_stale:
                    raise
                _log.info("upstream.connection_stale", upstream=self._name, reason=type(error).__name__)
        new = await self._connected(place.origin)
        return await new.ask(head, data, self._timeouts.first_byte)

    async def close(self) -> None:
        """Close them all."""
        if self._timer is not None:
            self._timer.cancel()
        self._reaching.close()
        for connection in list(self._open):
            connection.abort()
        await asyncio.sleep(0)  # in which the system closes them

    def _pooled(self, origin: Origin) -> Connection | None:
        """The one that was used last, so that the others can go."""
        free = self._free.get(origin)
        while free:
            connection = free.pop()
            if not connection.is_closing:
                return connection
        return None

    async def _connected(self, origin: Origin) -> Connection:
        made = partial(Connection, self._turns, partial(self._is_free, origin), self._open.discard)
        async with asyncio.timeout(self._timeouts.connect):
            connection = await self._reaching.connect(origin, made)
        if not connection.is_closing:
            self._open.add(connection)
        return connection

    def _is_free(self, origin: Origin, connection: Connection) -> None:
        connection.free_since = self._loop.time()
        self._free.setdefault(origin, []).append(connection)
        if self._timer is None:
            self._timer = self._loop.call_later(_IDLE, self._look)

    def _look(self) -> None:
        """Close those that nobody has needed for a while."""
        now, wait = self._loop.time(), None
        for origin, free in list(self._free.items()):
            idle = [each for each in free if now - each.free_since >= _IDLE or each.is_closing]
            for connection in idle:
                connection.abort()
                free.remove(connection)
            if free:
                wait = min(each.free_since for each in free) + _IDLE - now
            else:
                del self._free[origin]
        self._timer = None if wait is None else self._loop.call_later(max(wait, 1.0), self._look)
