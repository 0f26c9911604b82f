"""About a stored response: its input items, cancelling it. And how many tokens an input is."""

import json
import threading
import time
from typing import Any

import pytest

from tests.support.serving import Reply, call, opened, respond, violations
from tests.support.upstream import HANG, Script, ScriptedUpstream, chunk

TALK: list[Any] = [
    {"role": "user", "content": "One", "id": "msg_one"},
    {"role": "assistant", "content": "Two"},
    {"role": "user", "content": [{"type": "input_text", "text": "Three"}]},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "seen"},
]


def listed(base: str, response_id: str, query: str = "") -> Reply:
    return call(base, "GET", f"/v1/responses/{response_id}/input_items{query}")


def test_input_items_have_ids_and_parts(demo: str) -> None:
    response_id = respond(demo, model="demo", input=TALK).json["id"]
    page = listed(demo, response_id, "?order=asc").json
    assert page["object"] == "list"
    assert page["has_more"] is False
    assert [item["type"] for item in page["data"]] == [
        "message",
        "message",
        "message",
        "function_call",
        "function_call_output",
    ]
    ids = [item["id"] for item in page["data"]]
    assert ids[0] == "msg_one"
    assert len(set(ids)) == 5
    assert (page["first_id"], page["last_id"]) == (ids[0], ids[-1])
    contents = [item["content"][0] for item in page["data"][:3]]
    assert [(part["type"], part["text"]) for part in contents] == [
        ("input_text", "One"),
        ("output_text", "Two"),
        ("input_text", "Three"),
    ]
    assert [item["status"] for item in page["data"][:3]] == ["completed"] * 3
    assert listed(demo, response_id, "?order=asc").json == page


def test_input_items_are_paged_either_way(demo: str) -> None:
    response_id = respond(
        demo, model="demo", input=[{"role": "user", "content": str(n)} for n in range(7)]
    ).json["id"]

    def walk(order: str) -> list[str]:
        texts: list[str] = []
        query = f"?limit=3&order={order}"
        while True:
            page = listed(demo, response_id, query).json
            texts += [item["content"][0]["text"] for item in page["data"]]
            if not page["has_more"]:
                return texts
            query = f"?limit=3&order={order}&after={page['last_id']}"

    assert walk("asc") == list("0123456")
    assert walk("desc") == list("6543210")
    newest = listed(demo, response_id, "?limit=1").json
    assert newest["data"][0]["content"][0]["text"] == "6"
    before = listed(demo, response_id, f"?order=asc&limit=2&before={newest['last_id']}").json
    assert [item["content"][0]["text"] for item in before["data"]] == ["4", "5"]


def test_input_is_the_request_s_own_and_may_be_empty(demo: str) -> None:
    first = respond(demo, model="demo", input="One").json["id"]
    second = respond(demo, model="demo", input="Two", previous_response_id=first).json["id"]
    assert [item["content"][0]["text"] for item in listed(demo, second).json["data"]] == ["Two"]
    bare = respond(demo, model="demo", input=[], instructions="Say something.").json["id"]
    page = listed(demo, bare).json
    assert (page["data"], page["first_id"], page["last_id"], page["has_more"]) == ([], None, None, False)


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("?limit=0", "limit"),
        ("?limit=101", "limit"),
        ("?limit=x", "limit"),
        ("?limit=-1", "limit"),
        ("?order=up", "order"),
        ("?after=msg_nobody", "after"),
        ("?before=msg_nobody", "before"),
    ],
)
def test_wrong_page_is_a_400(demo: str, query: str, param: str) -> None:
    response_id = respond(demo, model="demo").json["id"]
    reply = listed(demo, response_id, query)
    assert (reply.status, reply.error["code"], reply.error["param"]) == (400, "invalid_value", param)
    assert reply.error["type"] == "invalid_request_error"


@pytest.mark.parametrize(("method", "path"), [("GET", "input_items"), ("POST", "cancel")])
def test_unknown_response_is_a_404(demo: str, method: str, path: str) -> None:
    reply = call(demo, method, f"/v1/responses/resp_nobody/{path}")
    assert (reply.status, reply.error["type"], reply.error["code"]) == (
        404,
        "not_found",
        "response_not_found",
    )


# ── cancel ─────────────────────────────────────────────────────────────────────────────────────────────
def cancel(base: str, response_id: str) -> Reply:
    return call(base, "POST", f"/v1/responses/{response_id}/cancel")


@pytest.mark.parametrize(
    "pause", [[HANG], [step for _ in range(300) for step in (chunk(content="y "), 0.01)]]
)
@pytest.mark.parametrize("store", [True, False])
def test_cancel_ends_the_run_and_informs_its_client(
    bridged: str, upstream: ScriptedUpstream, pause: list[Any], store: bool
) -> None:
    upstream.scripts["long"] = Script([chunk(content="x "), chunk(content="x "), *pause])
    request = {"model": "long", "input": "x", "stream": True, "store": store}
    with opened(bridged, "POST", "/v1/responses", request) as response:
        head = b""
        while head.count(b"event: response.output_text.delta\n") < 2:
            head += response.readline()
        response_id = json.loads(head.split(b"data: ")[1].partition(b"\n")[0])["response"]["id"]
        cancelled = cancel(bridged, response_id)
        reply = Reply(200, {}, head + response.read())
    assert violations(reply) == []
    assert reply.types[-1] == "response.incomplete"
    assert reply.final["incomplete_details"] == {"reason": "cancelled"}
    assert reply.final["output"][0]["content"][0]["text"].startswith("x x")
    assert cancelled.status == 200
    assert cancelled.json == reply.final
    if store:
        # again and again it is the same, and that is what is stored
        assert cancel(bridged, response_id).json == reply.final
        assert call(bridged, "GET", f"/v1/responses/{response_id}").json == reply.final
    else:
        assert cancel(bridged, response_id).status == 404
    while upstream.last("long").gone_at is None:
        time.sleep(0.01)


@pytest.mark.parametrize("model", ["demo", "demo-incomplete"])
def test_response_that_has_ended_otherwise_is_not_cancelled(demo: str, model: str) -> None:
    done = respond(demo, model=model).json
    reply = cancel(demo, done["id"])
    assert (reply.status, reply.error["code"]) == (400, "response_not_cancellable")
    assert call(demo, "GET", f"/v1/responses/{done['id']}").json == done


def test_cancel_from_many_sides_at_once(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["long"] = Script([chunk(content="x "), HANG])
    with opened(
        bridged, "POST", "/v1/responses", {"model": "long", "input": "x", "stream": True}
    ) as response:
        head = response.readline() + response.readline()
        response_id = json.loads(head.split(b"data: ")[1])["response"]["id"]
        sent: list[Any] = []
        askers = [
            threading.Thread(target=lambda: sent.append(cancel(bridged, response_id))) for _ in range(8)
        ]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
        response.read()
    assert {each.status for each in sent} == {200}
    assert len({each.body for each in sent}) == 1


# ── input_tokens ───────────────────────────────────────────────────────────────────────────────────────
def tokens(base: str, **request: Any) -> int:
    reply = call(base, "POST", "/v1/responses/input_tokens", {"model": "demo", **request})
    assert reply.status == 200, reply.body
    assert reply.json["object"] == "response.input_tokens"
    count: int = reply.json["input_tokens"]
    return count


def test_input_tokens_grow_with_what_is_sent(demo: str) -> None:
    short = tokens(demo, input="Hello there")
    assert 2 <= short <= 12
    assert tokens(demo, input="Hello there " * 100) > 50 * short / 4
    assert tokens(demo, input="Hello there", instructions="Be brief and kind to everyone.") > short
    tool = {"type": "function", "name": "look", "description": "Looks at things for a while."}
    assert tokens(demo, input="Hello there", tools=[tool]) > short
    image = [
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}
    ]
    assert tokens(demo, input=image) > 100


def test_input_tokens_count_the_turns_before(demo: str) -> None:
    first = respond(demo, model="demo", input="A rather long first turn, with many words in it").json["id"]
    assert tokens(demo, input="Two", previous_response_id=first) > tokens(demo, input="Two") + 10


@pytest.mark.parametrize(
    ("request_", "status", "code", "param"),
    [
        ({"input": 3}, 400, "invalid_value", "input"),
        ({"model": "nobody", "input": "x"}, 404, "model_not_found", "model"),
        (
            {"input": "x", "previous_response_id": "resp_no"},
            400,
            "previous_response_not_found",
            "previous_response_id",
        ),
        (
            {"input": [{"type": "compaction", "encrypted_content": "x"}]},
            400,
            "invalid_encrypted_content",
            "input[0].encrypted_content",
        ),
    ],
    ids=str,
)
def test_wrong_input_tokens_request(demo: str, request_: Any, status: int, code: str, param: str) -> None:
    reply = call(demo, "POST", "/v1/responses/input_tokens", {"model": "demo", **request_})
    assert (reply.status, reply.error["code"], reply.error["param"]) == (status, code, param)
