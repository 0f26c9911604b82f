"""Calls to Redis: made again while it does not answer, for a while, and its errors as ours."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from redis.exceptions import BusyLoadingError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeout

from openresponses_server.store.logs.base import LogError

T = TypeVar("T")

_NOT_ABOVE: Final = "equal or smaller than"
_OUTAGES: Final = (RedisConnectionError, RedisTimeout, BusyLoadingError, OSError)


class NotAbove(Exception):
    """Redis refused an entry whose id is not above that of the last one."""


class Calls:
    """Without answer from Redis a call is made again for `patience` seconds before it is a LogError. Each
    time, `on_outage` is called."""

    def __init__(self, patience: float, on_outage: Callable[[], None]) -> None:
        self._patience = patience
        self._on_outage = on_outage

    async def __call__(self, call: Callable[[], Awaitable[T]]) -> T:
        """What the call gives; it can be made twice. Raises LogError and NotAbove."""
        deadline = time.monotonic() + self._patience
        pause = 0.02
        while True:
            try:
                return await call()
            except _OUTAGES as error:
                self._on_outage()
                if time.monotonic() + pause > deadline:
                    raise LogError from error
            except RedisError as error:
                if isinstance(error, ResponseError) and _NOT_ABOVE in str(error):
                    raise NotAbove from error
                raise LogError("The event log failed.") from error
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)
