"""The entries of a log's stream in Redis.

The id of an entry is made from the number of its last event, so that Redis finds a reader's position and
recognises a repeated append. The first entry marks the log as open, the last one as closed or discarded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

from redis.exceptions import BusyLoadingError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeout

from openresponses_server.store.frames import Frames, joined
from openresponses_server.store.logs.base import CHUNK_BYTES, LogError
from openresponses_server.tasks import jittered

Entry = tuple[bytes, dict[bytes, bytes]]
"""An entry's id and fields, as Redis answers."""

OPENED: Final = b"0-1"
CLOSED: Final = b"18446744073709551615-0"
"""An id above that of every event: nothing can be appended after it."""

MARK: Final = b"m"
"""The field, without a value, of an entry that marks the log as open or closed."""
DISCARD_MARK: Final = b"g"
"""The field of an entry that marks a discarded log."""

OPEN: Final = f"""
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if last and last[1] ~= '{OPENED.decode()}' then
  if last[2][1] == '{DISCARD_MARK.decode()}' then
    return 0
  end
  redis.call('DEL', KEYS[1])
  last = nil
end
if not last then
  redis.call('XADD', KEYS[1], '{OPENED.decode()}', '{MARK.decode()}', '')
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
"""
"""Opens the log KEYS[1] anew, to expire in ARGV[1] milliseconds. Returns 0 if it was discarded."""

FIRST: Final = b"f"
DATA: Final = b"d"
ENTRY_ID: Final = b"%d-0"
"""The format of an entry's id, from the number of its last event plus one, since 0-0 is not a valid id."""
_HIGHEST: Final = 2**63


def entry_id(sequence: int) -> bytes:
    """Return the id of the entry whose last event has this number, which a reader may have invented."""
    return ENTRY_ID % (min(sequence, _HIGHEST) + 1)


def place_after(sequence: int) -> bytes:
    """Return the id after which the events that follow this one are read; the beginning if the number is
    below 0."""
    return OPENED if sequence < 0 else entry_id(sequence)


def last_number(entry: bytes) -> int:
    """Return the number of the last event in the entry with this id; below 0 for the opening mark."""
    return int(entry.partition(b"-")[0]) - 1


def fields_of(frames: Frames) -> dict[Any, Any]:
    """Return the fields of an entry for these frames."""
    return {FIRST: frames.first, DATA: frames.data}


def is_discard_mark(entry: Entry) -> bool:
    """Return True if the entry marks a discarded log."""
    return DISCARD_MARK in entry[1]


def frames_in(entries: Iterable[Entry]) -> list[Frames]:
    """Join consecutive entries up to a size; marks are left out."""
    batches: list[Frames] = []
    run: list[Frames] = []
    size = 0
    for at, fields in entries:
        if DATA not in fields:
            continue
        frames = Frames(int(fields[FIRST]), last_number(at), fields[DATA])
        if run and (size > CHUNK_BYTES or frames.first != run[-1].last + 1):
            batches += _as_one(run)
            run, size = [], 0
        run.append(frames)
        size += len(frames.data)
    return batches + _as_one(run)


def _as_one(run: list[Frames]) -> list[Frames]:
    together = joined(run)
    return [] if together is None else [together]


T = TypeVar("T")

_NOT_ABOVE: Final = "equal or smaller than"
_OUTAGES: Final = (RedisConnectionError, RedisTimeout, BusyLoadingError, OSError)


class NotAbove(Exception):
    """Redis refused an entry whose id is not above that of the last one."""


class Calls:
    """Calls to Redis. A call that Redis does not answer is retried for `timeout` seconds before it is a
    LogError; `on_outage` is called for each retry."""

    def __init__(self, timeout: float, on_outage: Callable[[], None]) -> None:
        self._timeout = timeout
        self._on_outage = on_outage

    async def __call__(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return the result of the call, which may be made twice. Raises LogError and NotAbove."""
        deadline = time.monotonic() + self._timeout
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
            await asyncio.sleep(jittered(pause))
            pause = min(pause * 2, 1.0)
