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

from openresponses_server.settings import Timeouts
from openresponses_server.upstreams.causes import cause_of
from openresponses_server.upstreams.http1.connection import Answer, Connection
from openresponses_server.upstreams.http1.head import Origin, Place, head_of, place_of
from openresponses_server.upstreams.http1.proxies import refused
from openresponses_server.upstreams.http1.reaching import Reaching
from openresponses_server.upstreams.http1.turns import Turns
from openresponses_server.upstreams.http1.ways import Way

_WHO_ASKS: Final = 407  # Proxy Authentication Required (RFC 9110, 15.5.8)
_IDLE: Final = 15.0  # seconds after which a connection that nobody needs is closed
_log = structlog.get_logger(__name__)


class Connections:
    """Made in the event loop that they are used in; `name` is the upstream's, for the log, `way` how it is
    reached: without one as the environment says."""

    def __init__(self, name: str, timeouts: Timeouts, way: Way | None = None) -> None:
        self._name = name
        self._way = way or Way()
        self._timeouts = timeouts
        self._loop = asyncio.get_running_loop()
        self._turns = Turns()
        self._reaching = Reaching(self._way)
        self._open: set[Connection] = set()
        self._free: dict[Origin, list[Connection]] = {}
        self._timer: asyncio.TimerHandle | None = None
        if self._way.trust.verify is False:
            _log.warning("upstream.certificate_not_verified", upstream=name)

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], data: bytes = b""
    ) -> Answer:
        """The answer, when its head is here. Raises OSError."""
        place = self._way.place(place_of(url))
        head = head_of(method, place, headers, len(data))
        pooled = self._pooled(place.origin)
        if pooled is not None:
            try:
                return self._of_upstream(place, await pooled.ask(head, data, self._timeouts.first_byte))
            except TimeoutError:
                raise
            except OSError as error:
                if not pooled.is_stale:
                    raise
                _log.info("upstream.connection_stale", upstream=self._name, reason=cause_of(error))
        new = await self._connected(place.origin)
        return self._of_upstream(place, await new.ask(head, data, self._timeouts.first_byte))

    def _of_upstream(self, place: Place, answer: Answer) -> Answer:
        """The same answer, unless it is a proxy's own that asks who we are."""
        if answer.status == _WHO_ASKS and not place.origin.tls:
            proxy = self._way.proxy_of(place.origin)
            if proxy is not None:
                answer.close()
                raise refused(proxy, answer.status, place.target)
        return answer

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
