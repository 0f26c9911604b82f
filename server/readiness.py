"""Whether what the settings name, the session store and the event log, can be used."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

from server.errors import Outage
from server.event_logs.base import EventLog, LogError
from server.event_logs.logs import open_event_log
from server.sessions.base import NO_ID, ResponseStore
from server.sessions.errors import StoreError
from server.sessions.stores import build_store
from server.settings import Settings

_STORE_PATIENCE: Final = 6.0  # seconds to wait for an answer; longer than a connection may take
_LOG_PATIENCE: Final = 1.0


async def check_store(store: ResponseStore, patience: float | None = _STORE_PATIENCE) -> None:
    """Open the store, if it is not open yet, and ask it for something. Raises StoreError."""
    try:
        async with asyncio.timeout(patience):
            await store.get(NO_ID)
    except TimeoutError as error:
        raise StoreError(StoreError.UNAVAILABLE, "The session store does not answer.") from error


async def check_log(log: EventLog) -> None:
    """Ask whether the event log's server answers. Raises LogError."""
    try:
        async with asyncio.timeout(_LOG_PATIENCE):
            await log.check()
    except TimeoutError as error:
        raise LogError from error


async def check_before_start(settings: Settings) -> list[Outage]:
    """What is out now and may come back. Raises Outage for what no waiting mends. A store that has to be
    brought up to date is waited for."""
    store, log = build_store(settings), open_event_log(settings.event_log)
    try:
        found = [await _outage(check_store(store, None)), await _outage(check_log(log))]
    finally:
        await store.close()
        await log.shutdown()
    return [each for each in found if each is not None]


async def _outage(check: Awaitable[None]) -> Outage | None:
    try:
        await check
    except Outage as outage:
        if outage.lasting:
            raise
        return outage
    return None
