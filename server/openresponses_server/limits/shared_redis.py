"""The Redis that workers share for the limits, as each worker calls it: with a short timeout, and after a
call that failed not again until a heartbeat is answered.

Its scripts are atomic and can be repeated, and every key that they write expires.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

import structlog
from redis.asyncio import Redis

from openresponses_server.redis_clients import REDIS_FAILURES, hasty_client
from openresponses_server.tasks import retrieve_exception

NOW: Final = "local t = redis.call('TIME'); local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"
"""The beginning of a script: `now`, in milliseconds, by Redis' clock, so that those of workers do not
matter."""

T = TypeVar("T")

_CONNECTIONS: Final = 16
_UNAVAILABLE: Final = "limits_unavailable"
_log = structlog.get_logger(__name__)


class SharedRedis:
    """The Redis at `url`, with keys that begin with `prefix`.

    `failed` is called with the name of each call that failed and a code. Redis has `timeout` seconds for each
    call. A worker sends a heartbeat every `heartbeat` seconds, and counts as alive for `lease` seconds after
    that.
    """

    def __init__(
        self,
        url: str,
        failed: Callable[[str, str], None],
        prefix: str = "openresponses-bridge:{limits}",
        *,
        timeout: float = 0.5,
        heartbeat: float = 1.0,
        lease: float = 4.0,
    ) -> None:
        self.client: Redis = hasty_client(url, _CONNECTIONS, timeout)
        self.prefix = prefix
        self.worker = secrets.token_hex(8)
        """This worker's name there."""
        self.heartbeat = heartbeat
        self.lease = round(lease * 1000)
        """In milliseconds."""
        self.alone = True
        """Redis does not answer, or has not yet."""
        self._failed = failed
        self._timeout = timeout
        self._calls: set[asyncio.Future[Any]] = set()

    async def ask(self, name: str, call: Callable[[], Awaitable[T]], *, always: bool = False) -> T | None:
        """Call the method of this name and return its result; None if it fails or takes too long. While this
        worker is `alone`, nothing is called that is not `always`."""
        if self.alone and not always:
            return None
        pending = asyncio.ensure_future(call())
        self._calls.add(pending)
        pending.add_done_callback(self._calls.discard)
        pending.add_done_callback(retrieve_exception)
        # In a task of its own: the client may mistake a cancellation for its own timeout, and the caller must
        # be able to stop waiting.
        done, _ = await asyncio.wait([pending], timeout=self._timeout)
        if not done:
            pending.cancel()
        error = pending.exception() if done and not pending.cancelled() else TimeoutError()
        if error is None:
            return pending.result()
        if not isinstance(error, REDIS_FAILURES):
            raise error
        self._failed(name, _UNAVAILABLE)
        if not self.alone:
            _log.warning("limits.alone", call=name, error=type(error).__name__)
        self.alone = True
        return None

    def answered(self) -> None:
        """Redis has answered a heartbeat."""
        if self.alone:
            _log.info("limits.shared")
        self.alone = False

    async def reconnect(self) -> None:
        """Use other connections from now on: those to a Redis that stopped are useless."""
        with suppress(*REDIS_FAILURES):
            await self.client.connection_pool.disconnect(inuse_connections=False)

    async def close(self) -> None:
        """End the calls that nobody waits for, since they would connect again, and close the connections."""
        for pending in self._calls:
            pending.cancel()
        if self._calls:
            await asyncio.wait(self._calls, timeout=self._timeout)
        with suppress(*REDIS_FAILURES):
            await self.client.aclose(close_connection_pool=True)
