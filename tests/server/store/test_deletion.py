"""A deleted response on which later turns depend is hidden, and removed with the last of them."""

import asyncio
import json
import random
import time
from typing import Any

import pytest
from msgspec.structs import replace

from openresponses_bridge.protocol.input_items import MessageParam
from openresponses_server.store.base import (
    ChainError,
    Lease,
    LeaseLost,
    ResponseStore,
    StoredResponse,
    StoreError,
)
from openresponses_server.store.memory import MemoryRecords, MemoryStore
from tests.support.stores import Place, each_kind, frames, record

LATE = 4e9


async def put_chain(store: ResponseStore, *names: str, **fields: Any) -> None:
    """Each turn stands on the one before."""
    for before, name in zip((None, *names), names, strict=False):
        await store.put(record(name, before, owner="k", **fields), frames(0, 3))


async def rows(store: ResponseStore) -> dict[str, bool]:
    """The ids of all that is kept, and whether it is hidden."""
    lines = [json.loads(line) async for line in store.export()]
    assert {line["owner"] for line in lines} <= {"k", "other"}
    return {line["id"]: line["hidden"] for line in lines}


async def chain(store: ResponseStore, response_id: str) -> list[str]:
    return [turn.response.id for turn in await store.chain(response_id, "k")]


@pytest.mark.parametrize("deleted", ["a", "b", "ab", "ba"])
async def test_later_turns_keep_their_context(store: ResponseStore, deleted: str) -> None:
    await put_chain(store, "a", "b", "c", "d")
    before = await store.chain("d", "k")
    size = await store.size("d", "k")
    for name in deleted:
        assert await store.delete(name, "k")
    after = await store.chain("d", "k")
    assert [(turn.input, turn.response.output) for turn in after] == [
        (turn.input, turn.response.output) for turn in before
    ]
    assert abs(await store.size("d", "k") - size) < 100


async def test_what_was_deleted_is_shown_nowhere(store: ResponseStore) -> None:
    own = [MessageParam("user", "a", id="in")]
    response = replace(record("a").response, instructions="SECRET", metadata={"who": "SECRET"})
    await store.put(
        StoredResponse(response, own, owner="k", request=b'{"a":"SECRET"}'), frames(0, 3, "SECRET")
    )
    await store.put(record("b", "a", owner="k"))
    assert await store.delete("a", "k")
    assert await store.get("a", "k") is None
    assert await store.standing("a", "k") is None
    assert await store.input_items("a", "k") is None
    assert await store.items(["in", response.output[0].id], "k") == {}
    assert [piece async for piece in store.frames("a", "k")] == []
    assert await store.missing(["a"], "k") == {"a"}
    assert await store.missing(["b"], "k", before=["a", "x"]) == {"x"}
    assert await store.size("a", "k") == 0
    assert await store.delete("a", "k") is False
    with pytest.raises(ChainError, match="'a' not found"):
        await store.chain("a", "k")
    with pytest.raises(StoreError):
        await store.put(record("a", owner="k"))
    exported = b"".join([line async for line in store.export()])
    assert b"SECRET" not in exported


async def test_nobody_stores_as_the_owner_of_what_was_deleted(store: ResponseStore) -> None:
    with pytest.raises(StoreError) as refused:
        await store.put(record("a", owner="~k"))
    assert refused.value.code == StoreError.CONFLICT


async def test_it_goes_with_the_last_that_needs_it(store: ResponseStore) -> None:
    await put_chain(store, "a", "b", "c")
    await store.put(record("branch", "b", owner="k"))
    await store.delete("b", "k")
    await store.delete("a", "k")
    assert await rows(store) == {"a": True, "b": True, "c": False, "branch": False}
    await store.delete("c", "k")
    assert await rows(store) == {"a": True, "b": True, "branch": False}
    assert await chain(store, "branch") == ["a", "b", "branch"]
    await store.delete("branch", "k")
    assert await rows(store) == {}


async def test_what_was_not_deleted_stays(store: ResponseStore) -> None:
    await put_chain(store, "a", "b", "c", "d")
    await store.delete("c", "k")
    await store.delete("d", "k")
    assert await rows(store) == {"a": False, "b": False}


@each_kind
async def test_long_line_goes_at_once(store: ResponseStore) -> None:
    names = [f"r{number}" for number in range(120)]
    await put_chain(store, *names, input=[])
    for name in names[:-1]:
        await store.delete(name, "k")
    assert await chain(store, names[-1]) == names
    await store.delete(names[-1], "k")
    assert await rows(store) == {}


async def test_another_keys_turn_keeps_nothing(store: ResponseStore) -> None:
    await put_chain(store, "a")
    await store.put(record("theirs", "a", owner="other"))
    await store.delete("a", "k")
    assert await rows(store) == {"theirs": False}
    await put_chain(store, "b")
    await store.put(record("self", "self", owner="k"))
    await store.delete("self", "k")
    assert await rows(store) == {"theirs": False, "b": False}


async def test_run_that_is_hidden_has_lost_its_lease(store: ResponseStore) -> None:
    await store.put(record("a", owner="k", lease=Lease("w", LATE)))
    await store.put(record("b", "a", owner="k"))
    await store.delete("a", "k")
    with pytest.raises(LeaseLost):
        await store.finish("a", "w", record("a").response)
    with pytest.raises(LeaseLost):
        await store.checkpoint("a", Lease("w", LATE), None, frames(4, 5))
    assert await store.acquire("a", Lease("v", LATE), LATE + 1) is None
    assert await store.claim_orphans(Lease("v", LATE), LATE + 1) == []


# --- retention -------------------------------------------------------------------------------------------


async def test_expired_turns_stay_as_context(store: ResponseStore) -> None:
    now = time.time()
    for name, before, expires_at in (("a", None, now - 2), ("b", "a", now - 1), ("c", "b", now + 6000)):
        await store.put(record(name, before, owner="k", expires_at=expires_at), frames(0, 3))
    assert await chain(store, "c") == ["a", "b", "c"]
    assert await store.sweep(now) == 2
    assert await store.sweep(now) == 0
    assert await rows(store) == {"a": True, "b": True, "c": False}
    assert await chain(store, "c") == ["a", "b", "c"]
    assert await store.get("a", "k") is None
    assert await store.sweep(now + 6001) == 1
    assert await rows(store) == {}


@each_kind
async def test_chains_that_expired_as_a_whole_go_at_once(store: ResponseStore) -> None:
    now = time.time()
    for number in range(30):
        names = [f"{number}-{turn}" for turn in range(8)]
        await put_chain(store, *names, input=[], expires_at=now - random.Random(number).random())
    assert await store.sweep(now) == 240
    assert await rows(store) == {}


async def test_deleted_turns_go_with_a_chain_that_expires(store: ResponseStore) -> None:
    now = time.time()
    await put_chain(store, "a", "b", "c")
    await store.put(record("last", "c", owner="k", expires_at=now + 6000))
    for name in "abc":
        await store.delete(name, "k")
    assert await store.sweep(now) == 0
    assert await store.sweep(now + 6001) == 1
    assert await rows(store) == {}


@each_kind
async def test_any_order_of_deletions_and_sweeps(store: ResponseStore) -> None:
    """Law: what is shown is what was neither deleted nor has expired; what is kept beside it is what that
    stands on."""
    for seed in range(8):
        chance = random.Random(seed)
        links: dict[str, str | None] = {}
        until: dict[str, float] = {}
        now = time.time()
        for number in range(14):
            name = f"{seed}-{number}"
            links[name] = chance.choice([None, *list(links)[-5:]])
            until[name] = now + chance.choice([10_000, 20_000, 30_000])  # not over by the store's clock
            await store.put(record(name, links[name], owner="k", input=[], expires_at=until[name]))
        shown = set(links)
        for step in range(10):
            if chance.random() < 0.7 and shown:
                name = chance.choice(sorted(shown))
                assert await store.delete(name, "k")
                shown.discard(name)
            else:
                at = now + step * 3000
                await store.sweep(at)
                shown = {each for each in shown if until[each] > at}
            needed = set()
            for each in shown:
                link = links[each]
                while link is not None:
                    needed.add(link)
                    link = links[link]
            assert await rows(store) == {each: each not in shown for each in shown | needed}
        for name in sorted(shown):
            await store.delete(name, "k")
    assert await rows(store) == {}


async def test_workers_that_sweep_at_once_do_not_disturb_each_other(shared_place: Place) -> None:
    stores = [shared_place.open() for _ in range(3)]
    past = time.time() - 1
    for number in range(20):
        await put_chain(stores[0], *[f"{number}-{turn}" for turn in range(5)], input=[], expires_at=past)
    counts = await asyncio.gather(*(store.sweep(time.time()) for store in stores))
    assert sum(counts) >= 100
    assert await rows(stores[0]) == {}


async def test_memory_that_is_full_keeps_no_context_that_nobody_needs() -> None:
    store = MemoryStore(limit=3)
    await put_chain(store, "a", "b")
    await store.delete("a", "k")
    for name in ("c", "d", "e"):
        await store.put(record(name, owner="k"))
    assert await rows(store) == {"c": False, "d": False, "e": False}
    records: MemoryRecords = store._records
    assert records._bytes == sum(entry.size for entry in records.all())
    assert records._later == {}
