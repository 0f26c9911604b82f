"""Records that can't be read back: each is reported as such, and keeps no other waiting (law S1)."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text

from openresponses_bridge.protocol.input_items import MessageParam
from openresponses_server.store.base import NOBODY, Lease, ResponseStore, StoreError
from tests.support.stores import Place, record

Look = Callable[[ResponseStore], Awaitable[Any]]
BROKEN = [b'{"broken":', b"", b"[]", b"\xff", b"{}"]


def overwrite(place: Place, table: str, column: str, response_id: str, data: bytes) -> None:
    """What a store did not write."""
    engine = create_engine(make_url(place.url))
    key = "id" if table == "responses" else "response_id"
    with engine.begin() as connection:
        statement = text(f"UPDATE {table} SET {column} = :data WHERE {key} = :id")
        connection.execute(statement, {"data": data, "id": response_id})
    engine.dispose()


def column_of(place: Place, column: str, response_id: str) -> Any:
    engine = create_engine(make_url(place.url))
    with engine.connect() as connection:
        value = connection.scalar(text(f"SELECT {column} FROM responses WHERE id = :id"), {"id": response_id})
    engine.dispose()
    return value


@pytest.fixture
def store(shared_place: Place) -> ResponseStore:
    return shared_place.open()


async def is_reported(call: Awaitable[Any]) -> None:
    with pytest.raises(StoreError, match="resp_bad") as sent:
        await call
    assert (sent.value.http_status, sent.value.code) == (500, "store_corrupt")
    assert (sent.value.error_type, sent.value.param) == ("server_error", None)


@pytest.mark.parametrize("data", BROKEN, ids=repr)
async def test_response_that_is_unreadable_is_reported(
    store: ResponseStore, shared_place: Place, data: bytes
) -> None:
    await store.put(record("resp_bad"))
    await store.put(record("resp_next", "resp_bad"))
    overwrite(shared_place, "responses", "response", "resp_bad", data)
    await is_reported(store.get("resp_bad"))
    await is_reported(store.chain("resp_next"))
    assert await store.delete("resp_bad")


@pytest.mark.parametrize("data", [b'{"broken":', b"[]", b"\xff", b"null"], ids=repr)
async def test_input_that_is_unreadable_is_reported(
    store: ResponseStore, shared_place: Place, data: bytes
) -> None:
    await store.put(record("resp_bad", input=[MessageParam("user", "a", id="msg_in")]))
    overwrite(shared_place, "response_input", "item", "resp_bad", data)
    for call in (
        store.get("resp_bad"),
        store.chain("resp_bad"),
        store.input_items("resp_bad"),
        store.items(["msg_in"]),
    ):
        await is_reported(call)


async def test_item_of_an_unreadable_output_is_reported(store: ResponseStore, shared_place: Place) -> None:
    stored_response = record("resp_bad")
    await store.put(stored_response)
    overwrite(shared_place, "responses", "response", "resp_bad", b'{"broken":')
    await is_reported(store.items([stored_response.response.output[0].id]))


@pytest.mark.parametrize("data", BROKEN, ids=repr)
async def test_s1_unreadable_run_keeps_no_other_from_being_claimed(
    store: ResponseStore, shared_place: Place, data: bytes
) -> None:
    for name in ("resp_one", "resp_bad", "resp_two"):
        await store.put(record(name, status="in_progress", lease=Lease("dead", 1.0)))
    overwrite(shared_place, "responses", "response", "resp_bad", data)
    claimed = await store.claim_orphans(Lease("settler", 20.0), 10.0)
    assert sorted(each.response.id for each in claimed) == ["resp_one", "resp_two"]
    assert await store.claim_orphans(Lease("settler", 40.0), 15.0) == []
    assert column_of(shared_place, "lease_until", "resp_bad") is None
    assert column_of(shared_place, "status", "resp_bad") == "failed"
    assert bytes(column_of(shared_place, "response", "resp_bad")) == data
    await is_reported(store.get("resp_bad"))


async def test_s1_unreadable_run_is_taken_up_by_nobody(store: ResponseStore, shared_place: Place) -> None:
    for name in ("resp_bad", "resp_well"):
        await store.put(record(name, status="queued", lease=Lease(NOBODY, 5.0)))
    overwrite(shared_place, "responses", "response", "resp_bad", b'{"broken":')
    assert await store.acquire("resp_bad", Lease("w", 20.0), 1.0) is None
    taken = await store.claim_waiting(Lease("w", 20.0), 10.0, limit=5)
    assert [each.response.id for each in taken] == ["resp_well"]
