"""`/v1/conversations`, and responses that are made in a conversation."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest

from openresponses_server.settings import Limits, Settings
from openresponses_server.settings.files import hashed
from tests.support.serving import Reply, call, respond, serving, stream, violations, wait_for
from tests.support.sockets import opened_socket
from tests.support.upstream import HANG, Script, ScriptedUpstream, chunk, refusal, text
from tests.support.upstream import call as tool_call

V1 = "/v1/conversations"
NEVER = "conv_" + "0" * 32


def user(said: str, **fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": said, **fields}


def created(base: str, *said: str, headers: dict[str, str] | None = None) -> str:
    reply = call(base, "POST", V1, {"items": [user(each) for each in said]}, headers)
    assert reply.status == 200, reply.body
    name: str = reply.json["id"]
    return name


def listed(base: str, name: str, query: str = "?order=asc&limit=100") -> list[str]:
    """The texts of the items, and the types of the others."""
    data = call(base, "GET", f"{V1}/{name}/items{query}").json["data"]
    return [each["content"][0]["text"] if each["type"] == "message" else each["type"] for each in data]


def refused(reply: Reply) -> tuple[int, str | None, str | None]:
    return reply.status, reply.error["code"], reply.error["param"]


# --- the endpoints ---------------------------------------------------------------------------------------


def test_create_retrieve_update_delete(demo: str) -> None:
    conversation = call(demo, "POST", V1, {"metadata": {"topic": "a"}, "items": [user("Hi")]}).json
    assert re.fullmatch(r"conv_[0-9a-f]{32}", conversation["id"])
    assert {name: type(value) for name, value in conversation.items()} == {
        "id": str, "object": str, "created_at": int, "metadata": dict,
    }  # fmt: skip
    assert (conversation["object"], conversation["metadata"]) == ("conversation", {"topic": "a"})
    path = f"{V1}/{conversation['id']}"
    assert call(demo, "GET", path).json == conversation
    changed = call(demo, "POST", path, {"metadata": {"b": "c"}}).json
    assert changed == conversation | {"metadata": {"b": "c"}} == call(demo, "GET", path).json
    assert call(demo, "POST", path, {"metadata": None}).json["metadata"] == {}
    deleted = {"id": conversation["id"], "object": "conversation.deleted", "deleted": True}
    assert call(demo, "DELETE", path).json == deleted
    for method, body in (("GET", None), ("POST", {"metadata": {}}), ("DELETE", None)):
        assert refused(call(demo, method, path, body)) == (404, "conversation_not_found", None)


def test_empty_conversation_has_empty_pages(demo: str) -> None:
    conversation = call(demo, "POST", V1, {}).json
    assert conversation["metadata"] == {}
    shown = call(demo, "GET", f"{V1}/{conversation['id']}/items").json
    assert shown == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


def test_items_are_added_retrieved_and_deleted(demo: str) -> None:
    name = created(demo, "one")
    call_item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "1"}
    sent = [{"role": "user", "content": "two"}, user("three", id="mine"), call_item, output]
    page = call(
        demo, "POST", f"{V1}/{name}/items?include[]=message.output_text.logprobs", {"items": sent}
    ).json
    assert [each["type"] for each in page["data"]] == [
        *["message"] * 2,
        "function_call",
        "function_call_output",
    ]
    assert (page["object"], page["has_more"]) == ("list", False)
    assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"])
    assert page["data"][1] == {
        "type": "message", "role": "user", "id": "mine", "status": "completed",
        "content": [{"type": "input_text", "text": "three"}],
    }  # fmt: skip
    assert [each["id"].partition("_")[0] for each in page["data"]] == ["msg", "mine", "fc", "fco"]
    one = f"{V1}/{name}/items/mine"
    assert call(demo, "GET", one).json == page["data"][1]
    left = call(demo, "DELETE", one).json
    assert left == call(demo, "GET", f"{V1}/{name}").json
    for method in ("GET", "DELETE"):
        assert refused(call(demo, method, one)) == (404, "item_not_found", None)
    assert listed(demo, name) == ["one", "two", "function_call", "function_call_output"]
    twice = {"items": [user("x", id="a"), user("y", id="a")]}
    reply = call(demo, "POST", f"{V1}/{name}/items", twice)
    assert refused(reply) == (400, "item_exists", "items[1].id")


def test_an_id_with_slashes_is_an_id(demo: str) -> None:
    name = created(demo)
    call(demo, "POST", f"{V1}/{name}/items", {"items": [user("x", id="a/b c")]})
    assert call(demo, "GET", f"{V1}/{name}/items/{quote('a/b c', safe='')}").json["id"] == "a/b c"


def test_a_thousand_items_are_paged(demo: str) -> None:
    texts = [f"{number}" for number in range(1000)]
    name = created(demo, *texts)
    contents: list[str] = []
    after = ""
    while True:
        page = call(demo, "GET", f"{V1}/{name}/items?limit=100&order=asc{after}").json
        contents += [each["content"][0]["text"] for each in page["data"]]
        after = f"&after={page['last_id']}"
        if not page["has_more"]:
            break
    assert contents == texts
    assert listed(demo, name, "") == texts[:-21:-1]


@pytest.mark.parametrize(
    ("query", "param"),
    [("limit=0", "limit"), ("limit=101", "limit"), ("order=up", "order"), ("after=nothing", "after")],
)
def test_wrong_pages_are_refused(demo: str, query: str, param: str) -> None:
    name = created(demo, "one")
    assert refused(call(demo, "GET", f"{V1}/{name}/items?{query}")) == (400, "invalid_value", param)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"items": 1}, "items"),
        ({"items": [{"type": "message", "role": "x", "content": "a"}]}, "items[0].role"),
        ({"items": [{"role": "user", "content": [{"type": "input_text"}]}]}, "items[0].content[0].text"),
        ({"items": [user("x", id="i" * 2000)]}, "items[0].id"),
        ({"items": [{"type": "item_reference", "id": "msg_never"}]}, "items[0].id"),
        ({"metadata": {"a": 1}, "items": []}, "metadata[...]"),
        ({"metadata": {"a" * 65: "b"}, "items": []}, "metadata"),
    ],
)
def test_what_is_wrong_in_a_body_is_named(demo: str, body: dict[str, Any], param: str) -> None:
    reply = call(demo, "POST", V1, body)
    assert (reply.status, reply.error["param"]) == (400, param)
    if "metadata" not in body:
        reply = call(demo, "POST", f"{V1}/{created(demo)}/items", body)
        assert (reply.status, reply.error["param"]) == (400, param)


def test_bodies_that_say_nothing_are_refused(demo: str) -> None:
    path = f"{V1}/{created(demo)}"
    assert call(demo, "POST", path, {}).status == 400
    assert call(demo, "POST", f"{path}/items", {}).status == 400
    assert call(demo, "POST", f"{V1}/{NEVER}/items", {"items": []}).status == 404
    assert call(demo, "POST", V1, b"[").status == 400
    assert call(demo, "PUT", path, {}).status == 405


def test_a_reference_stands_for_its_item_and_secrets_of_tools_are_not_stored(demo: str) -> None:
    message = respond(demo, model="demo", input="Hi").json["output"][0]
    tools = [{"type": "mcp", "server_label": "m", "server_url": "http://m.test/", "authorization": "hunter2"}]
    items = [{"type": "item_reference", "id": message["id"]}, {"type": "additional_tools", "tools": tools}]
    name = call(demo, "POST", V1, {"items": items}).json["id"]
    reply = call(demo, "GET", f"{V1}/{name}/items?order=asc")
    assert reply.json["data"][0]["content"][0]["text"] == "You said: Hi"
    assert b"server_label" in reply.body
    assert b"hunter2" not in reply.body


def test_limits_have_clear_errors() -> None:
    limits = Limits(items=4, conversation_bytes=1000, conversations_per_key=2)
    with serving(Settings(limits=limits, api_keys=[hashed("a"), hashed("b")])) as base:
        a, b = {"authorization": "Bearer a"}, {"authorization": "Bearer b"}
        name = created(base, "1", "2", "3", headers=a)
        for body in ({"items": [user("4"), user("5")]}, {"items": [user("x" * 1000)]}):
            reply = call(base, "POST", f"{V1}/{name}/items", body, a)
            assert refused(reply) == (400, "conversation_full", "items")
        assert call(base, "POST", V1, {"items": [user("x" * 1000)]}, a).error["code"] == "conversation_full"
        assert call(base, "POST", V1, {"items": [user("x")] * 5}, a).error["param"] == "items"
        created(base, headers=a)
        assert refused(call(base, "POST", V1, {}, a)) == (429, "too_many_conversations", None)
        created(base, headers=b)
        full = respond(base, a, model="demo", input=[user("4"), user("5")], conversation=name)
        assert (full.status, full.error["param"]) == (400, "conversation")
        assert "limit is 4" in full.error["message"]


# --- owners ----------------------------------------------------------------------------------------------


def test_s7_a_stolen_id_finds_nothing_with_another_key() -> None:
    with serving(Settings(api_keys=[hashed("mine"), hashed("theirs")])) as base:
        mine, theirs = ({"authorization": f"Bearer {key}"} for key in ("mine", "theirs"))
        name = created(base, "secret", headers=mine)
        item = call(base, "GET", f"{V1}/{name}/items", headers=mine).json["last_id"]
        tries = [
            ("GET", f"{V1}/{name}", None),
            ("POST", f"{V1}/{name}", {"metadata": {}}),
            ("DELETE", f"{V1}/{name}", None),
            ("GET", f"{V1}/{name}/items", None),
            ("POST", f"{V1}/{name}/items", {"items": [user("injected")]}),
            ("GET", f"{V1}/{name}/items/{item}", None),
            ("DELETE", f"{V1}/{name}/items/{item}", None),
            ("POST", "/v1/responses", {"model": "demo", "input": "Hi", "conversation": name}),
            ("POST", "/v1/responses/input_tokens", {"model": "demo", "input": "Hi", "conversation": name}),
        ]
        for method, path, body in tries:
            reply = call(base, method, path, body, theirs)
            assert (reply.status, reply.error["code"]) == (404, "conversation_not_found")
            never = call(
                base,
                method,
                path.replace(name, NEVER),
                body and {**body, **({"conversation": NEVER} if "conversation" in body else {})},
                theirs,
            )
            assert never.body == reply.body.replace(name.encode(), NEVER.encode())
            assert call(base, method, path, body).status == 401
        assert len(call(base, "GET", f"{V1}/{name}/items", headers=mine).json["data"]) == 1


# --- responses in a conversation -------------------------------------------------------------------------


def asked(upstream: ScriptedUpstream, model: str) -> list[str]:
    return [each["content"] for each in upstream.last(model).body["messages"]]


def test_items_are_the_history_and_the_turn_is_appended(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["conv"] = Script(text("Answer"))
    name = created(bridged, "Before")
    first = respond(bridged, model="conv", input="One", conversation=name).json
    assert first["conversation"] == {"id": name}
    second = stream(bridged, model="conv", input=[user("Two")], conversation={"id": name})
    assert {each["response"]["conversation"]["id"] for each in second.events if "response" in each} == {name}
    assert asked(upstream, "conv") == ["Before", "One", "Answer", "Two"]
    assert "conversation" not in upstream.last("conv").body
    assert listed(bridged, name) == ["Before", "One", "Answer", "Two", "Answer"]
    assert call(bridged, "GET", f"/v1/responses/{first['id']}").json == first
    ids = [each["id"] for each in call(bridged, "GET", f"{V1}/{name}/items?order=asc").json["data"]]
    assert ids[2] == first["output"][0]["id"]
    inputs = call(bridged, "GET", f"/v1/responses/{first['id']}/input_items").json["data"]
    assert ids[1] == inputs[0]["id"]
    respond(
        bridged,
        model="conv",
        conversation=name,
        input=[{"type": "item_reference", "id": ids[2]}, user("Three")],
    )
    assert asked(upstream, "conv") == ["Before", "One", "Answer", "Two", "Answer", "Three"]
    assert call(bridged, "DELETE", f"{V1}/{name}/items/{ids[0]}").status == 200
    respond(bridged, model="conv", conversation=name, input="Four")
    assert asked(upstream, "conv")[:2] == ["One", "Answer"]


@pytest.mark.parametrize("way", ["http", "background", "websocket"])
def test_a_reference_to_an_item_that_was_only_added(
    bridged: str, upstream: ScriptedUpstream, way: str
) -> None:
    """No response has it. It is in the conversation that is named, once; elsewhere it is not known."""
    name, other = created(bridged, "Before"), created(bridged, "Elsewhere")
    added = call(bridged, "POST", f"{V1}/{name}/items", {"items": [user("Added")]}).json["data"][0]["id"]

    def ask(*items: dict[str, Any], conversation: str = name) -> dict[str, Any]:
        request = {"model": "conv", "input": list(items), "conversation": conversation}
        if way == "websocket":
            with opened_socket(bridged) as socket:
                last: dict[str, Any] = socket.turn(**request).events[-1]
            return last
        if way == "background":
            request |= {"background": True, "stream": True}
        return call(bridged, "POST", "/v1/responses", request).json if way == "http" else _last(request)

    def _last(request: dict[str, Any]) -> dict[str, Any]:
        reply = call(bridged, "POST", "/v1/responses", request)
        result: dict[str, Any] = reply.events[-1] if reply.status == 200 else reply.json
        return result

    reference = {"type": "item_reference", "id": added}
    ask(reference, user("One"), reference)
    assert asked(upstream, "conv") == ["Before", "Added", "One"]
    ask(reference)
    assert asked(upstream, "conv")[:3] == ["Before", "Added", "One"]
    refusal_of = ask(reference, user("Two"), conversation=other)["error"]
    assert (refusal_of["code"], refusal_of["param"]) == ("item_not_found", "input[0].id")
    assert call(bridged, "DELETE", f"{V1}/{name}/items/{added}").status == 200
    assert ask(reference, user("Three"))["error"]["code"] == "item_not_found"


def test_a_call_is_answered_in_the_next_turn(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["tools"] = [
        Script([tool_call(0, "{}", "get_time", "call_1"), chunk("tool_calls")]),
        Script(text("Noon")),
    ]
    tool = {"type": "function", "name": "get_time", "parameters": {"type": "object", "properties": {}}}
    name = created(bridged)
    function_call = respond(bridged, model="tools", input="When?", conversation=name, tools=[tool]).json[
        "output"
    ][0]
    unanswered = respond(bridged, model="tools", input="Well?", conversation=name, tools=[tool])
    assert refused(unanswered) == (400, "unpaired_tool_call", "conversation")
    output = {"type": "function_call_output", "call_id": function_call["call_id"], "output": "12:00"}
    respond(bridged, model="tools", input=[output], conversation=name, tools=[tool])
    assert listed(bridged, name) == ["When?", "function_call", "function_call_output", "Noon"]


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"previous_response_id": "resp_1"}, "conversation", "previous_response_id"),
        ({"store": False}, "store", "conversation"),
        ({"conversation": {}}, "conversation", "id"),
        ({"conversation": {"id": 1}}, "conversation", "id"),
        ({"conversation": {"id": "a", "b": 1}}, "conversation", "id"),
        ({"conversation": ""}, "conversation", "id"),
        ({"conversation": "c" * 2000}, "conversation", "1024"),
    ],
)
def test_what_excludes_each_other_or_names_nothing_is_refused(
    demo: str, fields: dict[str, Any], param: str, says: str
) -> None:
    asks = {"model": "demo", "conversation": created(demo), **fields}
    reply = respond(demo, **asks)
    assert (reply.status, reply.error["param"]) == (400, param)
    assert says in reply.error["message"]
    with opened_socket(demo) as socket:
        error = socket.turn(input="Hi", **asks).events[-1]
    assert (error["status"], error["error"]["param"]) == (400, param)


def test_an_unknown_conversation_is_not_found_anywhere(demo: str) -> None:
    assert refused(respond(demo, model="demo", conversation=NEVER)) == (
        404,
        "conversation_not_found",
        "conversation",
    )
    assert respond(demo, model="demo", conversation=NEVER, background=True).status == 404
    with opened_socket(demo) as socket:
        error = socket.turn(input="Hi", conversation=NEVER).events[-1]
        assert (error["status"], error["error"]["code"]) == (404, "conversation_not_found")
        assert socket.turn(input="Hi").text == "You said: Hi"


def test_a_response_of_a_conversation_is_continued_there_only(demo: str) -> None:
    name = created(demo)
    response_id = respond(demo, model="demo", input="Hi", conversation=name).json["id"]
    reply = respond(demo, model="demo", input="More", previous_response_id=response_id)
    assert refused(reply) == (400, "response_in_conversation", "previous_response_id")
    assert name in reply.error["message"]
    with opened_socket(demo) as socket:
        response_id = socket.turn(input="Hi", conversation=name).events[-1]["response"]["id"]
        assert (
            socket.turn(input="More", previous_response_id=response_id).events[-1]["error"]["code"]
            == "response_in_conversation"
        )
        assert socket.turn(input="More", conversation=name).text.endswith("Before that you said: Hi")
    assert listed(demo, name)[::2] == ["Hi", "Hi", "More"]


def test_in_the_background_the_turn_is_appended_at_its_end(stored: str) -> None:
    name = created(stored, "Before")
    queued = respond(stored, model="demo-slow", input="20 words", conversation=name, background=True).json
    assert queued["conversation"] == {"id": name}
    ended = wait_for(stored, queued["id"], "completed")
    assert ended["conversation"] == {"id": name}
    assert listed(stored, name) == ["Before", "20 words", ended["output"][0]["content"][0]["text"]]
    replayed = call(stored, "GET", f"/v1/responses/{queued['id']}?stream=true")
    assert violations(replayed) == []


def test_what_failed_is_not_appended_and_may_be_sent_again(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["fails"] = [
        refusal(400, message="no", type="invalid_request_error"),
        Script([chunk(content="Hal"), b"data: {"]),
        Script(text("Answer")),
    ]
    name = created(bridged)
    assert respond(bridged, model="fails", input="One", conversation=name).status == 400
    assert stream(bridged, model="fails", input="One", conversation=name).final["status"] == "failed"
    assert listed(bridged, name) == []
    assert respond(bridged, model="fails", input="One", conversation=name).status == 200
    assert listed(bridged, name) == ["One", "Answer"]


def test_what_was_cancelled_is_appended_as_far_as_it_came(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["hangs"] = Script([chunk(content="Half"), HANG])
    name = created(bridged)
    with opened_socket(bridged) as socket:
        socket.send(model="hangs", input="One", conversation=name)
        response_id = socket.receive()["response"]["id"]
        while socket.receive()["type"] != "response.output_text.delta":
            pass
        assert call(bridged, "POST", f"/v1/responses/{response_id}/cancel").status == 200
    assert listed(bridged, name) == ["One", "Half"]


def test_a_conversation_is_deleted_while_its_response_runs(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["goes on"] = Script([chunk(content="Half"), 0.3, *text(" whole")])
    name = created(bridged)
    with opened_socket(bridged) as socket:
        socket.send(model="goes on", input="One", conversation=name)
        begun = [socket.receive() for _ in range(5)]
        assert call(bridged, "DELETE", f"{V1}/{name}").status == 200
        turn = socket.rest(*begun)
    assert turn.text == "Half whole"
    ended = turn.events[-1]["response"]
    assert call(bridged, "GET", f"/v1/responses/{ended['id']}").json == ended
    assert call(bridged, "GET", f"{V1}/{name}").status == 404


def test_twenty_responses_at_once_append_whole_turns(demo: str) -> None:
    name = created(demo)
    with ThreadPoolExecutor(20) as threads:
        asks = [
            threads.submit(respond, demo, model="demo", input=f"{n}", conversation=name) for n in range(20)
        ]
        assert {each.result().status for each in asks} == {200}
    texts = listed(demo, name)
    assert sorted(texts[::2]) == sorted(f"{n}" for n in range(20))
    assert len(texts) == 40


def test_the_published_wire_has_no_field_for_it_but_the_turn_is_appended(demo: str) -> None:
    name = created(demo)
    sent = stream(demo, {"openresponses-wire": "openresponses"}, model="demo", conversation=name)
    assert "conversation" not in sent.final
    assert listed(demo, name) == ["Hello", "You said: Hello"]


def test_tokens_and_context_count_the_items(demo: str) -> None:
    name = created(demo, "word " * 500)
    asks = {"model": "demo", "input": "Hi", "conversation": name}
    assert call(demo, "POST", "/v1/responses/input_tokens", asks).json["input_tokens"] > 400
    entries = call(demo, "POST", "/inspector/v1/context", asks).json["entries"]
    assert "earlier" in [each["from"] for each in entries]
