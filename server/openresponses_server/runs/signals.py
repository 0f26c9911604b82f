"""Messages between workers that ask the one that makes a response to cancel it. They are sent through the
event log's Redis; workers that share none don't receive each other's messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog

_CHANNEL: Final = "openresponses-bridge:cancel"
_PAUSE: Final = 1.0  # seconds until a lost connection is tried again
_TIMEOUT: Final = 1.0  # seconds that sending a message may take
_POLL: Final = 5.0  # seconds that one wait for a message takes
_log = structlog.get_logger(__name__)

OnCancel = Callable[[str], None]


class Signals(Protocol):
    """One per worker."""

    async def cancel(self, response_id: str) -> bool:
        """Ask the worker that makes this response to cancel it; whether the message could be sent."""
        ...

    async def listen(self, on_cancel: OnCancel) -> None:
        """Receive the messages of other workers, until cancelled."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


class NoSignals:
    """For a single worker, which has no others to ask."""

    async def cancel(self, response_id: str) -> bool:
        return False

    async def listen(self, on_cancel: OnCancel) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        return None


class RedisSignals:
    """Publishes and subscribes in the Redis at `url`."""

    def __init__(self, url: str) -> None:
        from openresponses_server.redis_clients import redis_client  # it takes a while to load

        self._redis = redis_client(url, socket_timeout=_POLL + 5.0, socket_connect_timeout=5.0)

    async def cancel(self, response_id: str) -> bool:
        from redis.exceptions import RedisError

        try:
            async with asyncio.timeout(_TIMEOUT):
                return bool(await self._redis.publish(_CHANNEL, response_id))
        except (RedisError, OSError, TimeoutError):
            return False

    async def listen(self, on_cancel: OnCancel) -> None:
        from redis.exceptions import RedisError

        while True:
            try:
                async with self._redis.pubsub(ignore_subscribe_messages=True) as heard:
                    await heard.subscribe(_CHANNEL)
                    while True:
                        message = await heard.get_message(timeout=_POLL)
                        if message is not None:
                            _deliver(on_cancel, message["data"])
            except (RedisError, OSError) as error:
                _log.warning("signals.failed", error=type(error).__name__)
            except Exception:
                _log.exception("signals.internal_error")
            await asyncio.sleep(_PAUSE)

    async def close(self) -> None:
        await self._redis.aclose()


def _deliver(on_cancel: OnCancel, response_id: bytes) -> None:
    try:
        on_cancel(response_id.decode())
    except Exception:  # the messages for other responses must still be received
        _log.exception("signals.internal_error")


def open_signals(event_log: str) -> Signals:
    """The signals for the event log at this address."""
    return RedisSignals(event_log) if event_log.startswith("redis") else NoSignals()
