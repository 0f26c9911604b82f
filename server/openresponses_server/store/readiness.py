"""Whether the session store and the event log of the settings can be used: checked all the time in the
background, so that a probe is answered at once, however slow they are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import structlog

from openresponses_server.errors import Outage
from openresponses_server.settings import Settings
from openresponses_server.store.base import NO_ID, ResponseStore, StoreError, no_answer
from openresponses_server.store.logs.base import EventLog, LogError
from openresponses_server.store.sql.sqlite_file import file_in_order
from openresponses_server.store.stores import build_store, open_event_log
from openresponses_server.tasks import jittered

_INTERVAL: Final = 1.0  # seconds between two checks
_TIMEOUT: Final = 3.0  # seconds after which a store that does not answer counts as out
_LONGEST: Final = 15.0  # seconds for one check: longer than the wait for a connection or a lock
_STOP_TIMEOUT: Final = 1.0  # seconds for checks that are cancelled at the end
_log = structlog.get_logger(__name__)


class OutageCause(NamedTuple):
    """Why a store or a log is out, as its Outage says it."""

    code: str
    message: str
    """For anyone: a probe is answered without a key."""
    reason: str
    """The message with its details, such as the address, for the log."""

    @classmethod
    def of(cls, outage: Outage) -> OutageCause:
        """Return the outage of this error."""
        return cls(outage.code, outage.message, outage.in_full)


_SILENT: Final = OutageCause.of(no_answer())
_UNKNOWN: Final = OutageCause.of(
    StoreError(StoreError.UNAVAILABLE, "The session store has not answered yet.")
)


class StoreMonitor:
    """Checks a store and a log every `interval` seconds while `going` lasts. A store that has not answered
    for `timeout` seconds counts as out."""

    def __init__(
        self, store: ResponseStore, log: EventLog, interval: float = _INTERVAL, timeout: float = _TIMEOUT
    ) -> None:
        self._store = store
        self._log = log
        self._interval = interval
        self._timeout = timeout
        self._asked_at: float | None = None
        self._store_outage: OutageCause | None = _UNKNOWN
        self.log_outage: OutageCause | None = None
        """Why the event log is out; None while it answers."""
        self._unseen = 2
        self._seen = asyncio.Event()

    @property
    def store_outage(self) -> OutageCause | None:
        """Why the store is out; None while it accepts writes."""
        waited = 0.0 if self._asked_at is None else time.monotonic() - self._asked_at
        return self._store_outage or (_SILENT if waited > self._timeout else None)

    @asynccontextmanager
    async def going(self) -> AsyncIterator[None]:
        """Check both from now on, each in its own task."""
        looks = [asyncio.create_task(self._look(each)) for each in (self._look_at_store, self._look_at_log)]
        enough = asyncio.get_running_loop().call_later(self._timeout, self._seen.set)
        try:
            yield
        finally:
            enough.cancel()
            for look in looks:
                look.cancel()
            await asyncio.wait(looks, timeout=_STOP_TIMEOUT)

    async def seen(self) -> None:
        """Wait until the first checks are done, or have taken too long."""
        await self._seen.wait()

    async def _look(self, at: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await at()
            except Exception:
                _log.exception("readiness.internal_error")
            self._unseen -= 1
            if not self._unseen:
                self._seen.set()
            await asyncio.sleep(jittered(self._interval))

    async def _look_at_store(self) -> None:
        before = self._store_outage
        self._asked_at = time.monotonic()
        try:
            async with asyncio.timeout(_LONGEST):
                await self._store.probe()
            self._store_outage = None
        except StoreError as error:
            self._store_outage = OutageCause.of(error)
        except TimeoutError:
            self._store_outage = _SILENT
        finally:
            self._asked_at = None
        if before is not _UNKNOWN:
            _report("store", before, self._store_outage)

    async def _look_at_log(self) -> None:
        before = self.log_outage
        try:
            await self._log.check()
            self.log_outage = None
        except LogError as error:
            self.log_outage = OutageCause.of(error)
        _report("event_log", before, self.log_outage)


def _report(part: str, before: OutageCause | None, now: OutageCause | None) -> None:
    """Log that the part went out or came back, with the address that a probe is not shown."""
    if now is None and before is not None:
        _log.warning("readiness.changed", **{part: "ready"})
    elif now is not None and before is None:
        _log.warning("readiness.changed", **{part: now.code}, reason=now.reason)


async def check_before_start(settings: Settings) -> list[Outage]:
    """Return the outages that may end by themselves. Raises Outage for one that waiting does not end. A store
    that must be upgraded is waited for."""
    outages = [await _outage(_check_store(settings)), await _outage(_check_log(settings))]
    return [each for each in outages if each is not None]


async def _check_store(settings: Settings) -> None:
    if file_in_order(settings.store) is not None:
        return
    store = build_store(settings)
    try:
        await store.get(NO_ID)
    finally:
        await store.close()


async def _check_log(settings: Settings) -> None:
    log = open_event_log(settings.event_log, build_store(settings).folder)
    try:
        await log.check()
    finally:
        await log.shutdown()


async def _outage(check: Awaitable[object]) -> Outage | None:
    try:
        await check
    except Outage as outage:
        if outage.permanent:
            raise
        return outage
    return None
