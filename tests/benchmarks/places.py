"""The stores and event logs to measure, as far as they are available; their data is deleted afterwards."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
import redis

from openresponses_server.store.base import ResponseStore
from openresponses_server.store.logs.base import EventLog
from openresponses_server.store.logs.file import FileLog
from openresponses_server.store.logs.memory import MemoryLog
from openresponses_server.store.logs.redis import RedisLog
from openresponses_server.store.sql.locations import database_url
from openresponses_server.store.sql.migrate import upgrade
from openresponses_server.store.stores import open_store
from tests.support.services import postgres_database, redis_server

_MOST_RECORDS = 100_000  # more than the records of a run, so that the store in memory drops none


class Services(NamedTuple):
    """The URLs of stores by their names, the URL of Redis with a prefix for its keys, and what is not
    available."""

    stores: dict[str, str]
    redis: str | None
    prefix: str
    folder: Path
    """The folder for event logs in files."""
    absent: list[str]


class Place(NamedTuple):
    """A store with an event log; `alone` marks the first one with this store."""

    name: str
    store: ResponseStore
    log: EventLog
    alone: bool = True


@contextmanager
def services() -> Iterator[Services]:
    """Yield the services; created databases, keys and files are deleted afterwards, even if the measurement
    fails."""
    prefix = f"orb-bench-{uuid.uuid4().hex[:12]}"
    absent: list[str] = []
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="orb-bench-"))
        stores = {"memory": "memory:", "SQLite": f"sqlite:///{folder}/bench.db"}
        if url := _entered(stack, "PostgreSQL", postgres_database(), absent):
            upgrade(database_url(url))
            stores["PostgreSQL"] = url
        if address := _entered(stack, "Redis", redis_server(), absent):
            stack.callback(_forget, address, prefix)
        yield Services(stores, address, prefix, Path(folder) / "logs", absent)


def _entered(
    held: ExitStack, name: str, service: AbstractContextManager[str], absent: list[str]
) -> str | None:
    """The service's URL; None if the service is not available."""
    try:
        return held.enter_context(service)
    except (OSError, psycopg.Error, pytest.skip.Exception, pytest.fail.Exception) as error:
        absent.append(f"{name} is NOT measured: {error}")
        return None


def _forget(address: str, prefix: str) -> None:
    with redis.Redis.from_url(address) as client:
        for key in client.scan_iter(f"{prefix}*"):
            client.delete(key)


@asynccontextmanager
async def opened(found: Services) -> AsyncIterator[list[Place]]:
    """Open each store with an event log in memory; SQLite also with one in files, and the last store, which
    several workers could share, also with one in Redis. Event logs are deleted as soon as they are closed,
    because their content is not measured."""
    async with AsyncExitStack() as stack:
        places = []
        for name, url in found.stores.items():
            store = open_store(url, limit=_MOST_RECORDS)
            stack.push_async_callback(store.close)
            places.append(Place(name, store, MemoryLog(linger=0)))
            if name == "SQLite":
                files = FileLog(found.folder, linger=0)
                stack.push_async_callback(files.shutdown)
                places.append(Place(f"{name} + files", store, files, alone=False))
        if found.redis is not None:
            shared = RedisLog(found.redis, found.prefix, linger=0.1)
            stack.push_async_callback(shared.shutdown)
            places.append(Place(f"{name} + Redis", store, shared, alone=False))
        yield places
