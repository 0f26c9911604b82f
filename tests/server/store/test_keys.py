"""Managed keys (law S7) in every store that other processes can use: one suite for them."""

import asyncio
import io
import time
from typing import Any

import pytest

from openresponses_server.http.managed_keys import KeyBook, KeyChange, ManagedKey, hash_of, new_key, owner_of
from openresponses_server.limits.owners import KeyLimits, OwnerLimits
from openresponses_server.store import keys as bounds
from openresponses_server.store.base import StoreError
from openresponses_server.store.keys import KEPT, KeyKeeper, KeyStore, KeyVersion
from openresponses_server.store.memory import MemoryStore
from openresponses_server.store.sql import key_rows
from openresponses_server.store.sql.locations import database_url
from openresponses_server.store.sql.transfer import import_lines
from tests.support.stores import Place

FIRST = ManagedKey(
    "key_1",
    "0" * 64,
    "abcd",
    "laptop",
    "alice",
    100.0,
    expires_at=4e9,
    models=("gpt-*", "ü"),
    limits=KeyLimits(requests_per_minute=5, calls_per_day=7, usd_per_day=0.1),
)
SECOND = ManagedKey("key_2", "1" * 64, "efgh", "ci", "alice", 200.0)


def keys_of(place: Place) -> KeyStore:
    keys = place.open().keys
    assert keys is not None
    return keys


async def test_what_was_added_is_there_and_every_change_counts(shared_place: Place) -> None:
    keys = keys_of(shared_place)
    versions = [await keys.version()]
    await keys.add(SECOND)
    versions.append(await keys.version())
    await keys.add(FIRST)
    versions.append(await keys.version())
    assert await keys.all() == [FIRST, SECOND]
    assert await keys.change("key_2", KeyChange(revoked_at=300.0))
    versions.append(await keys.version())
    assert await keys.change("key_2", KeyChange(limits=KeyLimits(concurrent=1), models=("a",)))
    versions.append(await keys.version())
    numbers = [version.number for version in versions]
    assert numbers == [*range(numbers[0], numbers[0] + 5)]
    assert len({version.tag for version in versions}) == 5
    key = (await keys.all())[1]
    assert (key.revoked_at, key.limits, key.models) == (300.0, KeyLimits(concurrent=1), ("a",))
    assert await keys.change("key_2", KeyChange(models=None))
    assert (await keys.all())[1].models is None
    assert not await keys.change("key_3", KeyChange(revoked_at=300.0))
    assert not await keys.change("key_1", KeyChange())


async def test_an_id_or_hash_is_there_once_and_their_number_is_bounded(
    shared_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = keys_of(shared_place)
    await keys.add(FIRST)
    for other in (("key_1", "2" * 64), ("key_3", FIRST.hash)):
        with pytest.raises(StoreError) as caught:
            await keys.add(ManagedKey(*other, "abcd", "n", "o", 1.0))
        assert caught.value.code == StoreError.CONFLICT
    monkeypatch.setattr(key_rows, "MOST_KEYS", 2)
    await keys.add(SECOND)
    with pytest.raises(StoreError) as caught:
        await keys.add(ManagedKey("key_3", "3" * 64, "abcd", "n", "o", 1.0))
    assert caught.value.code == StoreError.FULL
    assert bounds.MOST_KEYS > 1000


async def test_changes_at_once_are_all_seen(shared_place: Place) -> None:
    one, other = keys_of(shared_place), keys_of(shared_place)
    await one.add(FIRST)
    before = await one.version()
    limits = [KeyChange(limits=KeyLimits(concurrent=number)) for number in range(1, 6)]
    await asyncio.gather(
        *(one.change("key_1", each) for each in limits), other.change("key_1", KeyChange(revoked_at=1.0))
    )
    assert (await other.version()).number == before.number + 6
    assert (await one.all())[0].revoked_at == 1.0


async def test_a_sweep_deletes_those_that_ended_long_ago(shared_place: Place) -> None:
    store = shared_place.open()
    assert store.keys is not None
    for key in (FIRST, SECOND):
        await store.keys.add(key)
    await store.keys.change("key_2", KeyChange(revoked_at=1000.0))
    await store.sweep(1000.0 + KEPT - 1)
    assert [key.id for key in await store.keys.all()] == ["key_1", "key_2"]
    await store.sweep(1000.0 + KEPT + 1)
    assert await store.keys.all() == [FIRST]


async def test_an_export_has_the_keys_and_an_import_never_revives_one(shared_place: Place) -> None:
    store = shared_place.open()
    assert store.keys is not None
    for key in (FIRST, SECOND):
        await store.keys.add(key)
    lines = [line async for line in store.export()]
    await store.keys.change("key_2", KeyChange(revoked_at=300.0))
    reasons: list[str] = []

    def take(some: list[bytes]) -> Any:
        source = io.BytesIO(b"".join(some))
        return import_lines(database_url(shared_place.url), source, lambda _number, why: reasons.append(why))

    done = await asyncio.to_thread(take, lines)
    assert (done.keys, done.present, done.refused) == (0, 2, 0)
    assert (await store.keys.all())[1].revoked_at == 300.0
    before = await store.keys.version()
    new = lines[1].replace(b"key_2", b"key_3").replace(b"1" * 64, b"3" * 64)
    wrong = [
        new.replace(b"3" * 64, b"g" * 64),
        new.replace(b'"efgh"', b'"efghi"'),
        new.replace(b'"created_at":200', b'"created_at":-200'),
        new.replace(b'"limits":{}', b'"limits":{"concurrent":-1}'),
        new.replace(b'"limits":{}', b'"limits":{"requests_per_minute":0}'),
        new.replace(b'"limits":{}', b'"limits":{"all":1}'),
        new.replace(b'"limits":{}', b'"limits":{"usd_per_day":0}'),
        new.replace(b'"limits":{}', b'"limits":{"usd_per_day":-0.5}'),
        new.replace(b'"limits":{}', b'"limits":{"usd_per_day":1e-13}'),
        new.replace(b'"limits":{}', b'"limits":{"usd_per_day":1e300}'),
        new.replace(b'"limits":{}', b'"limits":{"usd_per_day":true}'),
        new.replace(b'"alice"', b'"a\\u0000"'),
    ]
    assert all(each != new for each in wrong)
    done = await asyncio.to_thread(take, [new, *wrong])
    assert (done.keys, done.present, done.refused, len(reasons)) == (1, 0, 12, 12)
    assert (await store.keys.version()).number > before.number
    assert [key.id for key in await store.keys.all()] == ["key_1", "key_2", "key_3"]


async def test_a_process_has_the_keys_of_its_store_and_keeps_them_while_it_is_out_of_reach(
    shared_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = keys_of(shared_place)
    secret, key_id, hashed = new_key()
    book = KeyBook(OwnerLimits())
    keeper = KeyKeeper(book, keys, every=0.01)
    await keeper.look()
    assert book.is_loaded
    assert book.access(secret) is None
    await keys.add(ManagedKey(key_id, hashed, secret[-4:], "n", "alice", time.time()))
    assert hashed == hash_of(secret)
    await keeper.look()
    access = book.access(secret)
    assert access is not None
    assert access.owner == owner_of("alice")
    reads = 0

    async def counted(*_: object) -> None:
        nonlocal reads
        reads += 1

    for each in ("all", "changed"):
        monkeypatch.setattr(keys, each, counted)
    for guess in ("x", secret[:-1], secret + "x", hashed, "orb_" + "x" * 43):
        assert book.access(guess) is None
        await keeper.look()
    assert reads == 0, "a look at keys that have not changed reads none"
    monkeypatch.undo()

    async def fails() -> KeyVersion:
        raise StoreError(StoreError.UNAVAILABLE, "The session store can't be reached.")

    with monkeypatch.context() as down:
        down.setattr(keys, "version", fails)
        async with keeper.going():
            await asyncio.sleep(0.05)
    assert book.access(secret) is not None
    await keys.change(key_id, KeyChange(revoked_at=time.time()))
    await keeper.look()
    assert book.access(secret) is None
    assert access.again() is None


def test_a_store_in_memory_has_none() -> None:
    assert MemoryStore().keys is None
