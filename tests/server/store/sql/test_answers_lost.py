"""Calls that PostgreSQL executes and does not answer: commits are reported, nothing done twice (law S1)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncConnection

from openresponses_bridge.protocol.input_items import MessageParam
from openresponses_server.http.managed_keys import ManagedKey
from openresponses_server.store.base import (
    ANY_SIZE,
    NOBODY,
    ConversationSize,
    Lease,
    ListedItem,
    ResponseStore,
    StoredConversation,
    StoreError,
)
from openresponses_server.store.stores import open_store
from tests.support.relays import Relay
from tests.support.stores import Place, emptied, frames, record
from tests.support.waiting import until

MOST = ConversationSize(100, ANY_SIZE)
FAR = 4e9


class Behind:
    """A store behind a relay that cuts off an answer, and one that sees what is stored."""

    def __init__(self, relay: Relay, store: ResponseStore, there: ResponseStore) -> None:
        self.relay, self.store, self.there = relay, store, there
        self.cuts = 0

    def cut(self, *words: bytes, times: int = 1) -> None:
        """Cut off the answers to the next requests with one of these words."""
        left = times

        def selects(asked: bytes) -> bool:
            nonlocal left
            if left and any(word in asked for word in words):
                left -= 1
                self.cuts += 1
                return True
            return False

        self.relay.cut = selects


@pytest.fixture
async def behind(postgres_url: str) -> AsyncIterator[Behind]:
    url = make_url(emptied(postgres_url))
    async with AsyncExitStack() as stack:
        relay = Relay(url.port or 5432, url.host or "127.0.0.1")
        await stack.enter_async_context(relay.listening())
        relayed = url.set(host="127.0.0.1", port=relay.port).render_as_string(hide_password=False)
        store, place = open_store(f"{relayed}?sslmode=disable&gssencmode=disable"), Place(postgres_url)
        stack.push_async_callback(place.close)
        stack.push_async_callback(store.close)
        await store.get("r")  # it is connected
        yield Behind(relay, store, place.open())


def conversation() -> StoredConversation:
    return StoredConversation("conv_a", "k", 1.0, None, b"{}")


def item(name: str) -> ListedItem:
    return ListedItem(name, MessageParam("user", name, id=name))


def key() -> ManagedKey:
    return ManagedKey(
        id="key_a",
        hash="0" * 64,
        last_four="abcd",
        name="a",
        owner="k",
        created_at=1.0,
        expires_at=None,
        revoked_at=None,
        models=None,
    )


async def nothing(_store: ResponseStore) -> None:
    return None


async def with_conversation(store: ResponseStore) -> None:
    await store.conversations.create(conversation(), [item("a")])


async def with_response(store: ResponseStore) -> None:
    await store.put(record("r", owner="k"))


async def with_waiting(store: ResponseStore) -> None:
    await store.put(record("r", owner="k", status="queued", request=b"{}", lease=Lease(NOBODY, 1.0)))


async def add_key(store: ResponseStore) -> bool:
    assert store.keys is not None
    await store.keys.add(key())
    return [each.id for each in await store.keys.all()] == ["key_a"]


Call = Callable[[ResponseStore], Awaitable[Any]]
CALLS: dict[str, tuple[Call, Call]] = {
    "create": (nothing, lambda s: s.conversations.create(conversation(), [item("a")])),
    "add": (with_conversation, lambda s: s.conversations.add("conv_a", "k", [item("b")], MOST, None)),
    "remove": (with_conversation, lambda s: s.conversations.remove("conv_a", "a", "k", None)),
    "update": (with_conversation, lambda s: s.conversations.update("conv_a", "k", b'{"a":"b"}', None)),
    "delete conversation": (with_conversation, lambda s: s.conversations.delete("conv_a", "k")),
    "use": (nothing, lambda s: s.use_once("approval", FAR)),
    "delete": (with_response, lambda s: s.delete("r", "k")),
    "key": (nothing, add_key),
    "claim": (with_waiting, lambda s: s.claim_waiting(Lease("w", FAR), FAR)),
    "orphans": (with_waiting, lambda s: s.claim_orphans(Lease("w", FAR), FAR)),
}


@pytest.mark.parametrize("name", list(CALLS))
async def test_s1_what_was_committed_is_said_though_the_answer_was_cut_off(behind: Behind, name: str) -> None:
    prepare, call = CALLS[name]
    await prepare(behind.there)
    behind.cut(b"COMMIT")
    done = await call(behind.store)
    assert behind.cuts == 1
    assert done or name == "create"
    items = await behind.there.conversations.items("conv_a", "k")
    expected = {"create": ["a"], "add": ["a", "b"], "remove": [], "update": ["a"]}
    assert ([each.id for each in items] if items is not None else None) == expected.get(name)


async def test_a_run_is_acquired_though_the_answer_was_cut_off(behind: Behind) -> None:
    await with_waiting(behind.there)
    behind.cut(b"UPDATE responses")
    assert await behind.store.acquire("r", Lease("w", FAR), 1.0) is not None
    assert behind.cuts == 1


async def test_s1_a_transaction_that_was_not_committed_is_made_again(behind: Behind) -> None:
    behind.cut(b"INSERT INTO used_once")
    assert await behind.store.use_once("approval", FAR)
    assert behind.cuts == 1
    assert not await behind.there.use_once("approval", FAR)


async def test_s1_what_can_not_be_known_is_said_as_that(behind: Behind) -> None:
    """The server has committed, and can't be asked: the call is not made again."""
    behind.cut(b"COMMIT", b"txid_status", times=100)
    with pytest.raises(StoreError) as failed:
        await behind.store.use_once("approval", FAR)
    assert failed.value.uncertain
    assert not await behind.there.use_once("approval", FAR)


async def test_s1_a_commit_that_waits_is_waited_for(behind: Behind, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a replica: whether it is committed is not known before."""
    statuses = iter(["in progress", "in progress", "committed"])
    answers = []

    async def status(_connection: Any, statement: Any, *_: Any) -> Any:
        if "txid_status" not in str(statement):
            return await scalar(_connection, statement, *_)
        answers.append(next(statuses))
        return answers[-1]

    scalar = AsyncConnection.scalar
    monkeypatch.setattr(AsyncConnection, "scalar", status)
    behind.cut(b"COMMIT")
    assert await behind.store.use_once("approval", FAR)
    assert answers == ["in progress", "in progress", "committed"]


@pytest.mark.parametrize("where", ["conv_a", None])
async def test_s1_an_end_that_was_given_up_and_stored_is_what_is_said_last(
    behind: Behind, where: str | None
) -> None:
    """The server stores it, its answer comes too late, and the client is sent a failure."""
    if where:
        await behind.there.conversations.create(conversation(), [item("first")])
    await behind.store.put(record("r", owner="k", lease=Lease("w", FAR)), frames(0, 1))
    behind.relay.answers.clear()
    behind.relay.late = lambda asked: (b"COMMIT" if where else b"UPDATE responses") in asked
    ended = record("r", owner="k", text="Whole").response
    late = asyncio.create_task(behind.store.finish("r", "w", ended, frames(2, 3), conversation=where))

    async def is_stored() -> bool:
        entry = await behind.there.get("r", "k")
        return entry is not None and entry.lease is None

    while not (is_there := await is_stored()) and not late.done():
        await asyncio.sleep(0.01)
    assert is_there
    late.cancel()
    await asyncio.wait([late])
    behind.relay.answers.set()
    failed = record("r", owner="k", text="Whole", status="failed").response
    for _ in range(2):
        await behind.store.finish("r", "w", failed, frames(2, 4), conversation=where)
    entry = await behind.there.get("r", "k")
    assert entry is not None
    assert (entry.response.status, entry.last_sequence) == ("failed", 4)
    left = await behind.there.conversations.items("conv_a", "k")
    assert [each.id for each in left or ()] == (["first"] if where else [])
    await until(lambda: late.done())
