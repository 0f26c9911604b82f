"""What every store lists (laws S7, S10): the owner's own, in order, page by page."""

from typing import Any

from openresponses_server.store import listing as bounds
from openresponses_server.store.base import Lease, ResponseStore
from openresponses_server.store.listing import ListedPage, ListFilter, conversation_of, page_of
from tests.support.stores import messages, record


async def page(store: ResponseStore, after: str | None = None, limit: int = 50, **wanted: Any) -> ListedPage:
    return await page_of(store.listing, "k", ListFilter(**wanted), after, limit)


def ids(found: ListedPage) -> list[str]:
    return [row.id for row in found.rows]


async def test_the_newest_come_first_and_pages_follow_one_another(store: ResponseStore) -> None:
    for number in range(7):
        await store.put(record(f"r{number}", owner="k", created_at=100.0 + number // 2))
    seen: list[str] = []
    after: str | None = None
    while True:
        batch = await page(store, after, 3)
        seen += ids(batch)
        after = batch.next
        if after is None:
            break
        await store.put(record(f"new{after}", owner="k", created_at=900.0))  # does not move what follows
    assert seen == ["r6", "r5", "r4", "r3", "r2", "r1", "r0"]


async def test_only_the_owners_own_are_listed_and_what_is_there(store: ResponseStore) -> None:
    await store.put(record("mine", owner="k", created_at=5.0))
    await store.put(record("others", owner="l", created_at=6.0))
    await store.put(record("over", owner="k", created_at=7.0, expires_at=1.0))
    await store.put(record("deleted", owner="k", created_at=8.0))
    await store.put(record("later", "deleted", owner="k", created_at=9.0))
    await store.delete("deleted", "k")
    assert ids(await page(store)) == ["later", "mine"]
    assert ids(await page(store, "others")) == ids(await page(store, "missing")) == []
    assert [row.id for row in await conversation_of(store.listing, "k", "later")] == ["later"]
    assert await conversation_of(store.listing, "l", "mine") == []


async def test_a_row_says_what_it_is(store: ResponseStore) -> None:
    history = messages("first", 'How are "you"?\n' + "é" * 600)
    lease = Lease("w", 99.0)
    await store.put(
        record("r", "before", owner="k", created_at=5.0, input=history, status="queued", lease=lease)
    )
    (row,) = (await page(store)).rows
    assert (row.id, row.status, row.created_at, row.previous_response_id) == ("r", "queued", 5.0, "before")
    assert (row.model, row.last_sequence) == ("m", -1)
    assert row.asked.startswith('How are "you"?\né')
    assert len(row.asked) == 200


async def test_filters(store: ResponseStore) -> None:
    for number, status in enumerate(("completed", "failed", "completed")):
        await store.put(
            record(
                f"r{number}",
                owner="k",
                created_at=10.0 + number,
                status=status,
                input=messages(f"About Ähren {number}"),
            )
        )
    assert ids(await page(store, status="failed")) == ["r1"]
    assert ids(await page(store, since=11.0, until=12.0)) == ["r1"]
    assert ids(await page(store, model="m")) == ["r2", "r1", "r0"]
    assert ids(await page(store, model="other")) == []
    assert ids(await page(store, search="ähren 2")) == ["r2"]
    assert ids(await page(store, search="R1")) == ["r1"]
    assert ids(await page(store, search="%")) == []


async def test_a_search_looks_at_a_bounded_number_and_goes_on(store: ResponseStore, monkeypatch: Any) -> None:
    monkeypatch.setattr(bounds, "_AT_ONCE", 2)
    monkeypatch.setattr(bounds, "_LOOKED_AT", 4)
    for number in range(7):
        await store.put(record(f"r{number}", owner="k", created_at=float(number + 1)))
    first = await page(store, search="r0")
    assert (ids(first), first.next) == ([], "r3")
    assert ids(await page(store, first.next, search="r0")) == ["r0"]


async def test_a_conversation_is_its_turns_and_bounded(store: ResponseStore) -> None:
    for number in range(4):
        await store.put(record(f"r{number}", f"r{number - 1}" if number else None, owner="k", created_at=5.0))
    await store.put(record("around", "around", owner="k"))
    turns = await conversation_of(store.listing, "k", "r3")
    assert [row.id for row in turns] == ["r3", "r2", "r1", "r0"]
    assert len(await conversation_of(store.listing, "k", "r3", 2)) == 2
    assert [row.id for row in await conversation_of(store.listing, "k", "around")] == ["around"]
