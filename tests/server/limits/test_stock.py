"""Stored bytes of each key."""

import asyncio
from typing import Any

import pytest

from openresponses_server.errors import HttpError
from openresponses_server.limits.quotas import Stock
from openresponses_server.store.base import ResponseStore
from openresponses_server.store.memory import MemoryStore
from tests.support.failing_store import FailingStore, as_store
from tests.support.stores import messages, record


async def test_s8_a_key_that_has_as_many_bytes_as_it_may_stores_nothing_more() -> None:
    store = MemoryStore()
    await store.put(record("r", owner="k", input=messages("x" * 2000)))
    stock = Stock(store.stock, 3000)
    stock.check("k", 2999)  # not measured yet
    await stock.measure()
    stock.check("k", 100)
    with pytest.raises(HttpError) as refused:
        stock.check("k", 1000)
    assert (refused.value.http_status, refused.value.code) == (429, "stored_bytes_exceeded")
    assert refused.value.headers == {"retry-after": "60", "x-should-retry": "false"}
    stock.check("l", 2999)
    await store.delete("r", "k")
    await stock.measure()
    stock.check("k", 2999)


async def test_s8_what_is_stored_since_the_last_measurement_counts() -> None:
    store = FailingStore()
    stock = Stock(as_store(store).stock, 3000)
    await stock.measure()
    stock.grow("k", 2000)
    stock.grow("k", 1000)
    with pytest.raises(HttpError):
        stock.check("k")
    store.down.add("stock")
    await stock.measure()
    assert stock.of("k") == 3000  # nothing is known anew
    store.down.clear()
    await stock.measure()
    stock.check("k")


async def test_measuring_takes_a_small_part_of_the_time() -> None:
    class SlowStore(MemoryStore):
        async def stock(self) -> dict[str, int]:
            await asyncio.sleep(0.1)
            return {}

    store: ResponseStore = SlowStore()
    assert await Stock(store.stock, 1, interval=0.01).measure() >= 2.0
    measured: list[Any] = []

    class NotedStore(MemoryStore):
        async def stock(self) -> dict[str, int]:
            measured.append(1)
            return {}

    keeping = asyncio.create_task(Stock(NotedStore().stock, 1, interval=0.01).measure_repeatedly())
    async with asyncio.timeout(60):
        while len(measured) < 3:
            await asyncio.sleep(0.01)
    keeping.cancel()
