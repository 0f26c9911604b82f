"""What every store does with conversations: one suite for all of them."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.input_items import InputItem, MessageParam
from openresponses_bridge.protocol.response import Response
from openresponses_server.errors import HttpError
from openresponses_server.store.base import (
    ConversationSize,
    CursorError,
    InputPage,
    Lease,
    LeaseLost,
    ListedItem,
    ResponseStore,
    StoredConversation,
    StoreError,
)
from openresponses_server.store.conversations import named
from openresponses_server.store.memory import MemoryStore
from openresponses_server.store.memory_conversations import MemoryConversations
from openresponses_server.store.sql.locations import database_url
from openresponses_server.store.sql.transfer import import_lines
from openresponses_server.store.stores import open_store
from tests.support.stores import Place, failing_table, frames, messages, record

ROOM = ConversationSize(10_000, 10**9)
FAR = 4e9
ODD_IDS = ["", "a\0b", "\ud800", "x" * 10_000]


def conversation(name: str = "conv_a", owner: str = "k", **fields: Any) -> StoredConversation:
    fields = {"created_at": 5.5, "expires_at": None, "metadata": b'{"a":"b"}'} | fields
    return StoredConversation(name, owner, **fields)


def said(*texts: str) -> list[ListedItem]:
    """Messages whose ids are the beginnings of their texts."""
    return [ListedItem(text[:50], MessageParam("user", text)) for text in texts]


def texts(page: InputPage | list[ListedItem] | None) -> list[str]:
    assert page is not None
    items: list[Any] = [each.item for each in (page.items if isinstance(page, InputPage) else page)]
    return [each.content if isinstance(each.content, str) else each.content[0].text for each in items]


async def whole(store: ResponseStore, name: str = "conv_a", owner: str = "k") -> list[str]:
    return texts(await store.conversations.items(name, owner))


async def begin(store: ResponseStore, response_id: str, given: list[InputItem] | None = None) -> Response:
    """A run in the conversation; returns the response that it will end with."""
    put = record(response_id, owner="k", input=messages(f"to {response_id}") if given is None else given)
    put = replace(put, conversation="conv_a", lease=Lease("w", FAR))
    await store.put(replace(put, response=replace(put.response, status="in_progress", output=[])))
    return replace(put.response, output=[replace(put.response.output[0], id=f"msg_{response_id}")])


# --- the conversation itself -----------------------------------------------------------------------------


async def test_conversation_comes_back_and_is_changed_and_deleted(store: ResponseStore) -> None:
    conversations = store.conversations
    await conversations.create(conversation(), said("one", "two"))
    assert await conversations.get("conv_a", "k") == conversation()
    assert await conversations.size("conv_a", "k") == ConversationSize(
        2, 2 * len(b'{"type":"message","role":"user","content":"one"}')
    )
    changed = await conversations.update("conv_a", "k", b'{"\\u0000":"\xc3\xa9"}', FAR)
    assert (
        changed
        == conversation(metadata=b'{"\\u0000":"\xc3\xa9"}', expires_at=FAR)
        == await conversations.get("conv_a", "k")
    )
    assert await whole(store) == ["one", "two"]
    assert await conversations.delete("conv_a", "k")
    assert not await conversations.delete("conv_a", "k")
    assert await conversations.get("conv_a", "k") is await conversations.items("conv_a", "k") is None
    assert await conversations.item("conv_a", "one", "k") is None


async def test_an_id_is_given_once(store: ResponseStore) -> None:
    await store.conversations.create(conversation(), [])
    with pytest.raises(StoreError) as refused:
        await store.conversations.create(conversation(owner="l"), [])
    assert refused.value.code == StoreError.CONFLICT


async def test_s7_of_another_owner_nothing_is_found_and_nothing_changed(store: ResponseStore) -> None:
    conversations = store.conversations
    await conversations.create(conversation(), said("one"))
    assert await conversations.get("conv_a", "l") is None
    assert await conversations.update("conv_a", "l", b"{}", None) is None
    assert not await conversations.add("conv_a", "l", said("two"), ROOM, None)
    assert await conversations.page("conv_a", "l") is None
    assert await conversations.items("conv_a", "l") is await conversations.size("conv_a", "l") is None
    assert await conversations.item("conv_a", "one", "l") is None
    assert await conversations.remove("conv_a", "one", "l", None) is None
    assert not await conversations.delete("conv_a", "l")
    stolen = replace(record("r", owner="l"), conversation="conv_a")
    await store.put(stolen)
    assert await whole(store) == ["one"]


@pytest.mark.parametrize("odd", ODD_IDS)
async def test_odd_ids_find_nothing(store: ResponseStore, odd: str) -> None:
    conversations = store.conversations
    await conversations.create(conversation(), said("one"))
    assert (
        await conversations.get(odd, "k")
        is await conversations.items(odd, "k")
        is await conversations.size(odd, "k")
        is None
    )
    assert await conversations.page(odd, "k") is await conversations.update(odd, "k", b"{}", None) is None
    assert await conversations.item(odd, "one", "k") is await conversations.item("conv_a", odd, "k") is None
    assert (
        await conversations.remove(odd, "one", "k", None)
        is await conversations.remove("conv_a", odd, "k", None)
        is None
    )
    assert not await conversations.delete(odd, "k")
    assert not await conversations.add(odd, "k", said("two"), ROOM, None)
    with pytest.raises(CursorError):
        await conversations.page("conv_a", "k", after=odd)


async def test_expired_ones_are_not_found_and_swept(store: ResponseStore) -> None:
    conversations = store.conversations
    for number in range(12):
        await conversations.create(conversation(f"conv_{number}", expires_at=100.0), said("one"))
    await conversations.create(conversation(expires_at=FAR), [])
    assert await conversations.get("conv_1", "k") is None
    assert not await conversations.add("conv_1", "k", said("two"), ROOM, None)
    assert await conversations.count("k", 100) == 1
    assert await conversations.sweep(50.0) == 0
    await store.put(record("r", expires_at=100.0))
    assert await store.sweep(200.0) == 1
    assert await conversations.sweep(200.0) == 0
    assert await conversations.get("conv_a", "k") == conversation(expires_at=FAR)


async def test_count_and_stock_are_by_owner(store: ResponseStore) -> None:
    for number in range(4):
        await store.conversations.create(conversation(f"conv_{number}", "kl"[number % 2]), said("x" * 100))
    assert [await store.conversations.count(owner, 10) for owner in "klm"] == [2, 2, 0]
    assert await store.conversations.count("k", 1) == 1
    stock = await store.stock()
    assert 200 < stock["k"] == stock["l"] < 500


# --- items -----------------------------------------------------------------------------------------------


async def test_a_thousand_items_come_in_pages_of_both_orders(store: ResponseStore) -> None:
    names = [f"msg_{number}" for number in range(1000)]
    await store.conversations.create(conversation(), said(*names[:400]))
    assert await store.conversations.add("conv_a", "k", said(*names[400:]), ROOM, None)
    for order, expected in (("asc", names), ("desc", names[::-1])):
        contents: list[str] = []
        while True:
            page = await store.conversations.page(
                "conv_a",
                "k",
                after=contents[-1] if contents else None,
                limit=90,
                order=order,  # type: ignore[arg-type]
            )
            assert page is not None
            contents += texts(page)
            if not page.has_more:
                break
        assert contents == expected
    with pytest.raises(CursorError) as refused:
        await store.conversations.page("conv_a", "k", after="msg_1000")
    assert refused.value.param == "after"


async def test_an_item_is_found_and_deleted_and_the_others_keep_their_order(store: ResponseStore) -> None:
    conversations = store.conversations
    await conversations.create(conversation(), said("one", "two", "three"))
    assert await conversations.item("conv_a", "two", "k") == said("two")[0]
    assert await conversations.remove("conv_a", "two", "k", FAR) == conversation(expires_at=FAR)
    assert (
        await conversations.remove("conv_a", "two", "k", None)
        is await conversations.item("conv_a", "two", "k")
        is None
    )
    assert await conversations.add("conv_a", "k", said("four", "two"), ROOM, None)
    assert await whole(store) == ["one", "three", "four", "two"]
    size = await conversations.size("conv_a", "k")
    assert size is not None
    assert size.items == 4
    assert texts(await conversations.page("conv_a", "k", after="three", order="asc")) == ["four", "two"]


async def test_items_are_added_all_or_none(store: ResponseStore) -> None:
    conversations = store.conversations
    await conversations.create(conversation(), said("one", "two"))
    with pytest.raises(HttpError) as refused:
        await conversations.add("conv_a", "k", said("three", "two"), ROOM, None)
    assert (refused.value.code, refused.value.param) == ("item_exists", "items[1].id")
    for most in (ConversationSize(3, 10**9), ConversationSize(10, 150)):
        with pytest.raises(HttpError) as refused:
            await conversations.add("conv_a", "k", said("three", "four"), most, None)
        assert (refused.value.http_status, refused.value.code) == (400, "conversation_full")
    assert await whole(store) == ["one", "two"]
    assert await conversations.add("conv_a", "k", said("three"), ConversationSize(3, 10**9), None)


async def test_twenty_writers_at_once_come_one_after_the_other(place: Place) -> None:
    stores = [place.open() for _ in range(2)]
    await stores[0].conversations.create(conversation(), [])
    ended = [await begin(stores[0], f"r{number}") for number in range(10)]

    async def add(number: int) -> None:
        items = said(f"a{number}", f"b{number}")
        assert await stores[number % 2].conversations.add("conv_a", "k", items, ROOM, None)

    async def end(number: int) -> None:
        await stores[number % 2].finish(f"r{number}", "w", ended[number], conversation="conv_a")

    await asyncio.gather(*(work(number) for number in range(10) for work in (add, end)))
    contents = await whole(stores[1])
    assert len(contents) == 40
    pairs = {(contents[at], contents[at + 1]) for at in range(0, 40, 2)}
    assert pairs == {(f"a{n}", f"b{n}") for n in range(10)} | {(f"to r{n}", "Hello") for n in range(10)}


# --- the end of a response -------------------------------------------------------------------------------


async def test_input_and_output_are_appended_once_with_the_end(place: Place) -> None:
    store, other = place.open(), place.open()
    await store.conversations.create(conversation(), said("first"))
    ended = await begin(store, "r")
    await store.checkpoint("r", Lease("w", FAR), ended, frames(0, 1))
    assert await whole(store) == ["first"]
    for _ in range(2):
        await store.finish("r", "w", ended, conversation="conv_a")
    with pytest.raises(LeaseLost):
        await other.finish("r", "another", ended, conversation="conv_a")
    assert await whole(other) == ["first", "to r", "Hello"]
    items = await other.conversations.items("conv_a", "k")
    assert items is not None
    assert [each.id for each in items] == ["first", "item_r_0", "msg_r"]
    got = await other.get("r", "k")
    assert got is not None
    assert got.conversation == "conv_a"
    assert [turn.conversation for turn in await other.chain("r", "k")] == ["conv_a"]


async def test_a_run_that_another_worker_settles_is_appended_once(place: Place) -> None:
    store, other = place.open(), place.open()
    await store.conversations.create(conversation(), [])
    ended = await begin(store, "r")
    (claimed,) = await other.claim_of("w", Lease("s", FAR)) or await other.claim_orphans(
        Lease("s", FAR), FAR + 1
    )
    assert claimed.conversation == "conv_a"
    await other.finish("r", "s", ended, conversation=claimed.conversation)
    with pytest.raises(LeaseLost):
        await store.finish("r", "w", ended, conversation="conv_a")
    assert await whole(store) == ["to r", "Hello"]


async def test_a_response_that_is_stored_with_its_end_is_appended_once(store: ResponseStore) -> None:
    await store.conversations.create(conversation(), [])
    put = replace(record("r", owner="k", input=messages("a")), conversation="conv_a")
    for _ in range(2):  # the answer to the first may have been lost
        await store.put(put)
    assert await whole(store) == ["a", "Hello"]
    await begin(store, "s", messages("b"))
    await store.put(replace(put, response=replace(put.response, id="s"), input=messages("b")))
    assert await whole(store) == ["a", "Hello", "b", "Hello"]


@pytest.mark.parametrize(
    ("status", "output", "left"),
    [
        ("incomplete", True, ["to r", "Hello"]),
        ("cancelled", True, ["to r", "Hello"]),
        ("cancelled", False, []),
        ("failed", True, []),
        ("completed", False, ["to r"]),
    ],
)
async def test_what_failed_or_never_began_leaves_nothing(
    store: ResponseStore, status: str, output: bool, left: list[str]
) -> None:
    await store.conversations.create(conversation(), [])
    ended = replace(await begin(store, "r"), status=status)
    await store.finish("r", "w", ended if output else replace(ended, output=[]), conversation="conv_a")
    assert await whole(store) == left


async def test_ids_that_are_taken_or_odd_are_replaced_at_the_end(store: ResponseStore) -> None:
    await store.conversations.create(conversation(), said("one"))
    odd = [
        MessageParam("user", f"{at}", id=name)
        for at, name in enumerate(["one", "x" * 600, "\ud800", "two", "two"])
    ]
    await store.finish("r", "w", await begin(store, "r", list(odd)), conversation="conv_a")
    items = await store.conversations.items("conv_a", "k")
    assert items is not None
    assert texts(items) == ["one", "0", "1", "2", "3", "4", "Hello"]
    assert len({each.id for each in items}) == 7
    assert [each.id for each in items if each.id in ("one", "two")] == ["one", "two"]
    for each in items:
        assert await store.conversations.item("conv_a", each.id, "k") == each


async def test_a_conversation_that_was_deleted_meanwhile_does_not_stop_the_end(store: ResponseStore) -> None:
    await store.conversations.create(conversation(), [])
    ended = await begin(store, "r")
    assert await store.conversations.delete("conv_a", "k")
    await store.finish("r", "w", ended, conversation="conv_a")
    got = await store.get("r", "k")
    assert got is not None
    assert got.response.status == "completed"
    assert await store.conversations.get("conv_a", "k") is None


async def test_s1_end_and_append_are_one_step(shared_place: Place) -> None:
    store = shared_place.open()
    await store.conversations.create(conversation(), [])
    ended = await begin(store, "r")
    put = replace(record("s", owner="k"), conversation="conv_a")
    with failing_table(shared_place, "conversation_items"):
        with pytest.raises(StoreError):
            await store.finish("r", "w", ended, conversation="conv_a")
        with pytest.raises(StoreError):
            await store.put(put)
    other = shared_place.open()
    assert await whole(other) == []
    got = await other.get("r", "k")
    assert got is not None
    assert (got.response.status, got.lease) == ("in_progress", Lease("w", FAR))
    assert await other.get("s", "k") is None
    await store.finish("r", "w", ended, conversation="conv_a")
    assert await whole(other) == ["to r", "Hello"]


KILLED = """
import asyncio, os, signal, sys
from openresponses_bridge.protocol.codec import decode_response
from openresponses_server.store.sql import conversation_rows
from openresponses_server.store.stores import open_store

conversation_rows.append_turn = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
ended = decode_response(open(sys.argv[2], "rb").read())
asyncio.run(open_store(sys.argv[1]).finish("r", "w", ended, conversation="conv_a"))
"""


async def test_s1_a_process_that_is_killed_between_end_and_append_has_stored_neither(tmp_path: Path) -> None:
    """Its run is settled by another worker, and appended then."""
    url = f"sqlite:///{tmp_path}/s.sqlite3"
    store = open_store(url)
    await store.conversations.create(conversation(), said("first"))
    ended = await begin(store, "r")
    (tmp_path / "ended").write_bytes(encode(ended))
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, url, str(tmp_path / "ended"), stderr=asyncio.subprocess.PIPE
    )
    _, errors = await program.communicate()
    assert program.returncode == -signal.SIGKILL, errors
    got = await store.get("r", "k")
    assert got is not None
    assert (got.response.status, got.conversation) == ("in_progress", "conv_a")
    assert await whole(store) == ["first"]
    (claimed,) = await store.claim_orphans(Lease("s", FAR), FAR + 1)
    await store.finish("r", "s", ended, conversation=claimed.conversation)
    assert await whole(store) == ["first", "to r", "Hello"]
    await store.close()


# --- export and import -----------------------------------------------------------------------------------


async def exported(store: ResponseStore) -> bytes:
    return b"".join([line async for line in store.export()])


def imported(url: str, data: bytes, tmp_path: Path) -> tuple[int, int, list[str]]:
    (tmp_path / "lines").write_bytes(data)
    refused: list[str] = []
    with (tmp_path / "lines").open("rb") as source:
        done = import_lines(database_url(url), source, lambda number, why: refused.append(f"{number}: {why}"))
    return done.new + done.conversations, done.present, refused


async def test_export_is_imported_with_everything(place: Place, tmp_path: Path) -> None:
    shared_place = Place(f"sqlite:///{tmp_path}/other.sqlite3")
    store = place.open()
    await store.conversations.create(conversation(), said("first", "x" * 400_000, "y" * 700_000, "last"))
    await store.conversations.create(conversation("conv_empty", expires_at=FAR), [])
    await store.finish("r", "w", await begin(store, "r"), conversation="conv_a")
    data = await exported(store)
    assert imported(shared_place.url, data, tmp_path) == (3, 0, [])
    assert imported(shared_place.url, data, tmp_path) == (0, 3, [])
    other = shared_place.open()
    assert await whole(other) == await whole(store)
    assert await other.conversations.get("conv_empty", "k") == conversation("conv_empty", expires_at=FAR)
    assert await other.conversations.size("conv_a", "k") == await store.conversations.size("conv_a", "k")
    assert sorted((await exported(other)).splitlines()) == sorted(data.splitlines())
    got = await other.get("r", "k")
    assert got is not None
    assert got.conversation == "conv_a"
    assert await other.conversations.add("conv_a", "k", said("more"), ROOM, None)
    await shared_place.close()


async def test_lines_of_conversations_that_are_wrong_are_named(shared_place: Place, tmp_path: Path) -> None:
    head: dict[str, Any] = {
        "conversation": "c",
        "owner": "k",
        "created_at": 1.0,
        "expires_at": None,
        "metadata": {},
        "items": 1,
    }
    item = ["a", {"type": "message", "role": "user", "content": "Hi"}]
    body: dict[str, Any] = {"items_of": "c", "items": [item]}

    def lines(*values: Any) -> bytes:
        return b"".join(json.dumps(each, separators=(",", ":")).encode() + b"\n" for each in values)

    def refused(*values: Any) -> str:
        new, _, why = imported(shared_place.url, lines(*values), tmp_path)
        assert new == 0, why
        return "; ".join(why)

    assert "1 items are missing" in refused(head)
    assert "do not follow" in refused(body)
    assert "more items" in refused(head, body | {"items": [item, ["b", item[1]]]})
    assert "the database refuses it" in refused(head | {"items": 2}, body | {"items": [item, item]})
    assert "can't be the id of an item" in refused(head, body | {"items": [["", item[1]]]})
    assert "can't be the id of a conversation" in refused(head | {"conversation": "\0"})
    assert "owner" in refused(head | {"owner": "~k"})
    assert "created_at" in refused(head | {"created_at": -1})
    assert "items is not" in refused(head | {"items": -1})
    assert "can't be read" in refused(head | {"metadata": {"a": 1}})
    assert imported(shared_place.url, lines(head, body), tmp_path) == (1, 0, [])
    assert "another owner" in refused(head | {"owner": "l"}, body)
    store = shared_place.open()
    assert await whole(store, "c") == ["Hi"]


# --- one store only --------------------------------------------------------------------------------------


async def test_memory_drops_the_conversations_that_were_changed_first() -> None:
    conversations = MemoryConversations(2, lambda: 0.0)
    for name in "abc":
        await conversations.create(conversation(name), said("x"))
        assert await conversations.add("a", "k", said(name), ROOM, None)
    assert [await conversations.get(name, "k") is not None for name in "abc"] == [True, False, True]
    small = MemoryConversations(100, lambda: 0.0, max_bytes=1000)
    for name in "abc":
        await small.create(conversation(name), said("x" * 500))
    assert [await small.get(name, "k") is not None for name in "abc"] == [False, False, True]
    store = MemoryStore(limit=1)
    await store.conversations.create(conversation(), [])
    await store.close()
    assert await store.conversations.get("conv_a", "k") is None


def test_items_get_ids_of_their_kinds_and_keep_their_own() -> None:
    own = MessageParam("user", "a", id="mine")
    first, second = named([own, MessageParam("user", "b")])
    assert first.id == "mine"
    assert second.id.startswith("msg_")
    with pytest.raises(HttpError, match="mine"):
        named([own, own])
