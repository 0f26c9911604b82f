"""What every store does (laws S1, S2, S7, S9): one suite for all of them."""

import asyncio
import gc
import json
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from openresponses_bridge.protocol.codec import decode_response, encode
from openresponses_bridge.protocol.input_items import FunctionCallOutputParam, ItemReference, MessageParam
from openresponses_bridge.protocol.unknown import UnknownItem
from openresponses_server.store import memory
from openresponses_server.store.base import (
    NOBODY,
    ChainError,
    CursorError,
    InputPage,
    Lease,
    LeaseLost,
    ResponseStore,
    StoreError,
)
from openresponses_server.store.idempotency import IdempotencyKey, KeyedResponse, KeyTaken
from openresponses_server.store.stores import open_store
from tests.support.stores import Place, frame, frames, messages, record, streamed

FAR = 4e9
ODD_IDS = ["", "a\0b", "\ud800", "x" * 10_000]


async def stored_frames(store: ResponseStore, response_id: str, owner: str = "", after: int = -1) -> bytes:
    return b"".join([each.data async for each in store.frames(response_id, owner, after)])


async def lines(store: ResponseStore) -> list[dict[str, Any]]:
    return [json.loads(line) async for line in store.export()]


def listed(page: InputPage | None) -> list[str]:
    assert page is not None
    return [each.item.content for each in page.items]  # type: ignore[union-attr,misc]


# --- stock -----------------------------------------------------------------------------------------------


async def test_bytes_of_each_owner_are_measured(store: ResponseStore) -> None:
    assert await store.stock() == {}
    await store.put(record("a", owner="k", input=messages("x" * 1000)), frames(0, 4))
    await store.put(record("b", owner="k", request=b"r" * 3000))
    await store.put(record("c", "d", owner="l"))
    sizes = await store.stock()
    own = [len(encode(got.response)) for each in "ab" if (got := await store.get(each, "k"))]
    least = sum(own) + 1000 + len(frames(0, 4).data) + 3000
    assert least < sizes["k"] < least + 200
    assert 0 < sizes["l"] < 1000
    assert await store.delete("b", "k")
    assert (await store.stock())["k"] < sizes["k"] - 3000
    assert await store.delete("a", "k")
    assert set(await store.stock()) == {"l"}


async def test_what_is_kept_for_later_turns_counts_for_its_owner(store: ResponseStore) -> None:
    await store.put(record("first", owner="k", input=messages("x" * 1000)))
    await store.put(record("second", "first", owner="k"))
    assert await store.delete("first", "k")
    assert list(await store.stock()) == ["k"]
    assert (await store.stock())["k"] > 1000


# --- what is used once -----------------------------------------------------------------------------------


async def test_a_name_is_used_once_whoever_tries(place: Place) -> None:
    first, second = place.open(), place.open()
    tries = await asyncio.gather(*(each.use_once("mcpr_1", FAR) for each in (first, second) * 5))
    assert sorted(tries) == [False] * 9 + [True]
    assert await second.use_once("mcpr_2", 5.0)
    assert not await first.use_once("mcpr_2", 5.0)
    assert await first.sweep(5.0) == 0
    assert await first.use_once("mcpr_2", FAR)
    assert not await first.use_once("mcpr_1", FAR), "it is remembered for its time"


async def test_names_in_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MOST_USED", 3)
    now = 1.0
    memory_store = memory.MemoryStore(clock=lambda: now)
    tries = [await memory_store.use_once(each, 5.0) for each in ("a", "a", "b", "c", "d")]
    assert tries == [True, False, True, True, True]
    assert len(memory_store._used) == 3
    now = 5.0
    assert await memory_store.use_once("e", 9.0)
    assert list(memory_store._used) == ["e"]


# --- put and get -----------------------------------------------------------------------------------------


async def test_record_comes_back_as_it_was_put(store: ResponseStore) -> None:
    put = record(
        "r", "p", owner="k", request=b'{"model":"m"}', created_at=7.5, expires_at=9.5, lease=Lease("w", 3.25)
    )
    await store.put(put, frames(0, 4))
    got = await store.get("r", "k")
    assert got is not None
    assert got.updated_at > put.created_at
    assert replace(got, updated_at=0.0) == replace(put, last_sequence=4)


async def test_created_at_is_now_unless_set(store: ResponseStore) -> None:
    before = time.time()
    await store.put(record("r"))
    got = await store.get("r")
    assert got is not None
    assert before <= got.created_at == got.updated_at <= time.time()


async def test_put_again_replaces_all_of_it(store: ResponseStore) -> None:
    await store.put(record("r", text="One", input=messages("a", "b", "c")), frames(0, 4))
    await store.put(record("r", text="Two", input=messages("d")), frames(0, 1, "y"))
    got = await store.get("r")
    assert got is not None
    assert (got.response.output_text, got.input) == ("Two", messages("d"))
    assert await stored_frames(store, "r") == frames(0, 1, "y").data
    assert listed(await store.input_items("r")) == ["d"]


async def test_unicode_nul_and_surrogates_come_back(store: ResponseStore) -> None:
    text = "\0 é 🎉 \u2028 \x7f"
    item = UnknownItem(
        {"type": "odd:item", "id": "\0🎉", "half": "\ud83c", "deep": [None, 1.5, {"\0": "\0"}]}
    )
    put = record("r", text=text, owner="k", input=[MessageParam("user", text), item])
    await store.put(put, frames(0, 0, text))
    got = await store.get("r", "k")
    assert got is not None
    assert (got.response.output_text, got.input) == (text, put.input)
    assert await stored_frames(store, "r", "k") == frame(0, text)
    page = await store.input_items("r", "k", after="\0🎉", order="desc")
    assert listed(page) == [text]
    (line,) = await lines(store)
    assert line["input"][1] == item.raw
    assert line["frames"] == frame(0, text).decode()


async def test_input_of_every_kind_comes_back(store: ResponseStore) -> None:
    items = [ItemReference("msg_1"), FunctionCallOutputParam("call_1", "noon"), MessageParam("user", [])]
    await store.put(record("r", input=items))
    got = await store.get("r")
    assert got is not None
    assert got.input == items


async def test_ten_megabytes_come_back(shared_place: Place) -> None:
    store = shared_place.open()
    response, sent = streamed("0123456789" * 1_048_576, response_id="r")
    await store.put(record("r", lease=Lease("w", FAR)))
    await store.finish("r", "w", response, sent)
    got = await store.get("r")
    assert got is not None
    assert got.response == response
    assert await stored_frames(store, "r") == sent.data


@pytest.mark.parametrize("odd", ODD_IDS, ids=["empty", "nul", "surrogate", "long"])
async def test_what_can_be_no_id_is_not_found(store: ResponseStore, odd: str) -> None:
    assert await store.get(odd) is None
    assert await store.input_items(odd) is None
    assert await store.delete(odd) is False
    assert await store.acquire(odd, Lease("w", FAR), 0.0) is None
    assert await stored_frames(store, odd) == b""
    with pytest.raises(ChainError) as missing:
        await store.chain(odd)
    assert missing.value.code == "previous_response_not_found"
    with pytest.raises(StoreError):
        await store.put(record(odd))
    with pytest.raises(LeaseLost):
        await store.checkpoint(odd, Lease("w", FAR))


# --- ownership -------------------------------------------------------------------------------------------


async def test_s7_another_key_finds_nothing(store: ResponseStore) -> None:
    await store.put(record("r", owner="mine"), frames(0, 1))
    for owner in ("", "yours", "mine2"):
        assert await store.get("r", owner) is None
        assert await store.input_items("r", owner) is None
        assert await stored_frames(store, "r", owner) == b""
        assert await store.delete("r", owner) is False
        with pytest.raises(ChainError):
            await store.chain("r", owner)
        with pytest.raises(StoreError) as taken:
            await store.put(record("r", owner=owner, text="Mine now"))
        assert taken.value.code == StoreError.CONFLICT
    got = await store.get("r", "mine")
    assert got is not None
    assert got.response.output_text == "Hello"


async def test_s7_a_chain_does_not_reach_into_another_keys(store: ResponseStore) -> None:
    await store.put(record("theirs", owner="theirs"))
    await store.put(record("mine", "theirs", owner="mine"))
    with pytest.raises(ChainError, match="'theirs' not found") as missing:
        await store.chain("mine", "mine")
    assert (missing.value.code, missing.value.param) == (
        "previous_response_not_found",
        "previous_response_id",
    )


# --- chains ----------------------------------------------------------------------------------------------


async def test_chain_is_oldest_first_with_input_in_order(store: ResponseStore) -> None:
    inputs = {name: messages(*(f"{name}{n}" for n in range(12))) for name in "abc"}
    for name, previous in (("c", "b"), ("a", None), ("b", "a")):
        await store.put(record(name, previous, text=name.upper(), input=inputs[name]))
    turns = await store.chain("c")
    assert [turn.response.id for turn in turns] == ["a", "b", "c"]
    assert [turn.response.output_text for turn in turns] == ["A", "B", "C"]
    assert [turn.input for turn in turns] == list(inputs.values())


async def test_case_38_a_chain_may_branch(store: ResponseStore) -> None:
    await store.put(record("root", input=[]))
    for branch in ("left", "right"):
        await store.put(record(branch, "root"))
        assert [turn.response.id for turn in await store.chain(branch)] == ["root", branch]


async def test_case_39_missing_link_is_named(store: ResponseStore) -> None:
    await store.put(record("b", "a"))
    await store.put(record("c", "b"))
    for start, missing in (("c", "a"), ("nothing", "nothing")):
        with pytest.raises(ChainError, match=f"'{missing}' not found") as error:
            await store.chain(start)
        assert (error.value.http_status, error.value.code) == (400, "previous_response_not_found")


@pytest.mark.parametrize("links", [{"a": "a"}, {"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "b"}])
async def test_circle_is_an_error(store: ResponseStore, links: dict[str, str]) -> None:
    for name, previous in links.items():
        await store.put(record(name, previous))
    with pytest.raises(ChainError) as circle:
        await store.chain("a")
    assert circle.value.code == ChainError.CYCLE


@pytest.mark.bench
async def test_chain_of_a_thousand_turns_costs_in_proportion(store: ResponseStore) -> None:
    async def cost(turns: int) -> float:
        last = f"{turns}_{turns - 1}"
        for _ in range(2):
            assert len(await store.chain(last)) == turns
        gc.collect()
        return min([await timed(last) for _ in range(5)]) / turns

    async def timed(last: str) -> float:
        start = time.perf_counter()
        await store.chain(last)
        return time.perf_counter() - start

    base = record("base")
    for turns in (250, 1000):
        links = [f"{turns}_{number - 1}" if number else None for number in range(turns)]
        responses = [
            replace(base.response, id=f"{turns}_{number}", previous_response_id=link)
            for number, link in enumerate(links)
        ]
        await asyncio.gather(*(store.put(replace(base, response=response)) for response in responses))
    assert await cost(1000) < 3 * await cost(250)


# --- input items -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_go_through_all_items_once(store: ResponseStore, order: Any) -> None:
    texts = [f"{n:02}" for n in range(23)]
    await store.put(record("r", input=messages(*texts)))
    seen: list[str] = []
    after, more = None, True
    while more:
        page = await store.input_items("r", after=after, limit=5, order=order)
        assert page is not None
        seen += listed(page)
        after, more = page.items[-1].id, page.has_more
    assert seen == (texts if order == "asc" else texts[::-1])


@pytest.mark.parametrize(
    ("order", "bounds", "expected", "more"),
    [
        ("asc", {}, "01234", True),
        ("desc", {}, "98765", True),
        ("asc", {"after": "i3"}, "45678", True),
        ("asc", {"after": "i6"}, "789", False),
        ("desc", {"after": "i3"}, "210", False),
        ("asc", {"before": "i3"}, "012", False),
        ("asc", {"before": "i8"}, "34567", True),
        ("desc", {"before": "i3"}, "87654", True),
        ("desc", {"before": "i7"}, "98", False),
        ("asc", {"after": "i2", "before": "i5"}, "34", False),
        ("desc", {"after": "i8", "before": "i1"}, "76543", True),
        ("asc", {"after": "i9"}, "", False),
        ("asc", {"after": "i5", "before": "i2"}, "", False),
    ],
)
async def test_pages_between_items(
    store: ResponseStore, order: Any, bounds: dict[str, str], expected: str, more: bool
) -> None:
    await store.put(record("r", input=[MessageParam("user", str(n), id=f"i{n}") for n in range(10)]))
    page = await store.input_items("r", limit=5, order=order, **bounds)
    assert page is not None
    assert "".join(listed(page)) == expected
    assert page.has_more is more


async def test_items_are_listed_under_their_ids_or_given_ones(store: ResponseStore) -> None:
    await store.put(record("r", input=[MessageParam("user", "a", id="own"), *messages("b", "b")]))
    page = await store.input_items("r", order="asc")
    assert page is not None
    assert page.items[0].id == "own"
    assert len({each.id for each in page.items}) == 3
    assert page == await store.input_items("r", order="asc")


@pytest.mark.parametrize("param", ["after", "before"])
async def test_unknown_cursor_is_named(store: ResponseStore, param: str) -> None:
    await store.put(record("r"))
    await store.put(record("s", input=[MessageParam("user", "a", id="of_another")]))
    for unknown in ("", "of_another", "\0"):
        with pytest.raises(CursorError) as error:
            await store.input_items("r", **{param: unknown})
        assert (error.value.http_status, error.value.param) == (400, param)


async def test_no_input_is_an_empty_page(store: ResponseStore) -> None:
    await store.put(record("r", input=[]))
    assert await store.input_items("r") == InputPage([], False)
    got = await store.get("r")
    assert got is not None
    assert got.input == []


# --- runs ------------------------------------------------------------------------------------------------


async def test_checkpoints_add_frames_and_finish_ends_the_run(store: ResponseStore) -> None:
    await store.put(record("r", status="in_progress", lease=Lease("w", 10.0)), frames(0, 1))
    part = record("r", text="Half", status="in_progress").response
    await store.checkpoint("r", Lease("w", 20.0), part, frames(2, 5))
    got = await store.get("r")
    assert got is not None
    assert (got.response, got.lease, got.last_sequence) == (part, Lease("w", 20.0), 5)
    await store.checkpoint("r", Lease("w", 30.0))
    got = await store.get("r")
    assert got is not None
    assert (got.response, got.lease, got.last_sequence) == (part, Lease("w", 30.0), 5)
    done = record("r", text="Whole").response
    await store.finish("r", "w", done, frames(6, 9))
    got = await store.get("r")
    assert got is not None
    assert (got.response, got.lease, got.last_sequence) == (done, None, 9)
    assert await stored_frames(store, "r") == frames(0, 9).data


async def test_finish_may_be_repeated_but_no_checkpoint_follows_it(store: ResponseStore) -> None:
    await store.put(record("r", lease=Lease("w", 10.0)))
    done = record("r", text="Whole").response
    for _ in range(2):
        await store.finish("r", "w", done, frames(0, 3))
    with pytest.raises(LeaseLost):
        await store.checkpoint("r", Lease("w", 20.0), None, frames(4, 4))
    assert await stored_frames(store, "r") == frames(0, 3).data


async def test_checkpoint_made_again_with_more_replaces_the_first(store: ResponseStore) -> None:
    await store.put(record("r", lease=Lease("w", 10.0)))
    await store.checkpoint("r", Lease("w", 10.0), None, frames(0, 2))
    await store.checkpoint("r", Lease("w", 10.0), None, frames(0, 6))
    await store.checkpoint("r", Lease("w", 10.0), None, frames(7, 8))
    assert await stored_frames(store, "r") == frames(0, 8).data


async def test_s2_frames_after_any_number(store: ResponseStore) -> None:
    await store.put(record("r", lease=Lease("w", 10.0)))
    for first, last in [(0, 3), (4, 4), *((n, n) for n in range(5, 70)), (70, 99)]:
        await store.checkpoint("r", Lease("w", 10.0), None, frames(first, last))
    for after in (-1, 0, 3, 4, 70, 71, 98, 99, 100, 2**70):
        rest = b"".join(frame(n) for n in range(after + 1, 100)) if after < 100 else b""
        assert await stored_frames(store, "r", after=after) == rest, after


async def test_s9_a_run_belongs_to_its_worker(store: ResponseStore) -> None:
    await store.put(record("r", lease=Lease("w", 10.0)))
    stranger = record("r", text="Not mine").response
    with pytest.raises(LeaseLost):
        await store.checkpoint("r", Lease("v", 20.0), stranger, frames(0, 0))
    with pytest.raises(LeaseLost):
        await store.finish("r", "v", stranger, frames(0, 0))
    with pytest.raises(LeaseLost):
        await store.finish("unknown", "w", stranger)
    got = await store.get("r")
    assert got is not None
    assert (got.response.output_text, got.lease, got.last_sequence) == ("Hello", Lease("w", 10.0), -1)


async def test_s1_end_that_its_worker_says_last_stands(store: ResponseStore) -> None:
    """It is what the client was sent: the worker does not know that the one before was stored."""
    await store.put(record("r", lease=Lease("w", 10.0)), frames(0, 1))
    await store.finish("r", "w", record("r", text="Ended").response, frames(2, 3))
    failed = record("r", text="Failed", status="failed").response
    for _ in range(2):
        await store.finish("r", "w", failed, frames(2, 4, "z"))
    got = await store.get("r")
    assert got is not None
    assert (got.response, got.lease, got.last_sequence) == (failed, None, 4)
    assert await stored_frames(store, "r") == frames(0, 1).data + frames(2, 4, "z").data
    with pytest.raises(LeaseLost):
        await store.finish("r", "v", record("r", text="Another's").response, frames(2, 5))


async def test_s1_a_checkpoint_that_arrives_late_undoes_nothing(store: ResponseStore) -> None:
    """It was given up and made again with more, and the store executes it after that."""
    await store.put(record("r", lease=Lease("w", 10.0)), frames(0, 1))
    await store.checkpoint("r", Lease("w", 30.0), record("r", text="More").response, frames(2, 6))
    with pytest.raises(LeaseLost):
        await store.checkpoint("r", Lease("w", 20.0), record("r", text="Less").response, frames(2, 4))
    got = await store.get("r")
    assert got is not None
    assert (got.response.output_text, got.lease, got.last_sequence) == ("More", Lease("w", 30.0), 6)
    assert await stored_frames(store, "r") == frames(0, 6).data


async def test_a_run_is_acquired_once_more_by_its_worker(store: ResponseStore) -> None:
    """Whose answer was lost."""
    await store.put(record("r", lease=Lease(NOBODY, 10.0)))
    for worker, gets in (("w", True), ("w", True), ("v", False)):
        assert (await store.acquire("r", Lease(worker, 20.0), 5.0) is not None) is gets
    await store.finish("r", "w", record("r").response)
    assert await store.acquire("r", Lease("w", 20.0), 5.0) is None


async def test_leases_of_many_runs_are_renewed_together(store: ResponseStore) -> None:
    workers = {f"r{number}": f"w{number}" for number in range(1100)}
    for response_id in ("r0", "r700", "r1099"):
        await store.put(record(response_id, lease=Lease(workers[response_id], 10.0)))
    await store.put(record("r1", lease=Lease("another", 10.0)))
    await store.put(record("r2", lease=Lease("w2", 10.0)))
    await store.finish("r2", "w2", record("r2").response)
    assert await store.renew(workers, 20.0) == workers.keys() - {"r0", "r700", "r1099"}
    leases = {}
    for response_id in ("r0", "r1", "r2", "r700", "r1099"):
        got = await store.get(response_id)
        assert got is not None
        leases[response_id] = got.lease
    assert leases == {
        "r0": Lease("w0", 20.0),
        "r1": Lease("another", 10.0),
        "r2": None,
        "r700": Lease("w700", 20.0),
        "r1099": Lease("w1099", 20.0),
    }
    assert await store.renew({}, 30.0) == set()


async def test_renewing_and_claiming_at_once_hands_each_run_to_one(place: Place) -> None:
    """A lease that is over may be renewed or claimed, not both; and nobody waits for another for ever."""
    stores = [place.open() for _ in range(3)]
    workers = {f"r{number}": f"w{number}" for number in range(40)}
    for response_id, worker in workers.items():
        await stores[0].put(record(response_id, lease=Lease(worker, 10.0)))
    names = list(workers)
    works: list[Any] = []
    for number in range(8):
        order = names if number % 2 else names[::-1]
        works.append(stores[number % 3].renew({each: workers[each] for each in order}, 40.0))
        works.append(stores[number % 3].claim_orphans(Lease(f"v{number}", 40.0), 15.0, limit=7))
    await asyncio.gather(*works)
    lost = await stores[1].renew(workers, 50.0)
    got = [await stores[0].get(each) for each in workers]
    assert {each.response.id for each in got if each and each.lease and each.lease.worker[0] == "v"} == lost
    assert await stores[2].claim_orphans(Lease("u", 60.0), 15.0) == []


async def test_store_is_named_by_where_it_is(place: Place, tmp_path: Path) -> None:
    first, second = place.open(), place.open()
    assert first.name == second.name
    assert first.name != open_store(f"sqlite:///{tmp_path}/another.sqlite3").name


async def test_time_of_the_store_is_now(store: ResponseStore) -> None:
    assert abs(await store.now() - time.time()) < 5
    first = await store.now()
    assert await store.now() >= first


async def test_deleted_run_has_lost_its_lease(store: ResponseStore) -> None:
    await store.put(record("r", lease=Lease("w", 10.0)))
    assert await store.delete("r")
    with pytest.raises(LeaseLost):
        await store.checkpoint("r", Lease("w", 20.0), None, frames(0, 0))
    with pytest.raises(LeaseLost):
        await store.finish("r", "w", record("r").response)
    assert await store.get("r") is None


async def test_waiting_run_is_taken_once(store: ResponseStore) -> None:
    await store.put(record("r", owner="k", request=b"{}", status="queued", lease=Lease(NOBODY, 10.0)))
    taken = [await store.acquire("r", Lease(worker, 20.0), 5.0) for worker in ("v", "w")]
    assert taken[1] is None
    assert taken[0] is not None
    assert (taken[0].owner, taken[0].request, taken[0].lease) == ("k", b"{}", Lease("v", 20.0))
    assert taken[0].input == messages("to r", "and more")


async def test_running_or_ended_run_is_not_taken(store: ResponseStore) -> None:
    await store.put(record("running", lease=Lease("w", 10.0)))
    await store.put(record("ended"))
    for name in ("running", "ended", "unknown"):
        assert await store.acquire(name, Lease("v", 20.0), 5.0) is None
    taken = await store.acquire("running", Lease("v", 20.0), 11.0)
    assert taken is not None
    with pytest.raises(LeaseLost):
        await store.checkpoint("running", Lease("w", 30.0))


async def test_orphans_are_those_whose_lease_is_over(store: ResponseStore) -> None:
    for name, owner, until in (("a", "k", 10.0), ("b", "l", 11.0), ("c", "k", 20.0)):
        await store.put(record(name, owner=owner, lease=Lease("w", until)), frames(0, 2))
    await store.put(record("waiting", lease=Lease(NOBODY, 12.0)))
    await store.put(record("ended"))
    claimed = await store.claim_orphans(Lease("v", 30.0), 15.0)
    assert sorted(each.response.id for each in claimed) == ["a", "b", "waiting"]
    assert {each.response.id: (each.owner, each.last_sequence) for each in claimed}["b"] == ("l", 2)
    assert all(each.lease == Lease("v", 30.0) for each in claimed)
    assert await store.claim_orphans(Lease("u", 30.0), 15.0) == []
    await store.finish("a", "v", record("a", text="Settled").response)
    assert len(await store.claim_orphans(Lease("u", 50.0), 40.0)) == 3


async def test_orphans_are_taken_without_those_that_wait_for_any_worker(store: ResponseStore) -> None:
    await store.put(record("waiting", lease=Lease(NOBODY, 10.0)))
    await store.put(record("begun", lease=Lease("w-1", 10.0)))
    claimed = await store.claim_orphans(Lease("v-1", 30.0), 15.0, waiting=False)
    assert [each.response.id for each in claimed] == ["begun"]


async def test_runs_of_a_process_are_claimed_however_long_their_leases(store: ResponseStore) -> None:
    for name, worker in (("a", "w-1"), ("b", "w-22"), ("c", "ww-1"), ("d", "v-w-1"), ("e", NOBODY)):
        await store.put(record(name, owner=name, lease=Lease(worker, 1000.0)), frames(0, 2))
    await store.put(record("ended", lease=Lease("w-3", 1000.0)))
    await store.finish("ended", "w-3", record("ended").response)
    claimed = [each for _ in range(2) for each in await store.claim_of("w", Lease("u-1", 2000.0), limit=1)]
    assert sorted((each.response.id, each.last_sequence) for each in claimed) == [("a", 2), ("b", 2)]
    assert all(each.lease == Lease("u-1", 2000.0) for each in claimed)
    assert await store.claim_of("w", Lease("u-2", 2000.0)) == []


async def test_run_that_is_given_back_waits_for_any_worker(store: ResponseStore) -> None:
    for name in ("a", "b", "c"):
        await store.put(record(name, request=b"{}", status="queued", lease=Lease(f"w-{name}", 1000.0)))
    await store.release({"a": "w-a", "b": "another-1", "unknown": "w-a"}, 50.0)
    taken = await store.claim_waiting(Lease("v-1", 60.0), 51.0, limit=9)
    assert [each.response.id for each in taken] == ["a"]
    with pytest.raises(LeaseLost):
        await store.checkpoint("a", Lease("w-a", 1000.0))


async def test_waiting_runs_are_claimed_before_their_lease_is_over_and_others_are_not(place: Place) -> None:
    stores = [place.open() for _ in range(3)]
    for number in range(6):
        await stores[0].put(record(f"w{number}", status="queued", lease=Lease(NOBODY, 10.0 + number)))
    await stores[0].put(record("running", lease=Lease("w", 10.0)))
    await stores[0].put(record("ended"))
    claims = [stores[n % 3].claim_waiting(Lease(f"v{n}", 30.0), 14.0, limit=n % 2 + 1) for n in range(8)]
    taken = [each.response.id for claim in await asyncio.gather(*claims) for each in claim]
    taken += [each.response.id for each in await stores[1].claim_waiting(Lease("u", 30.0), 14.0, limit=9)]
    assert sorted(taken) == ["w0", "w1", "w2", "w3"]
    assert await stores[0].claim_waiting(Lease("u", 30.0), 14.0) == []
    assert len(await stores[0].claim_waiting(Lease("u", 30.0), 20.0)) == 1


async def test_claims_are_limited(store: ResponseStore) -> None:
    for number in range(5):
        await store.put(record(f"r{number}", lease=Lease("w", 10.0)))
    counts = [len(await store.claim_orphans(Lease("v", 30.0), 15.0, limit=2)) for _ in range(4)]
    assert counts == [2, 2, 1, 0]


async def test_many_claim_and_each_orphan_goes_to_one(place: Place) -> None:
    stores = [place.open() for _ in range(4)]
    for number in range(40):
        await stores[0].put(record(f"r{number}", lease=Lease("w", 10.0)))
    claims = await asyncio.gather(
        *(stores[n % 4].claim_orphans(Lease(f"v{n}", 30.0), 15.0, limit=7) for n in range(24))
    )
    claimed = [each.response.id for claim in claims for each in claim]
    assert len(claimed) == len(set(claimed))
    rest = await stores[0].claim_orphans(Lease("last", 30.0), 15.0)
    assert len(claimed) + len(rest) == 40


async def test_many_acquire_and_one_succeeds(place: Place) -> None:
    stores = [place.open() for _ in range(3)]
    await stores[0].put(record("r", lease=Lease(NOBODY, 10.0)))
    taken = await asyncio.gather(*(stores[n % 3].acquire("r", Lease(f"w{n}", 20.0), 5.0) for n in range(12)))
    (winner,) = [each for each in taken if each is not None]
    assert winner.lease is not None
    await stores[1].finish("r", winner.lease.worker, winner.response)


async def test_s7_what_an_owner_has_not_is_missing(store: ResponseStore) -> None:
    await store.put(record("mine", owner="k"))
    await store.put(record("theirs", owner="l"))
    await store.put(record("expired", owner="k", expires_at=time.time() - 1))
    await store.put(record("running", owner="k", lease=Lease("w", FAR)))
    requested = {"mine", "theirs", "expired", "running", "nobody's", *ODD_IDS}
    assert await store.missing(requested, "k") == requested - {"mine", "running"}
    assert await store.missing([], "k") == set()
    many = [f"r{number}" for number in range(1100)]
    assert await store.missing(["mine", *many], "k") == set(many)


# --- forgetting ------------------------------------------------------------------------------------------


async def test_deleted_is_gone_with_all_that_belongs_to_it(store: ResponseStore) -> None:
    await store.put(record("r"), frames(0, 3))
    assert await store.delete("r") is True
    assert await store.delete("r") is False
    assert await store.get("r") is None
    assert await store.input_items("r") is None
    assert await stored_frames(store, "r") == b""
    await store.put(record("r", input=[]))
    assert await store.input_items("r") == InputPage([], False)
    assert await stored_frames(store, "r") == b""


async def test_retention_forgets_what_expired_and_ended(store: ResponseStore) -> None:
    now = time.time() + 6000
    for name, expires_at in (("past", now - 1), ("now", now), ("later", now + 1), ("never", None)):
        await store.put(record(name, expires_at=expires_at), frames(0, 1))
    await store.put(record("running", expires_at=now - 1, lease=Lease("w", FAR)))
    assert await store.sweep(now) == 2
    assert await store.sweep(now) == 0
    remaining = [name for name in ("past", "now", "later", "never", "running") if await store.get(name)]
    assert remaining == ["later", "never", "running"]
    assert await stored_frames(store, "past") == b""


async def test_what_expired_is_not_there_though_not_swept(store: ResponseStore) -> None:
    past = time.time() - 1
    own = [MessageParam("user", "a", id="in")]
    await store.put(record("gone", expires_at=past, input=own), frames(0, 1))
    await store.put(record("link", "missing"))
    assert await store.get("gone") is None
    assert await store.input_items("gone") is None
    assert await store.items(["in", record("gone").response.output[0].id]) == {}
    assert await stored_frames(store, "gone") == b""
    for response_id in ("gone", "link"):
        with pytest.raises(ChainError) as missing:
            await store.chain(response_id)
        assert missing.value.code == "previous_response_not_found"
    assert len(await lines(store)) == 2
    assert await store.sweep(time.time()) == 1


async def test_run_outlives_its_expiry_and_goes_with_its_end(store: ResponseStore) -> None:
    await store.put(record("r", expires_at=time.time() - 1, lease=Lease("w", FAR)), frames(0, 1))
    assert await store.get("r") is not None
    assert len(await store.chain("r")) == 1
    assert await stored_frames(store, "r") == frames(0, 1).data
    await store.finish("r", "w", record("r").response)
    assert await store.get("r") is None


async def test_item_is_found_where_it_has_not_expired(store: ResponseStore) -> None:
    for name, text, expires_at in (("kept", "a", None), ("gone", "b", time.time() - 1)):
        await store.put(record(name, input=[MessageParam("user", text, id="same")], expires_at=expires_at))
    assert await store.items(["same"]) == {"same": MessageParam("user", "a", id="same")}


async def test_retention_of_many(store: ResponseStore) -> None:
    base = record("r", expires_at=1.0, input=[])
    responses = [replace(base.response, id=f"r{number}") for number in range(1003)]
    for start in range(0, len(responses), 100):  # what waits for a connection waits for some seconds only
        some = responses[start : start + 100]
        await asyncio.gather(*(store.put(replace(base, response=response)) for response in some))
    assert await store.sweep(2.0) == 1003
    assert await lines(store) == []


# --- export ----------------------------------------------------------------------------------------------


async def test_export_is_a_line_per_record_with_everything(store: ResponseStore) -> None:
    for number in range(120):
        await store.put(record(f"r{number}", input=messages("a\nb"), owner=f"k{number % 2}"))
    await store.put(
        record("whole", "r0", request=b'{\n  "model": "m"\n}', expires_at=5.0, lease=Lease("w", 3.0)),
        frames(0, 0),
    )
    await store.checkpoint("whole", Lease("w", 4.0), None, frames(1, 2))
    exported = {line["id"]: line for line in await lines(store)}
    assert len(exported) == 121
    whole = exported["whole"]
    assert whole["request"] == {"model": "m"}
    assert whole["frames"] == frames(0, 2).data.decode()
    assert (whole["expires_at"], whole["lease"]) == (5.0, {"worker": "w", "until": 4.0})
    assert whole["previous_response_id"] == "r0"
    got = await store.get("whole")
    assert got is not None
    assert decode_response(encode(whole["response"])) == got.response
    assert exported["r1"]["owner"] == "k1"
    assert exported["r1"]["input"] == [{"type": "message", "role": "user", "content": "a\nb"}]


async def test_export_of_nothing_is_nothing(store: ResponseStore) -> None:
    assert await lines(store) == []


# --- many at once, and afterwards ------------------------------------------------------------------------


async def test_many_runs_at_once_do_not_mix(place: Place) -> None:
    stores = [place.open(), place.open()]

    async def run(number: int) -> None:
        store, name, worker = stores[number % 2], f"r{number}", f"w{number}"
        await store.put(record(name, lease=Lease(worker, 10.0)))
        for first in range(0, 12, 3):
            await store.checkpoint(name, Lease(worker, 10.0), None, frames(first, first + 2, name))
        await store.finish(name, worker, record(name, text=name).response, frames(12, 12, name))

    await asyncio.gather(*(run(number) for number in range(30)))
    for number in range(30):
        name = f"r{number}"
        got = await stores[(number + 1) % 2].get(name)
        assert got is not None
        assert got.response.output_text == name
        assert await stored_frames(stores[0], name) == frames(0, 12, name).data


async def test_s2_another_store_sees_everything_after_a_restart(shared_place: Place) -> None:
    first = shared_place.open()
    await first.put(record("a", owner="k"), frames(0, 2))
    await first.put(record("b", "a", owner="k", lease=Lease("w", 10.0)), frames(0, 1))
    await first.checkpoint("b", Lease("w", 10.0), None, frames(2, 3))
    before = [line async for line in first.export()]
    await first.close()
    second = shared_place.open()
    assert [line async for line in second.export()] == before
    assert [turn.response.id for turn in await second.chain("b", "k")] == ["a", "b"]
    assert await stored_frames(second, "b", "k", 1) == frames(2, 3).data
    (orphan,) = await second.claim_orphans(Lease("v", 20.0), 11.0)
    assert orphan.response.id == "b"


async def test_frames_are_read_while_the_run_goes_on(store: ResponseStore) -> None:
    await store.put(record("r", lease=Lease("w", 10.0)), frames(0, 0))
    for number in range(1, 80):
        await store.checkpoint("r", Lease("w", 10.0), None, frames(number, number))
    got = b""
    async for each in store.frames("r"):
        if not got:
            await store.finish("r", "w", record("r").response, frames(80, 80))
        got += each.data
    assert frames(0, 80).data.startswith(got)
    assert len(got) >= len(frames(0, 79).data)


# --- sizes -----------------------------------------------------------------------------------------------


async def test_size_is_what_a_chain_would_read(store: ResponseStore) -> None:
    await store.put(record("a", owner="k", input=messages("one" * 1000)))
    await store.put(record("b", "a", owner="k", input=messages("two" * 1000, "three" * 1000)))
    first, both = await store.size("a", "k"), await store.size("b", "k")
    shown = [json.loads(line) for line in [line async for line in store.export()]]
    sizes = {each["id"]: len(json.dumps([each["input"], each["response"]])) for each in shown}
    assert 3000 < first < both
    assert first == pytest.approx(sizes["a"], rel=0.2)
    assert both == pytest.approx(sizes["a"] + sizes["b"], rel=0.2)


@pytest.mark.parametrize("unknown", ["nothing", *ODD_IDS])
async def test_size_of_what_is_not_there_is_nothing(store: ResponseStore, unknown: str) -> None:
    await store.put(record("a", owner="k"))
    assert await store.size(unknown, "k") == 0
    assert await store.size("a", "other") == 0


async def test_size_ends_where_a_chain_is_broken_or_a_circle(store: ResponseStore) -> None:
    await store.put(record("a", "gone"))
    await store.put(record("b", "c"))
    await store.put(record("c", "b"))
    assert await store.size("a") > 0
    assert await store.size("b") == await store.size("c") > 0


# --- runs that wait --------------------------------------------------------------------------------------


async def test_waiting_runs_are_counted_by_owner(store: ResponseStore) -> None:
    assert await store.waiting("a", 10) == (0, 0)
    for number in range(5):
        await store.put(record(f"a{number}", owner="a", lease=Lease(NOBODY, FAR)))
    await store.put(record("b", owner="b", lease=Lease(NOBODY, FAR)))
    await store.put(record("made", owner="a", lease=Lease("w", FAR)))
    await store.put(record("ended", owner="a"))
    assert await store.waiting("a", 10) == (6, 5)
    assert await store.waiting("b", 10) == (6, 1)
    assert await store.waiting("a", 3) == (3, 3)
    assert await store.acquire("a0", Lease("w", FAR), 0.0) is not None
    await store.delete("a1", "a")
    assert await store.waiting("a", 10) == (4, 3)


async def test_waiting_runs_are_claimed_of_others_than_those(store: ResponseStore) -> None:
    for number, owner in enumerate(("a", "a", "b", "c")):
        await store.put(record(f"r{number}", owner=owner, lease=Lease(NOBODY, 10.0 + number)))
    lease = Lease("w", FAR)
    (claimed,) = await store.claim_waiting(lease, 100.0, not_of=["a", "c"])
    assert claimed.owner == "b"
    assert await store.claim_waiting(lease, 100.0, not_of=["a", "c"]) == []
    assert [each.response.id for each in await store.claim_waiting(lease, 100.0)] == ["r0"]


# --- idempotency keys --------------------------------------------------------------------------------------


def key(name: str = "a", request: str = "b", until: float = 4e9) -> IdempotencyKey:
    return IdempotencyKey(name * 64, request * 64, until)


async def test_a_key_stands_for_the_first_response_of_its_owner(place: Place) -> None:
    store, other = place.open(), place.open()
    await store.put(record("r", owner="k", lease=Lease("w", 4e9)), key=key())
    for _ in range(2):  # the answer to the first may have been lost
        await store.put(record("r", owner="k", lease=Lease("w", 4e9)), key=key())
    for name in ("s", "t"):
        with pytest.raises(KeyTaken) as taken:
            await other.put(record(name, owner="k", lease=Lease("v", 4e9)), key=key(request="c"))
        assert taken.value.found == KeyedResponse("r", "b" * 64)
        assert await store.get(name, "k") is None
    assert await other.keyed("a" * 64, "k") == KeyedResponse("r", "b" * 64)
    assert await other.keyed("a" * 64, "another") is None
    assert await other.keyed("c" * 64, "k") is None
    await store.finish("r", "w", record("r", owner="k").response)
    assert await other.keyed("a" * 64, "k") == KeyedResponse("r", "b" * 64)
    await store.put(record("s", owner="k"), key=key("c"))
    assert await other.keyed("c" * 64, "k") == KeyedResponse("s", "b" * 64)


async def test_of_many_requests_with_one_key_one_has_the_response(place: Place) -> None:
    stores = [place.open() for _ in range(4)]

    async def try_(number: int) -> str | None:
        try:
            await stores[number % 4].put(record(f"r{number}", owner="k", lease=Lease("w", 4e9)), key=key())
        except KeyTaken as taken:
            return taken.found.response_id
        return None

    results = await asyncio.gather(*map(try_, range(12)))
    (first,) = [f"r{number}" for number, taken in enumerate(results) if taken is None]
    assert {each for each in results if each is not None} == {first}
    there = [number for number in range(12) if await stores[0].get(f"r{number}", "k") is not None]
    assert there == [int(first[1:])]


@pytest.mark.parametrize("how", ["failed", "deleted", "hidden", "expired", "late"])
async def test_a_key_is_free_once_its_response_is_of_no_use(store: ResponseStore, how: str) -> None:
    until, expires_at = (1.0, None) if how == "late" else (4e9, 1.0 if how == "expired" else None)
    first = replace(record("r", owner="k", lease=Lease("w", 4e9)), expires_at=expires_at)
    await store.put(first, key=key(until=until))
    status: Any = "failed" if how == "failed" else "completed"
    await store.finish("r", "w", record("r", owner="k", status=status).response)
    if how == "hidden":
        await store.put(record("later", owner="k", previous="r"))
    if how in ("deleted", "hidden"):
        assert await store.delete("r", "k")
    assert await store.keyed("a" * 64, "k") is None
    await store.put(record("s", owner="k"), key=key(request="c"))
    assert await store.keyed("a" * 64, "k") == KeyedResponse("s", "c" * 64)
    await store.sweep(2.0)
    assert await store.keyed("a" * 64, "k") == KeyedResponse("s", "c" * 64)
    await store.sweep(4e9)
    await store.put(record("t", owner="k"), key=key(until=5e9))


async def test_a_key_is_exported_with_its_response(store: ResponseStore) -> None:
    await store.put(record("r", owner="k"), key=key())
    await store.put(record("s", owner="k"))
    lines = [json.loads(line) async for line in store.export()]
    assert [each.get("idempotency_key") for each in lines] == [
        {"name": "a" * 64, "request": "b" * 64, "until": 4e9},
        None,
    ]
