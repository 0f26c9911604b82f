"""Messages between workers that ask the one that makes a response to cancel it. They are sent through the
event log's Redis, or the pipes of its folder; workers that share neither don't receive each other's messages.

Each process listens on a channel of its own, so that a message costs the same however many there are, and in
Redis on one for all, which workers of an earlier version send and listen on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from openresponses_server.store.logs.base import EventLog, LogError
from openresponses_server.store.logs.file import FileLog
from openresponses_server.tasks import jittered

_CANCEL: Final = "cancel"
_CHANNEL: Final = "openresponses-bridge:cancel"
_PAUSE: Final = 1.0  # seconds until a lost connection is tried again
_TIMEOUT: Final = 1.0  # seconds that sending a message may take
_POLL: Final = 5.0  # seconds that one wait for a message takes
_log = structlog.get_logger(__name__)

OnCancel = Callable[[str], None]


class Signals(Protocol):
    """One per worker."""

    async def cancel(self, response_id: str, worker: str) -> bool:
        """Ask the worker that makes this response, by the name in its lease, to cancel it. Returns whether
        the message could be sent."""
        ...

    async def listen(self, on_cancel: OnCancel) -> None:
        """Receive the messages of other workers, until cancelled."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


class NoSignals:
    """For a single worker, which has no others to ask."""

    async def cancel(self, response_id: str, worker: str) -> bool:
        return False

    async def listen(self, on_cancel: OnCancel) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        return None


class PipeSignals:
    """Messages to the processes of this machine that share the folder of this log."""

    def __init__(self, log: FileLog) -> None:
        self._log = log

    async def cancel(self, response_id: str, worker: str) -> bool:
        return self._log.pipes.send(_process_of(worker), _CANCEL, response_id)

    async def listen(self, on_cancel: OnCancel) -> None:
        self._log.pipes.handlers[_CANCEL] = lambda words: on_cancel(*words)
        while True:
            try:
                self._log.listen()
                await asyncio.Event().wait()
            except LogError as error:
                _log.warning("signals.failed", reason=error.in_full)
            await asyncio.sleep(jittered(_PAUSE))

    async def close(self) -> None:
        return None


class RedisSignals:
    """Publishes and subscribes in the Redis at `url`, as this `process`."""

    def __init__(self, url: str, process: str) -> None:
        from openresponses_server.redis_clients import redis_client  # it takes a while to load

        self._process = process
        self._redis = redis_client(url, socket_timeout=_POLL + 5.0, socket_connect_timeout=5.0)

    async def cancel(self, response_id: str, worker: str) -> bool:
        from openresponses_server.redis_clients import REDIS_FAILURES

        try:
            async with asyncio.timeout(_TIMEOUT):
                return bool(
                    await self._redis.publish(_channel_of(worker), response_id)
                    or await self._redis.publish(_CHANNEL, response_id)
                )
        except REDIS_FAILURES:
            return False

    async def listen(self, on_cancel: OnCancel) -> None:
        from openresponses_server.redis_clients import REDIS_FAILURES

        while True:
            try:
                async with self._redis.pubsub(ignore_subscribe_messages=True) as heard:
                    await heard.subscribe(_CHANNEL, _channel_of(self._process))
                    while True:
                        message = await heard.get_message(timeout=_POLL)
                        if message is not None:
                            _deliver(on_cancel, message["data"])
            except REDIS_FAILURES as error:
                _log.warning("signals.failed", error=type(error).__name__)
            except Exception:
                _log.exception("signals.internal_error")
            await asyncio.sleep(jittered(_PAUSE))

    async def close(self) -> None:
        await self._redis.aclose()


def _channel_of(worker: str) -> str:
    """The channel of the process in the name of a worker."""
    return f"{_CHANNEL}:{_process_of(worker)}"


def _process_of(worker: str) -> str:
    return worker.partition("-")[0]


def _deliver(on_cancel: OnCancel, response_id: bytes) -> None:
    try:
        on_cancel(response_id.decode())
    except Exception:  # the messages for other responses must still be received
        _log.exception("signals.internal_error")


def open_signals(log: EventLog, redis: str | None, process: str) -> Signals:
    """The signals of this process beside this event log; `redis` is the address of its Redis, if it has
    one."""
    if isinstance(log, FileLog):
        return PipeSignals(log)
    return NoSignals() if redis is None else RedisSignals(redis, process)
