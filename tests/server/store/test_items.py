"""Items by their ids, in every store: which are found, for which owner, and how long (laws S1, S7)."""

import time
from typing import Any

import pytest
from msgspec.structs import replace

from openresponses_bridge.protocol.codec import item_from
from openresponses_bridge.protocol.input_items import (
    FunctionCallParam,
    InputItem,
    ItemReference,
    MessageParam,
    ReasoningParam,
)
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.protocol.unknown import UnknownItem
from openresponses_server.store.base import Lease, ResponseStore, TooLarge
from openresponses_server.store.memory import MemoryStore
from tests.support.stores import each_kind, frames, messages, record

HELD = Lease("w", 10.0)


def said(item_id: str, text: str = "Hello") -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        "type": "message",
        "id": item_id,
        "status": "completed",
        "role": "assistant",
        "content": [part],
    }


def output(response_id: str, *items: dict[str, Any]) -> Response:
    return replace(record(response_id).response, output=[item_from(item) for item in items])


async def put(store: ResponseStore, response_id: str, *items: dict[str, Any], **fields: Any) -> None:
    template = record(response_id, **fields)
    await store.put(replace(template, response=output(response_id, *items)))


async def texts(store: ResponseStore, *ids: str, owner: str = "") -> dict[str, str]:
    items = await store.items(ids, owner)
    return {item_id: text_of(item) for item_id, item in items.items()}


def text_of(item: InputItem) -> str:
    assert isinstance(item, MessageParam)
    return item.content if isinstance(item.content, str) else item.content[0].text  # type: ignore[union-attr]


async def test_output_items_are_found_as_input(store: ResponseStore) -> None:
    call = {
        "type": "function_call",
        "id": "fc",
        "call_id": "c",
        "name": "f",
        "arguments": "{}",
        "status": "completed",
    }
    thought = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "sealed"}
    odd = {"type": "slug:odd", "id": "odd", "half": "\ud83c", "nul": "\0"}
    await put(store, "r", thought, call, said("msg", "\0 é 🎉"), odd)
    items = await store.items(["fc", "rs", "msg", "odd", "nobody's"])
    assert items.keys() == {"fc", "rs", "msg", "odd"}
    assert items["fc"] == FunctionCallParam("c", "f", "{}", id="fc", status="completed")
    assert items["rs"] == ReasoningParam([], id="rs", encrypted_content="sealed")
    assert text_of(items["msg"]) == "\0 é 🎉"
    assert items["odd"] == UnknownItem(odd)


async def test_input_items_are_found_under_the_ids_they_are_listed_under(store: ResponseStore) -> None:
    await put(store, "r", input=[MessageParam("user", "a", id="own"), *messages("b", "c")])
    page = await store.input_items("r", order="asc")
    assert page is not None
    ids = [listed.id for listed in page.items]
    assert await texts(store, *ids) == dict(zip(ids, "abc", strict=True))


async def test_s7_another_key_s_items_are_not_found(store: ResponseStore) -> None:
    await put(store, "theirs", said("out"), owner="them", input=[MessageParam("user", "x", id="in")])
    for owner in ("", "me", "the"):
        assert await store.items(["out", "in"], owner) == {}
    assert (await store.items(["out", "in"], "them")).keys() == {"out", "in"}
    await put(store, "mine", said("out", "Mine"), owner="me")
    assert await texts(store, "out", owner="me") == {"out": "Mine"}
    assert await texts(store, "out", owner="them") == {"out": "Hello"}


async def test_output_is_found_from_the_response_s_end_on(store: ResponseStore) -> None:
    await put(store, "r", said("early"), lease=HELD, input=[MessageParam("user", "a", id="in")])
    await store.checkpoint("r", HELD, output("r", said("early"), said("later")), frames(0, 1))
    assert (await store.items(["early", "later", "in"])).keys() == {"in"}
    for _ in range(2):
        await store.finish("r", "w", output("r", said("early"), said("later", "Done")))
        assert await texts(store, "early", "later") == {"early": "Hello", "later": "Done"}


async def test_record_put_again_has_its_own_items_only(store: ResponseStore) -> None:
    await put(store, "before", said("both", "Kept"), created_at=1.0)
    olds: list[InputItem] = [MessageParam("user", "a", id="old_in")]
    await put(store, "r", said("old"), said("both", "Replaced"), input=olds)
    await put(store, "r", said("new"), input=[MessageParam("user", "b", id="new_in")])
    contents = await texts(store, "old", "old_in", "new", "new_in", "both")
    assert contents == {"new": "Hello", "new_in": "b", "both": "Kept"}


async def test_output_goes_before_input_and_then_the_newest(store: ResponseStore) -> None:
    await put(store, "a", said("out", "2"), created_at=2.0, input=[MessageParam("user", "2", id="in")])
    await put(store, "b", said("out", "1"), created_at=1.0, input=[MessageParam("user", "1", id="in")])
    echoed: list[InputItem] = [MessageParam("assistant", "echoed", id="out")]
    await put(store, "c", created_at=3.0, input=echoed)
    assert await texts(store, "out", "in") == {"out": "2", "in": "2"}
    await store.delete("a")
    assert await texts(store, "out", "in") == {"out": "1", "in": "1"}
    await store.delete("b")
    assert await texts(store, "out", "in") == {"out": "echoed"}
    await store.delete("c")
    assert await store.items(["out", "in"]) == {}


async def test_same_id_twice_in_one_input_is_the_latter(store: ResponseStore) -> None:
    await put(store, "r", input=[MessageParam("user", "a", id="in"), MessageParam("user", "b", id="in")])
    assert await texts(store, "in") == {"in": "b"}


async def test_what_is_swept_is_not_found(store: ResponseStore) -> None:
    now = time.time()
    for name, until in (("old", now + 60), ("new", now + 90)):
        await put(
            store,
            name,
            said(f"{name}_out"),
            expires_at=until,
            input=[MessageParam("user", "a", id=f"{name}_in")],
        )
    assert await store.sweep(now + 75) == 1
    items = await store.items(["old_out", "old_in", "new_out", "new_in"])
    assert items.keys() == {"new_out", "new_in"}


async def test_reference_that_was_stored_as_it_came_names_nothing(store: ResponseStore) -> None:
    await put(store, "r", input=[ItemReference("msg")])
    assert await store.items(["msg"]) == {}


@pytest.mark.parametrize("odd", ["a\0b", "\ud800", "é🎉", "x" * 512])
async def test_any_string_is_an_id(store: ResponseStore, odd: str) -> None:
    await put(store, "r", said(odd), input=[MessageParam("user", "in", id=f"in{odd}"[:512])])
    assert await texts(store, odd) == {odd: "Hello"}
    assert len(await store.items([f"in{odd}"[:512]])) == 1


@pytest.mark.parametrize("odd", ["", "x" * 513, "\n" * 10_000], ids=["empty", "long", "longer"])
async def test_ids_beyond_reason_are_stored_and_name_nothing(store: ResponseStore, odd: str) -> None:
    await put(store, "r", said(odd), said("msg"), input=[MessageParam("user", "a", id=odd)])
    await put(store, "s", lease=HELD)
    await store.finish("s", "w", output("s", said(odd)))
    assert (await store.items([odd, "msg"])).keys() == {"msg"}
    got = await store.get("r")
    assert got is not None
    assert [item.id for item in got.response.output] == [odd, "msg"]


@each_kind
async def test_more_at_once_than_a_statement_takes(store: ResponseStore) -> None:
    ids = [f"in{number}" for number in range(2_000)]
    await put(store, "r", input=[MessageParam("user", each, id=each) for each in ids])
    unknown = [f"out{number}" for number in range(70_000)]
    assert await texts(store, *unknown, *ids, "in0") == {each: each for each in ids}
    assert await store.items([]) == {}


async def test_items_beyond_the_limit_are_not_read(store: ResponseStore) -> None:
    await put(store, "r", input=[MessageParam("user", "x" * 1000, id="a"), MessageParam("user", "b", id="b")])
    await put(store, "s", said("out"))
    assert (await store.items(["a", "b"], most=3000)).keys() == {"a", "b"}
    with pytest.raises(TooLarge) as refused:
        await store.items(["a", "b"], most=1000)
    assert (refused.value.code, refused.value.param) == (TooLarge.REFERENCES, "input")
    assert (await store.items(["b"], most=1000)).keys() == {"b"}
    with pytest.raises(TooLarge):  # the response is read as a whole
        await store.items(["out"], most=100)


async def test_a_store_in_memory_has_nothing_left_once_it_is_closed() -> None:
    store = MemoryStore()
    await put(store, "r", said("out"), input=[MessageParam("user", "One", id="in")])
    assert (await texts(store, "in", "out")).keys() == {"in", "out"}
    await store.close()
    assert await texts(store, "in", "out") == {}
