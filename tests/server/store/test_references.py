"""Input items that refer to items of stored responses (`item_reference`)."""

from collections.abc import Iterator
from typing import Any

import pytest

from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.input_items import ItemReference, MessageParam
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.limits.memory import Available, MemoryBudget
from openresponses_server.settings import Settings
from openresponses_server.settings.files import hashed
from openresponses_server.store.base import TooLarge
from openresponses_server.store.history import Conversation, resolved
from openresponses_server.store.memory import MemoryStore
from openresponses_server.store.records import decode_input
from tests.support import anthropic as messages
from tests.support import dialect_scripts as scripts
from tests.support.conversation_turns import calls, said
from tests.support.serving import Reply, call, respond, serving, stream, wait_for
from tests.support.sockets import opened_socket
from tests.support.upstream import Script, ScriptedUpstream, text

NOT_FOUND = "item_not_found"
TOOL = {"type": "function", "name": "get_time", "parameters": {"type": "object", "properties": {}}}
ALICE = {"authorization": "Bearer key-of-alice"}
BOB = {"authorization": "Bearer key-of-bob"}


def to(*ids: str) -> list[dict[str, Any]]:
    return [{"type": "item_reference", "id": each} for each in ids]


def user(words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": words, **fields}


def contents(upstream: ScriptedUpstream, model: str) -> list[tuple[str, str]]:
    return [(each["role"], each["content"]) for each in upstream.last(model).body["messages"]]


def refused(reply: Reply) -> tuple[int, str, str, str]:
    return reply.status, reply.error["type"], reply.error["code"], reply.error["param"]


@pytest.fixture
def first(bridged: str, upstream: ScriptedUpstream) -> dict[str, Any]:
    """A stored response that answers "Answer" to "One", whose id is `in_one`."""
    upstream.scripts["refers"] = Script(text("Answer"))
    reply = stream(bridged, model="refers", input=[user("One", id="in_one")])
    response: dict[str, Any] = reply.final
    return response


# ── what is referred to ────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "kind", [{"type": "item_reference"}, {"type": None}, {}], ids=["type", "null", "none"]
)
def test_reference_stands_for_the_item(
    bridged: str, upstream: ScriptedUpstream, first: dict[str, Any], kind: dict[str, Any]
) -> None:
    items = [{**kind, "id": "in_one"}, {**kind, "id": first["output"][0]["id"]}, user("Two")]
    assert stream(bridged, model="refers", input=items).final["status"] == "completed"
    assert contents(upstream, "refers") == [("user", "One"), ("assistant", "Answer"), ("user", "Two")]


def test_input_without_an_id_is_referred_to_as_it_is_listed(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["lists"] = Script(text("Answer"))
    response_id = respond(bridged, model="lists", input="One").json["id"]
    (listed,) = call(bridged, "GET", f"/v1/responses/{response_id}/input_items").json["data"]
    respond(bridged, model="lists", input=[*to(listed["id"]), user("Two")])
    assert contents(upstream, "lists") == [("user", "One"), ("user", "Two")]


def test_call_is_referred_to_and_its_output_given(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["calls"] = [calls(("c1", "get_time", {"zone": "UTC"})), said("Noon.")]
    (call_item,) = respond(bridged, model="calls", tools=[TOOL]).json["output"]
    answer = {"type": "function_call_output", "call_id": "c1", "output": "noon"}
    second = respond(
        bridged, model="calls", input=[user("Hello"), *to(call_item["id"]), answer], tools=[TOOL]
    )
    assert second.status == 200
    _, called, shown = upstream.last("calls").body["messages"]
    assert [each["id"] for each in called["tool_calls"]] == ["c1"]
    assert called["tool_calls"][0]["function"] == {"name": "get_time", "arguments": '{"zone": "UTC"}'}
    assert (shown["tool_call_id"], shown["content"]) == ("c1", "noon")


def test_case_30_signed_thinking_referred_to_comes_back_byte_exact(
    many: str, upstream: ScriptedUpstream
) -> None:
    frames = [
        messages.start(),
        *messages.thinking(0, "Hm", "m", signature="c2lnbmVk"),
        *messages.text(1, "Hi"),
        *messages.stop(),
    ]
    upstream.scripts["anthropic-refers"] = Script(scripts.named(*frames))
    options: Any = {"model": "anthropic-refers", "reasoning": {"effort": "low"}}
    output = respond(many, **options).json["output"]
    assert [item["type"] for item in output] == ["reasoning", "message"]
    ids = [item["id"] for item in output]
    assert respond(many, **options, input=[user("Hello"), *to(*ids), user("Go on")]).status == 200
    _, assistant, _ = upstream.last("anthropic-refers").body["messages"]
    thought, shown = assistant["content"]
    assert (thought["thinking"], thought["signature"], shown["text"]) == ("Hmm", "c2lnbmVk", "Hi")


def test_upstream_that_speaks_responses_gets_the_item(many: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["responses-refers"] = Script(scripts.text("responses", "Answer"))
    (message,) = respond(many, model="responses-refers").json["output"]
    assert respond(many, model="responses-refers", input=[*to(message["id"]), user("Two")]).status == 200
    sent = upstream.last("responses-refers").body["input"]
    assert [item["type"] for item in sent] == ["message", "message"]
    assert sent[0]["content"][0]["text"] == "Answer"


def test_response_need_not_be_stored_to_refer(
    bridged: str, upstream: ScriptedUpstream, first: dict[str, Any]
) -> None:
    assert respond(bridged, model="refers", input=to("in_one"), store=False).status == 200
    assert contents(upstream, "refers") == [("user", "One")]


def test_response_in_the_background_refers(
    bridged: str, upstream: ScriptedUpstream, first: dict[str, Any]
) -> None:
    queued = respond(bridged, model="refers", input=[*to("in_one"), user("Two")], background=True).json
    wait_for(bridged, queued["id"], "completed")
    assert contents(upstream, "refers") == [("user", "One"), ("user", "Two")]


def test_input_tokens_counts_the_item(bridged: str, first: dict[str, Any]) -> None:
    def counted(items: list[dict[str, Any]]) -> Any:
        body = {"model": "refers", "input": items}
        return call(bridged, "POST", "/v1/responses/input_tokens", body).json["input_tokens"]

    assert counted([*to("in_one"), user("Two")]) == counted([user("One"), user("Two")])


def test_compaction_condenses_the_item(
    bridged: str, upstream: ScriptedUpstream, first: dict[str, Any]
) -> None:
    body = {"model": "refers", "input": to("in_one", first["output"][0]["id"])}
    window = call(bridged, "POST", "/v1/responses/compact", body).json
    assert window["output"][0]["content"][0]["text"] == "One"
    assert "Answer" in contents(upstream, "refers")[-1][1]


# ── what is kept ───────────────────────────────────────────────────────────────────────────────────────
def test_item_itself_is_kept_as_input_and_outlives_where_it_came_from(
    bridged: str, upstream: ScriptedUpstream, first: dict[str, Any]
) -> None:
    item_id = first["output"][0]["id"]
    second = respond(bridged, model="refers", input=[*to("in_one", item_id), user("Two")]).json
    page = call(bridged, "GET", f"/v1/responses/{second['id']}/input_items?order=asc").json["data"]
    assert [(item["type"], item["content"][0]["text"]) for item in page] == [
        ("message", "One"),
        ("message", "Answer"),
        ("message", "Two"),
    ]
    assert [item["id"] for item in page[:2]] == ["in_one", item_id]
    call(bridged, "DELETE", f"/v1/responses/{first['id']}")
    third = respond(bridged, model="refers", input=to(item_id), previous_response_id=second["id"])
    assert third.status == 200
    assert [words for _, words in contents(upstream, "refers")] == ["One", "Answer", "Two", "Answer"]


# ── what is not there ──────────────────────────────────────────────────────────────────────────────────
def test_unknown_item_is_refused_with_its_place(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.received.clear()
    reply = respond(bridged, model="refers", input=[user("One"), *to("msg_unknown")])
    assert refused(reply) == (400, "invalid_request_error", NOT_FOUND, "input[1].id")
    assert "'msg_unknown' not found" in reply.error["message"]
    assert upstream.received == []
    for path in ("/compact", "/input_tokens"):
        body = {"model": "refers", "input": to("in_unknown")}
        reply = call(bridged, "POST", f"/v1/responses{path}", body)
        assert refused(reply) == (400, "invalid_request_error", NOT_FOUND, "input[0].id")


@pytest.mark.parametrize("odd", ["", "\0", "\ud83c", "x" * 50_000], ids=["empty", "nul", "half", "long"])
def test_odd_id_is_refused(bridged: str, odd: str) -> None:
    status, kind, _, param = refused(respond(bridged, model="refers", input=to(odd)))
    assert (status, kind, param) == (400, "invalid_request_error", "input[0].id")


def test_item_of_a_response_that_was_not_stored_or_is_deleted_is_refused(
    bridged: str, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["gone"] = Script(text("Answer"))
    unstored = respond(bridged, model="gone", store=False).json
    deleted = respond(bridged, model="gone", input=[user("One", id="in_gone")]).json
    call(bridged, "DELETE", f"/v1/responses/{deleted['id']}")
    for gone in (unstored["output"][0]["id"], deleted["output"][0]["id"], "in_gone"):
        assert refused(respond(bridged, model="gone", input=to(gone)))[2] == NOT_FOUND


@pytest.fixture(scope="module")
def keyed() -> Iterator[str]:
    keys = [hashed("key-of-alice"), hashed("key-of-bob")]
    with serving(Settings(api_keys=keys)) as base:
        yield base


def test_s7_another_key_s_item_is_not_found_in_the_same_way(keyed: str) -> None:
    (item,) = respond(keyed, ALICE, model="demo").json["output"]
    assert respond(keyed, ALICE, model="demo", input=to(item["id"])).status == 200
    theirs = respond(keyed, BOB, model="demo", input=to(item["id"]))
    nobodys = respond(keyed, BOB, model="demo", input=to("msg_nobodys"))
    assert refused(theirs) == refused(nobodys) == (400, "invalid_request_error", NOT_FOUND, "input[0].id")
    assert theirs.error["message"].replace(item["id"], "msg_nobodys") == nobodys.error["message"]


# ── what is in context already ─────────────────────────────────────────────────────────────────────────
def test_item_is_said_once_however_often_it_is_referred_to(
    bridged: str, upstream: ScriptedUpstream, first: dict[str, Any]
) -> None:
    respond(bridged, model="refers", input=[*to("in_one"), user("Two"), *to("in_one")])
    assert contents(upstream, "refers") == [("user", "One"), ("user", "Two")]
    whole = user("Changed", id="in_one")
    respond(bridged, model="refers", input=[*to("in_one"), user("Two"), whole])
    assert contents(upstream, "refers") == [("user", "Two"), ("user", "Changed")]


def test_reference_to_what_the_chain_brings_in_is_left_out(bridged: str, upstream: ScriptedUpstream) -> None:
    """As clients send them that give their whole history by reference and name the response too."""
    upstream.scripts["chained"] = [calls(("c1", "get_time", {})), said("Noon."), said("Bye.")]
    one = respond(bridged, model="chained", input="One", tools=[TOOL]).json
    (listed,) = call(bridged, "GET", f"/v1/responses/{one['id']}/input_items").json["data"]
    (message,) = one["output"]
    answer = {"type": "function_call_output", "id": "fco_1", "call_id": "c1", "output": "noon"}
    items = [*to(listed["id"], message["id"]), answer]
    two = respond(bridged, model="chained", input=items, previous_response_id=one["id"], tools=[TOOL]).json
    page = call(bridged, "GET", f"/v1/responses/{two['id']}/input_items").json["data"]
    assert [item["id"] for item in page] == ["fco_1"]
    items = [*to(listed["id"], message["id"], "fco_1", two["output"][0]["id"]), user("Two")]
    assert respond(bridged, model="chained", input=items, previous_response_id=two["id"]).status == 200
    sent = upstream.last("chained").body["messages"]
    assert [each["role"] for each in sent] == ["user", "assistant", "tool", "assistant", "user"]


# ── on a WebSocket ─────────────────────────────────────────────────────────────────────────────────────
def test_turn_refers_to_stored_items_and_to_the_turn_before_it(
    bridged: str, upstream: ScriptedUpstream, first: dict[str, Any]
) -> None:
    def turn(*given: dict[str, Any], **fields: Any) -> str:
        shown = socket.turn(model="refers", input=list(given), store=False, **fields).final
        turns.append([words for _, words in contents(upstream, "refers")])
        ids.append(shown["output"][0]["id"])
        response_id: str = shown["id"]
        return response_id

    turns: list[list[str]] = []
    ids: list[str] = []
    with opened_socket(bridged) as socket:
        turn(*to("in_one"), user("Two", id="in_two"))
        latest = turn(*to("in_one", "in_two", ids[0]), user("Three"))
        turn(*to("in_one", ids[0], ids[1]), user("Four"), previous_response_id=latest)
    assert turns == [
        ["One", "Two"],
        ["One", "Two", "Answer", "Three"],
        ["One", "Two", "Answer", "Three", "Answer", "Four"],
    ]


async def test_s8_items_that_a_connection_remembers_may_be_as_large_as_is_allowed() -> None:
    item = MessageParam("user", "One", id="in_one")
    (read,) = decode_input([encode(item)])
    request = CreateResponse(model="m", input=[ItemReference("in_one")])

    async def found(room: int) -> CreateResponse:
        available = Available(1000, room, MemoryBudget(1000, 1000))
        return await resolved(MemoryStore(), request, "", Conversation(), available, {"in_one": item})

    size = len(encode(read))
    assert (await found(size)).input == [read]
    with pytest.raises(TooLarge):
        await found(size - 1)


def test_unknown_item_on_a_socket_is_refused_and_evicts_what_it_continued(
    bridged: str, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["refers"] = Script(text("Answer"))
    with opened_socket(bridged) as socket:
        turn = socket.turn(model="refers", input="One", store=False)
        before = {"store": False, "previous_response_id": turn.final["id"]}
        envelope = socket.turn(model="refers", input=to("msg_unknown"), **before).error
        assert (envelope["status"], envelope["error"]["param"]) == (400, "input[0].id")
        assert envelope["error"]["code"] == NOT_FOUND
        again = socket.turn(model="refers", input="Two", **before).error
        assert again["error"]["code"] == "previous_response_not_found"
        other = socket.turn(model="refers", input=to(turn.final["output"][0]["id"]), store=False).error
        assert other["error"]["code"] == NOT_FOUND
