"""What the workers of a server know of their routes together, in Redis.

A change is published, and kept in a hash for workers that start later. Nothing is sent for a request that
goes well, unless a session may continue it. Times are sent as seconds from now, and kept by the wall clocks
of the workers' machines. If Redis does not answer, each worker knows what it has found out itself.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

import structlog
from msgspec import Struct
from redis.asyncio import Redis

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_server.redis_clients import REDIS_FAILURES, Script, hasty_client, redis_client
from openresponses_server.tasks import end_tasks, jittered
from openresponses_server.upstreams.routing.routes import RouteTable
from openresponses_server.upstreams.routing.states import LONGEST, PROBE_SECONDS, Change, Route, State

_TIMEOUT: Final = 0.5  # seconds for a call
_POLL: Final = 5.0  # seconds that one wait for a message takes
_PAUSE: Final = 1.0  # seconds until a lost connection is tried again
_CONNECTIONS: Final = 4
_EXPIRES: Final = 3600  # seconds for which the route of a response is kept
_MOST_WAITING: Final = 10_000  # routes of responses that wait to be sent; the oldest are dropped
_PER_CALL: Final = 500
_RELEASE: Final = 'if redis.call("get", KEYS[1]) == ARGV[1] then redis.call("del", KEYS[1]) end'
_log = structlog.get_logger(__name__)
_T = TypeVar("_T")


class _Kept(Struct, array_like=True):
    """A change as it is sent. `left` and `ago` are seconds, `at` seconds of the epoch."""

    worker: str
    upstream: str
    key: int | None
    model: str | None
    state: str
    left: float
    ago: float | None
    cause: str
    at: float


def sent(change: Change, worker: str, now: float, wall: float) -> bytes:
    """The message of a change; `now` is the time of its clock, `wall` seconds of the epoch."""
    ago = None if change.limited_at == -math.inf else now - change.limited_at
    part, left = change.part, change.until - now
    return encode(
        _Kept(worker, part.upstream, part.key, part.model, change.state.value, left, ago, change.cause, wall)
    )


def received(data: bytes, worker: str, now: float, wall: float | None = None) -> Change | None:
    """The change in a message; None if it is this worker's own, or not one. With `wall`, seconds of the
    epoch, the time since it was sent counts."""
    try:
        fields = decode_json(data)
        sender, upstream, key, model, state, left, ago, cause, at = fields
        if sender == worker:
            return None
        since = 0.0 if wall is None else min(max(wall - float(at), 0.0), LONGEST)
        until = now + min(max(float(left), 0.0), LONGEST) - since
        limited_at = -math.inf if ago is None else now - max(float(ago), 0.0) - since
        route = Route(
            str(upstream), key if isinstance(key, int) else None, model if isinstance(model, str) else None
        )
        return Change(route, State(state), until, limited_at, str(cause))
    except (WireError, TypeError, ValueError, KeyError):
        return None


class RedisRoutes:
    """Shares the routes of `table` with the other workers of the Redis at `url`, while the context `going`
    lasts. `failed` is called with the name of each call that failed and a code."""

    def __init__(
        self,
        url: str,
        table: RouteTable,
        failed: Callable[[str, str], None],
        prefix: str = "openresponses-bridge:{routes}",
    ) -> None:
        self._redis: Redis = hasty_client(url, _CONNECTIONS, _TIMEOUT)
        self._release_probe = Script(self._redis, _RELEASE)
        self._listening: Redis = redis_client(url, socket_timeout=_POLL + 5.0, socket_connect_timeout=5.0)
        self._table = table
        self._failed = failed
        self._prefix = prefix
        self._worker = secrets.token_hex(8)
        self._changes: list[Change] = []
        self._released: list[Route] = []
        self._remembered: deque[tuple[str, Route]] = deque(maxlen=_MOST_WAITING)
        self._wake = asyncio.Event()
        self._alone_until = 0.0

    def publish(self, changes: Sequence[Change]) -> None:
        self._changes += changes
        self._wake.set()

    def remember(self, name: str, route: Route) -> None:
        self._remembered.append((name, route))
        self._wake.set()

    async def claim(self, part: Route) -> bool:
        """True if Redis does not answer."""
        name = self._probe(part)
        lease = round(PROBE_SECONDS * 1000)
        reply = await self._ask("claim", lambda: self._redis.set(name, self._worker, nx=True, px=lease), True)
        return bool(reply)

    def release(self, part: Route) -> None:
        self._released.append(part)
        self._wake.set()

    async def recall(self, name: str) -> Route | None:
        raw = await self._ask("recall", lambda: self._redis.get(self._session(name)), None)
        try:
            upstream, key, model = decode_json(raw or b"null")
        except (WireError, TypeError, ValueError):
            return None
        return Route(upstream, key, model)

    @asynccontextmanager
    async def going(self) -> AsyncIterator[None]:
        """Share while the context lasts."""
        self._table.shared = self
        await self._load()
        tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._send_all())]
        try:
            yield
        finally:
            self._table.shared = None
            await end_tasks(tasks)
            await self._send()
            for each in (self._redis, self._listening):
                with suppress(*REDIS_FAILURES):
                    await each.aclose(close_connection_pool=True)

    async def _load(self) -> None:
        """Take what other workers have found out before, and remove what is over."""
        states: dict[bytes, bytes] = await self._ask("load", lambda: self._redis.hgetall(self._states), {})
        over, now, wall = [], self._table.clock(), time.time()
        for field, data in states.items():
            change = received(data, "", now, wall)
            if change is None or (change.until <= now and change.state is not State.OPEN):
                over.append(field)
            else:
                self._table.routes.apply(change, now)
        if over:
            await self._ask("remove", lambda: self._redis.hdel(self._states, *over), 0)

    async def _listen(self) -> None:
        while True:
            try:
                async with self._listening.pubsub(ignore_subscribe_messages=True) as heard:
                    await heard.subscribe(self._channel)
                    await self._load()  # what was published before
                    while True:
                        message = await heard.get_message(timeout=_POLL)
                        if message is not None:
                            self._apply(message["data"])
            except REDIS_FAILURES as error:
                _log.warning("routes.alone", error=type(error).__name__)
            except Exception:
                _log.exception("routes.internal_error")
            await asyncio.sleep(jittered(_PAUSE))

    def _apply(self, data: bytes) -> None:
        now = self._table.clock()
        change = received(data, self._worker, now)
        if change is not None:
            self._table.routes.apply(change, now)

    async def _send_all(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._send()

    async def _send(self) -> None:
        while self._changes or self._released or self._remembered:
            changes, self._changes = self._changes, []
            released, self._released = self._released, []
            remembered = [self._remembered.popleft() for _ in range(min(len(self._remembered), _PER_CALL))]
            now, wall = self._table.clock(), time.time()

            async def call(
                changes: Sequence[Change] = changes,
                released: Sequence[Route] = released,
                remembered: Sequence[tuple[str, Route]] = remembered,
                now: float = now,
                wall: float = wall,
            ) -> None:
                async with self._redis.pipeline(transaction=False) as pipe:
                    for change in changes:
                        data, field = sent(change, self._worker, now, wall), _field(change.part)
                        pipe.publish(self._channel, data)
                        if change.state is State.CLOSED:
                            pipe.hdel(self._states, field)
                        else:
                            pipe.hset(self._states, field, data)
                        if change.state is not State.HALF_OPEN:
                            pipe.delete(self._probe(change.part))
                    for part in released:
                        self._release_probe.queue(pipe, [self._probe(part)], [self._worker])
                    if changes:
                        pipe.expire(self._states, round(2 * LONGEST))
                    for name, route in remembered:
                        pipe.set(self._session(name), encode(route), ex=_EXPIRES)
                    await pipe.execute()

            await self._ask("send", call, None)

    async def _ask(self, name: str, call: Callable[[], Awaitable[Any]], otherwise: _T) -> Any | _T:
        if time.monotonic() < self._alone_until:
            return otherwise  # no request waits for a Redis that has just not answered
        try:
            async with asyncio.timeout(_TIMEOUT):
                return await call()
        except REDIS_FAILURES:
            self._failed(name, "routes_unavailable")
            self._alone_until = time.monotonic() + _PAUSE
            return otherwise

    @property
    def _channel(self) -> str:
        return f"{self._prefix}:changes"

    @property
    def _states(self) -> str:
        return f"{self._prefix}:states"

    def _probe(self, part: Route) -> str:
        return f"{self._prefix}:probe:{_field(part)}"

    def _session(self, name: str) -> str:
        return f"{self._prefix}:session:{name}"


def _field(part: Route) -> str:
    return encode(part).decode()
