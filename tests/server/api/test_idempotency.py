"""`Idempotency-Key`: a request that is sent again with its key gets the response that there is."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from openresponses_server.settings import Limits, Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from tests.support.serving import Reply, call, opened, respond, serving
from tests.support.upstream import HANG, Script, ScriptedUpstream, chunk, paced, refusal, text
from tests.support.waiting import wait_until

STORES = ["memory:", "sqlite:///{}/s.sqlite3"]


class Served:
    """One or two servers over one store, and the upstream behind them."""

    def __init__(self, bases: list[str], upstream: ScriptedUpstream) -> None:
        self.base, self.bases, self.upstream = bases[0], bases, upstream

    def ask(self, key: str, *, base: str = "", who: str = "mine", **fields: Any) -> Reply:
        headers = {"idempotency-key": key, "authorization": f"Bearer {who}"}
        body = {"model": "m", "input": "Hello?", **fields}
        return call(base or self.base, "POST", "/v1/responses", body, headers)


@pytest.fixture(params=STORES)
def served(request: Any, tmp_path: Path, upstream: ScriptedUpstream) -> Iterator[Served]:
    upstream.scripts["m"] = paced(*"Hello there", every=0.01)
    settings = Settings(
        upstreams=[UpstreamSettings(url=upstream.url, name="scripted")],
        api_keys=[hashed(name) for name in ("mine", "yours")],
        store=request.param.format(tmp_path),
        checkpoint_interval=0.1,
    )
    with ExitStack() as stack:
        count = 1 if request.param == "memory:" else 2
        yield Served([stack.enter_context(serving(settings)) for _ in range(count)], upstream)


def asked(served: Served) -> int:
    return len(served.upstream.received)


def ids_in(replies: list[Reply], streamed: bool) -> set[str]:
    assert [each.status for each in replies] == [200] * len(replies), [each.body for each in replies]
    return {each.final["id"] if streamed else each.json["id"] for each in replies}


@pytest.mark.parametrize("kind", ["whole", "streamed", "background", "background streamed"])
def test_ten_requests_with_one_key_are_one_response(served: Served, kind: str) -> None:
    fields = {"stream": "streamed" in kind, "background": "background" in kind}
    with ThreadPoolExecutor(10) as threads:
        tries = [
            threads.submit(served.ask, "k1", base=served.bases[number % len(served.bases)], **fields)
            for number in range(10)
        ]
        replies = [each.result() for each in tries]
    (name,) = ids_in(replies, fields["stream"])
    if fields["stream"]:
        assert {each.body for each in replies} == {replies[0].body}
        assert replies[0].final["status"] == "completed"
    again = served.ask("k1", **fields)
    assert ids_in([again], fields["stream"]) == {name}
    assert again.headers["idempotent-replayed"] == "true"
    wait_until(lambda: asked(served) == 1)
    assert asked(served) == 1


def test_another_request_with_the_key_is_refused_and_other_keys_and_owners_are_not(served: Served) -> None:
    first = served.ask("k1")
    for fields in ({"input": "Something else"}, {"stream": True}, {"metadata": {"a": "b"}}):
        refused = served.ask("k1", **fields)
        assert (refused.status, refused.error["code"]) == (422, "idempotency_key_reused")
        assert refused.error["param"] == "Idempotency-Key"
    others = [served.ask("k2"), served.ask("k1", who="yours"), served.ask("k1", who="yours")]
    assert others[1].json["id"] == others[2].json["id"]
    assert len({first.json["id"], *ids_in(others, False)}) == 3


@pytest.mark.parametrize("key", ["", "x" * 256, "é", "a\tb"])
def test_what_can_be_no_key_is_refused(served: Served, key: str) -> None:
    refused = served.ask(key)
    assert (refused.status, refused.error["param"]) == (400, "Idempotency-Key")
    assert asked(served) == 0


def test_what_is_not_stored_is_made_each_time(served: Served) -> None:
    replies = [served.ask("k1", store=False) for _ in range(2)]
    assert len(ids_in(replies, False)) == 2
    assert len(ids_in([served.ask("x" * 255), served.ask("x" * 255)], False)) == 1


@pytest.mark.parametrize("streamed", [True, False])
def test_s5_a_request_that_its_upstream_refuses_is_an_error_and_frees_its_key(
    served: Served, streamed: bool
) -> None:
    busy = refusal(429, {"retry-after": "7"}, code="rate_limit_exceeded", message="Slow down")
    served.upstream.scripts["m"] = [busy, Script(text("Now"))]
    refused = served.ask("k1", stream=streamed)
    assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
    assert refused.headers["retry-after"] == "7"
    reply = served.ask("k1", stream=streamed)
    (name,) = ids_in([reply], streamed)
    assert served.ask("k1", stream=streamed).status == 200
    assert asked(served) == 2
    there = call(served.base, "GET", f"/v1/responses/{name}", headers={"authorization": "Bearer mine"})
    assert there.json["status"] == "completed"


def test_who_waits_for_a_request_that_is_refused_becomes_the_first(served: Served) -> None:
    served.upstream.scripts["m"] = [
        Script([b"{}"], 400, {"content-type": "application/json"}, before=0.5),
        Script(text("Now")),
    ]
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(served.ask, "k1")
        wait_until(lambda: asked(served) == 1)
        second = threads.submit(served.ask, "k1")
        assert first.result().status == 400
        assert second.result().status == 200
    assert asked(served) == 2


def test_a_client_that_left_finds_what_it_asked_for(served: Served) -> None:
    served.upstream.scripts["m"] = Script([chunk(content="Hel"), 0.5, *text("lo")])
    body = {"model": "m", "input": "Hello?", "stream": True}
    headers = {"idempotency-key": "k1", "authorization": "Bearer mine"}
    with opened(served.base, "POST", "/v1/responses", body, headers) as response:
        name = json.loads((response.readline() + response.readline()).split(b"data: ")[1])["response"]["id"]
    reply = served.ask("k1", stream=True)
    assert (reply.final["id"], reply.final["status"]) == (name, "completed")
    assert [each["sequence_number"] for each in reply.events] == list(range(len(reply.events)))
    assert asked(served) == 1


def test_who_waits_for_the_first_request_and_leaves_is_no_reader_any_more(upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script([chunk(content="Hel"), HANG])
    upstream_settings = UpstreamSettings(url=upstream.url, name="scripted")
    headers = {"idempotency-key": "k1", "content-type": "application/json"}
    with serving(Settings(upstreams=[upstream_settings], limits=Limits(readers=1))) as base:
        host, port = urlsplit(base).hostname or "", urlsplit(base).port
        first, second = HTTPConnection(host, port), HTTPConnection(host, port)
        for each in (first, second):
            each.request("POST", "/v1/responses", json.dumps({"model": "m", "input": "Hello?"}), headers)
            wait_until(lambda: len(upstream.received) == 1)
        items = call(base, "GET", "/inspector/v1/responses").json
        (row,) = items["data"]
        path = f"/v1/responses/{row['id']}/input_items"
        wait_until(lambda: call(base, "GET", path).status == 429)
        second.close()
        wait_until(lambda: call(base, "GET", path).status == 200)
        first.close()
        assert len(upstream.received) == 1


def test_a_failed_or_deleted_response_frees_its_key(served: Served) -> None:
    served.upstream.scripts["m"] = [Script([chunk(content="Hel")]), Script(text("Whole")), Script(text("3"))]
    failed = served.ask("k1", stream=True)
    assert failed.final["status"] == "failed"
    reply = served.ask("k1", stream=True)
    assert reply.final["status"] == "completed"
    mine = {"authorization": "Bearer mine"}
    assert call(served.base, "DELETE", f"/v1/responses/{reply.final['id']}", headers=mine).status == 200
    assert served.ask("k1", stream=True).final["id"] != reply.final["id"]
    assert asked(served) == 3


def test_a_turn_of_a_conversation_is_appended_once(served: Served) -> None:
    mine = {"authorization": "Bearer mine"}
    conversation = call(served.base, "POST", "/v1/conversations", {}, mine).json["id"]
    for _ in range(3):
        assert served.ask("k1", conversation=conversation).status == 200
    items = call(served.base, "GET", f"/v1/conversations/{conversation}/items", headers=mine)
    assert len(items.json["data"]) == 2


def test_a_response_that_is_cancelled_is_the_one_of_its_key(served: Served) -> None:
    served.upstream.scripts["m"] = Script([chunk(content="Hel"), HANG])
    first = served.ask("k1", background=True)
    name = first.json["id"]
    mine = {"authorization": "Bearer mine"}
    assert call(served.base, "POST", f"/v1/responses/{name}/cancel", headers=mine).status == 200
    again = served.ask("k1", background=True)
    assert (again.json["id"], again.json["status"]) == (name, "incomplete")


def test_chat_completions_are_not_stored_and_made_each_time(served: Served) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello?"}]}
    headers = {"idempotency-key": "k1", "authorization": "Bearer mine"}
    for _ in range(2):
        assert call(served.base, "POST", "/v1/chat/completions", body, headers).status == 200
    assert asked(served) == 2
    assert respond(served.base, {"authorization": "Bearer mine"}, model="m").status == 200
